"""Entry point: run a verb, turn errors and signals into exit codes.

0 done; 1 a Problem; 2 wrong usage; 130 Ctrl-C, 143 SIGTERM; an engine's own code passes through.
Anything else is a bug of medley and shows its traceback.
"""

import importlib
import os
import signal
import sys

# Internal verbs, whose modules define `main`: medley starts them itself, on other hosts and as supervisor.
_INTERNAL_VERBS = {"agent": "medley.cli.agent.requests", "kept": "medley.cluster.units"}


def main() -> int:
    """Run the verb in sys.argv, and return the exit code."""
    try:  # all other modules are imported within, so that Ctrl-C ends them without a traceback
        return _main()
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _main() -> int:
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _raise_terminated)
    from medley.errors import Problem, Terminated  # noqa: PLC0415 - as main() says
    from medley.unusable_file import set_reporter  # noqa: PLC0415 - as main() says

    set_reporter(_print_message)
    try:
        status = _run_verb()
        if sys.stdout:  # else a reader that has left is noticed at exit, with a line on stderr
            sys.stdout.flush()
    except Problem as problem:
        _print_message(problem)
        return problem.status
    except Terminated as terminated:
        if terminated.number == signal.SIGTERM and sys.stderr.isatty():  # a person looks at it
            print(f"medley: {terminated}", file=sys.stderr)
        return 128 + terminated.number
    except BrokenPipeError:  # `medley facts | head`: print nothing, not even at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    return status


def _run_verb() -> int:
    if sys.argv[1:2] and sys.argv[1] in _INTERNAL_VERBS:
        return int(importlib.import_module(_INTERNAL_VERBS[sys.argv[1]]).main(*sys.argv[2:]))
    from medley.cli import Medley, UsageError, terminal  # noqa: PLC0415 - the handlers stand before the slow import

    terminal.install_streams()
    try:
        _, status = Medley.run(sys.argv, exit=False)
    except UsageError as usage:
        print(usage, file=sys.stderr)
        return 2
    return int(status)


def _print_message(text: object) -> None:
    from medley.cli.output import print_message  # noqa: PLC0415 - only a failure needs it

    print_message(text)


def _raise_terminated(number: int, _frame: object) -> None:
    from medley.errors import Terminated  # noqa: PLC0415 - as main() says

    raise Terminated(number)


if __name__ == "__main__":
    sys.exit(main())
