"""`medley ask`: one chat request to a running server, the answer as it comes."""

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from plumbum import cli

from medley.cli.verb import Verb
from medley.problem import Problem

if TYPE_CHECKING:
    from medley import api


_USUAL = "http://127.0.0.1:8000/v1"


class Ask(Verb):
    DESCRIPTION = "Send one chat message to a running server and stream the answer."
    DESCRIPTION_MORE = """
It asks the model that `medley serve` serves on this host, or the server that --url or MEDLEY_URL names.

Examples:
    /medley ask "Why is the sky blue?"
    /medley ask --max-tokens 32 "Hello"
    /medley ask --url http://spark-1:8000/v1 --model demo "Hello"
    /git diff | medley ask --stdin "Review this change:"

"""

    url = cli.SwitchAttr(
        "--url", str, argname="URL", help="the server's base, such as http://spark-1:8000/v1"
    )
    model = cli.SwitchAttr(
        "--model", str, argname="NAME", help="which of the server's models; default: its first"
    )
    max_tokens = cli.SwitchAttr(
        "--max-tokens", cli.Range(1, 1_000_000), argname="N", help="the answer's limit"
    )
    key_file = cli.SwitchAttr(
        "--api-key", str, argname="FILE", help="the file of the server's key; default: MEDLEY_API_KEY"
    )
    stdin = cli.Flag("--stdin", help="add what stands on standard input to the message")
    as_json = cli.Flag("--json", help="print one JSON object: the answer and how fast it came")

    def main(self, *text: str) -> int:
        from medley import api, serving

        question = _question((*text, sys.stdin.read()) if self.stdin else text)
        named = self.url or os.environ.get("MEDLEY_URL")
        here = None if named else serving.newest()
        url = api.base(named or (here.url if here else _USUAL))
        key = self._key(here.key if here else None)
        try:
            if here and here.key and key:
                api.require_guarded(url, key)
            model = self.model or _first(api.models(url, key))
        except Problem as problem:
            if here is None or here.state == "ready":
                raise
            raise Problem(
                f"{here.model} is not ready yet: {here.state}", cause=problem.cause, fix="medley status"
            ) from problem
        said: list[str] = []
        for piece in api.chat(url, model, question, max_tokens=self.max_tokens, key=key):
            if isinstance(piece, api.Speed):
                self._end(model, "".join(said), piece)
            else:
                said.append(piece)
                if not self.as_json:
                    print(piece, end="", flush=True)
        return 0

    def _key(self, file: str | None) -> str | None:
        """From the file that is named, else this host's own server's, else the variable."""
        from medley import api_key

        if self.key_file:
            file = str(api_key.chosen(self.key_file, "127.0.0.1", make=False) or "")
        return api_key.read(Path(file)) if file else os.environ.get(api_key.VARIABLE)

    def _end(self, model: str, answer: str, speed: "api.Speed") -> None:
        rate = speed.tokens_per_second
        if self.as_json:
            table = {
                "model": model,
                "answer": answer,
                "prompt_tokens": speed.prompt_tokens,
                "tokens": speed.tokens,
                "first_token_s": round(speed.first_token_s, 4),
                "total_s": round(speed.total_s, 4),
                "tokens_per_second": rate and round(rate, 2),
            }
            print(json.dumps(table))
            return
        print()
        each = f", {rate:.1f} tokens/s" if rate else ""
        print(f"{speed.tokens} tokens, first after {speed.first_token_s:.2f} s{each}", file=sys.stderr)


def _question(words: tuple[str, ...]) -> str:
    if not any(word.strip() for word in words):
        raise Problem("there is nothing to ask", cause="no text was given", fix='medley ask "Hello"')
    return "\n".join(words) if words[-1].count("\n") else " ".join(words)


def _first(names: list[str]) -> str:
    if not names:
        raise Problem(
            "the server serves no model", cause="its /v1/models is empty", fix="name one with --model"
        )
    return names[0]
