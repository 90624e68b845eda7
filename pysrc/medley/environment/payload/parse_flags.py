"""Print an engine's flags and its parser's errors; run by an engine environment's Python.

python parse_flags.py vllm FILE    # FILE: a JSON list of lists of words

Prints one JSON object: `flags` of the parser, and `errors`, the error or null of each command.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import NoReturn


def vllm() -> argparse.ArgumentParser:
    import vllm.platforms

    if vllm.platforms.current_platform.is_unspecified():
        # A build for GPUs on a host with neither GPU nor driver: the parser needs only the device's name.
        vllm.platforms.current_platform.device_type = "cuda"
    try:
        from vllm.entrypoints.common.cli_args import make_arg_parser  # from 0.33 on
    except ImportError:
        try:
            from vllm.entrypoints.launchers.cli_args import make_arg_parser
        except ImportError:  # up to 0.31
            from vllm.entrypoints.openai.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser: argparse.ArgumentParser = make_arg_parser(FlexibleArgumentParser(prog="vllm serve"))
    return parser


def sglang() -> argparse.ArgumentParser:
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser(prog="sglang serve")
    ServerArgs.add_cli_args(parser)
    return parser


def refusal(parser: argparse.ArgumentParser, words: list[str]) -> str | None:
    errors: list[str] = []

    def error(message: str) -> NoReturn:
        errors.append(message)
        raise SystemExit(2)

    parser.error = error  # type: ignore[method-assign] # else it prints its whole usage and the error is lost
    try:
        parser.parse_args(words)
    except SystemExit:
        return errors[0] if errors else "it ended"
    return None


if __name__ == "__main__":
    made = {"vllm": vllm, "sglang": sglang}[sys.argv[1]]()
    commands = json.loads(Path(sys.argv[2]).read_text())
    actions = made._actions  # noqa: SLF001 - argparse has no public list of its options
    flags = sorted({name for action in actions for name in action.option_strings})
    print(json.dumps({"flags": flags, "errors": [refusal(made, words) for words in commands]}))
