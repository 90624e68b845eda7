"""Run by an engine environment's Python: what the engine's own parser says to the commands in a file.

python parse.py vllm FILE    # FILE: a JSON list of lists of words; prints one of errors, or null
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any


def vllm() -> Any:
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    return make_arg_parser(FlexibleArgumentParser(prog="vllm serve"))


def sglang() -> Any:
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser(prog="sglang serve")
    ServerArgs.add_cli_args(parser)
    return parser


def said(parser: Any, words: list[str]) -> str | None:
    errors: list[str] = []

    def error(message: str) -> None:
        errors.append(message)
        raise SystemExit(2)

    parser.error = error
    try:
        parser.parse_args(words)
    except SystemExit:
        return errors[0] if errors else "it ended"
    return None


if __name__ == "__main__":
    made = {"vllm": vllm, "sglang": sglang}[sys.argv[1]]()
    commands = json.loads(Path(sys.argv[2]).read_text())
    print(json.dumps([said(made, words) for words in commands]))
