"""Refuse flags that the engine's release does not accept, and flags after -- that only medley may set."""

from collections.abc import Iterable, Sequence

from medley.command import Flag, quote_word
from medley.engine.accepted_flags import AcceptedFlags
from medley.errors import Problem

_ADDRESS_FLAGS = ("--port", "--host", "--served-model-name")
_WORKERS_PREFIX = "--tokenizer-w"
"""The shortest prefix of --tokenizer-worker-num that argparse accepts."""


def require_known_flags(
    accepted_flags: AcceptedFlags | None,
    flags: Iterable[Flag],
    user_flags: Sequence[str],
    *,
    table_file: str | None = None,
) -> None:
    """Raise a Problem that names the flags that the engine would refuse: medley's, a table's, or the user's.

    `accepted_flags`: of the release that will run, if known; `table_file`: the file of the model's table.
    """
    if accepted_flags is None:
        return
    own_faults = list(
        accepted_flags.list_faults([argument for flag in flags for argument in flag.build_argv()])
    )
    faults = [*own_faults, *accepted_flags.list_faults(user_flags)]
    if not faults:
        return
    refused = [f"{fault.argument} {fault.value}" if fault.value else fault.argument for fault in faults]
    places = [f"in {table_file}" if fault in own_faults and table_file else "" for fault in faults]
    raise Problem(
        f"{accepted_flags.title} does not take {', '.join(refused)}",
        cause="\n".join(
            (
                *(f"{fault.argument}: {fault.cause}" for fault in faults),
                f"its parser: {accepted_flags.source}",
            )
        ),
        fix="\n".join(
            f"{quote_word(fault.argument)}: {fault.advice} {place}".rstrip()
            for fault, place in zip(faults, places, strict=True)
        ),
    )


def require_no_server_flags(user_flags: Sequence[str]) -> None:
    """Raise a Problem for flags after -- that change where the server listens, or its name."""
    for argument, next_argument in zip(user_flags, (*user_flags, "")[1:], strict=True):
        name, equals, value = argument.partition("=")
        if name.replace("_", "-") in _ADDRESS_FLAGS:
            option = f"{name} {value if equals else next_argument}".rstrip()
            raise Problem(
                f"{name} after -- would hide the server from medley",
                cause="medley sets it, and asks the server by that name at that address until it is ready",
                fix=f"say it before the --: medley serve MODEL {option}",
            )
        worker_count = value if equals else next_argument
        if name.replace("_", "-").startswith(_WORKERS_PREFIX) and _is_above_one(worker_count):
            raise Problem(
                f"{name} {worker_count} would open the API without a key",
                cause="with more than one tokenizer process SGLang 0.5.23 listens on a TCP port instead of "
                "its user's socket, without a key and without medley's limits of media",
                fix="leave it out: medley serve MODEL -- --tokenizer-worker-num 1",
            )


def _is_above_one(text: str) -> bool:
    try:
        return int(text) > 1
    except ValueError:
        return False
