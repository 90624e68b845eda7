"""`medley ask`, `logs`, `stop`: verbs about a running server."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from medley import credentials, serving
from medley.cli import Verb, flag, group, switch
from medley.cli.cluster_options import AtHead, Clustered, print_problems, require_hosts, typed_at
from medley.cli.output import print_line
from medley.cli.terminal import console as terminal
from medley.cluster.fleet import Fleet
from medley.errors import Problem
from medley.serving import api

_USUAL = "http://127.0.0.1:8000/v1"


class AskVerb(Verb):
    DESCRIPTION_MORE = """
It asks the model that `medley serve` serves on this host, or the server that --url or MEDLEY_URL names.

Examples:
    medley ask "Why is the sky blue?"
    medley ask --max-tokens 32 "Hello"
    medley ask --url http://spark-1:8000/v1 --model demo "Hello"
    git diff | medley ask --stdin "Review this change:"
"""

    url: str | None = switch("--url URL", "the server's base, such as http://spark-1:8000/v1")
    model: str | None = switch("--model NAME", "which of the server's models; default: its first")
    max_tokens: int | None = switch("--max-tokens N", "the answer's limit", (1, 1_000_000))
    key_file: str | None = switch("--api-key FILE", "the file of the server's key; default: MEDLEY_API_KEY")
    stdin: bool = flag("--stdin", "add what stands on standard input to the message")
    as_json: bool = flag("--json", "print one JSON object: the answer and how fast it came")

    def main(self, *text: str) -> int:
        words = (*text, sys.stdin.read()) if self.stdin else text
        if not any(word.strip() for word in words):
            raise Problem("there is nothing to ask", cause="no text was given", fix='medley ask "Hello"')
        question = "\n".join(words) if words[-1].count("\n") else " ".join(words)
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
            if isinstance(piece, api.AnswerSpeed):
                self._end(model, "".join(said), piece)
            else:
                said.append(piece)
                if not self.as_json:
                    print(piece, end="", flush=True)
        return 0

    def _key(self, file: str | None) -> str | None:
        """From the file that is named, else this host's own server's, else the variable."""
        if self.key_file:
            file = str(credentials.chosen_api_key(self.key_file, "127.0.0.1", make=False) or "")
        return credentials.read_api_key(Path(file)) if file else os.environ.get(credentials.API_KEY_VARIABLE)

    def _end(self, model: str, answer: str, speed: api.AnswerSpeed) -> None:
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


def _first(names: list[str]) -> str:
    if not names:
        raise Problem(
            "the server serves no model", cause="its /v1/models is empty", fix="name one with --model"
        )
    return names[0]


_COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "red")


class LogsVerb(Clustered):
    DESCRIPTION_MORE = """
Without a cluster.toml it shows those of this host.

Examples:
    medley logs
    medley logs spark-2 -n 200
    medley logs -f
"""
    USAGE = "    {progname} [SWITCHES] [HOST...]\n"
    follow: bool = flag("-f, --follow", "go on with what comes, until Ctrl-C")
    lines: int = switch("-n, --lines N", "so many of each host", (0, 100_000), default=40)

    def main(self, *hosts: str) -> int:
        found = self.wanted(alone=True)
        require_hosts(found, hosts, f"medley logs {next(iter(found.hosts))}")
        if hosts:
            found = found.without(tuple(name for name in found.hosts if name not in hosts))
        width, paint = max(map(len, found.hosts)), _painted(list(found.hosts))
        kept: list[tuple[str, str]] = []

        def show(host: str, text: str) -> None:
            """With the host before it."""
            print_line(f"{paint(host)}{' ' * (width - len(host))}  {text}")

        def keep(host: str, text: str) -> None:
            kept.append((host, text))

        with Fleet(found, on_note=show if self.follow else keep) as everyone:
            asked = {"lines": self.lines, "follow": self.follow}
            everyone.ask("log", lambda _: asked, limit_s=float("inf") if self.follow else 60)
            for host, text in sorted(kept, key=lambda each: each[1].partition(" ")[0]):
                show(host, text)
            return print_problems(everyone.failed.values())


def _painted(hosts: list[str]) -> Callable[[str], str]:
    """The host's name in its colour, where that is a terminal which wants some."""
    console = terminal(sys.stdout)
    if not console.is_terminal or console.no_color:
        return lambda host: host
    colours = {host: _COLOURS[at % len(_COLOURS)] for at, host in enumerate(hosts)}

    def paint(host: str) -> str:
        with console.capture() as said:
            console.print(host, style=colours[host], end="")
        return said.get()

    return paint


class StopVerb(Verb):
    DESCRIPTION_MORE = """
It ends what serve started, in a terminal or with --detach, and returns when nothing of it is left.

Examples:
    medley stop
    medley stop --port 8001
"""
    at_head: AtHead = group(AtHead)
    port: int | None = switch("--port PORT", "that one alone; default: all", (1, 65_535))

    def main(self) -> int:
        if head := self.at_head.elsewhere():
            return typed_at(head)
        count = serving.end_servers(self.port, lambda text: print(text, file=sys.stderr))
        print(f"ended {count} server{'s' if count != 1 else ''}" if count else "nothing is served here")
        return 0
