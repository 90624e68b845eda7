"""`medley batch`: a file of requests, answered line by line by a server that is started for it."""

import json
import os
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from plumbum import cli

from medley.cli.serve_here import ServeHere
from medley.problem import Problem, in_words

if TYPE_CHECKING:  # imported when the verb runs, to keep `medley --help` fast
    from collections.abc import Callable, Iterator

    from medley.batch.book import Book
    from medley.batch.lines import Request
    from medley.batch.sending import Answering, Progress

_SAY_EVERY_S = 10


class Batch(ServeHere):
    DESCRIPTION = "Answer a file of requests in OpenAI's batch form; a run that was cut off goes on."
    DESCRIPTION_MORE = """
IN has a request on each line: {"custom_id": "1", "url": "/v1/chat/completions", "body": {"messages": […]}}.
OUT gets an answer for each as it comes; OUT.errors the lines that are wrong and the requests that the server
refuses, by number. The same command again goes on where the last one stopped, however it stopped: no line is
answered twice, none is lost. MODEL is planned for throughput and served as serve does it, for this run alone.

Examples:
    /medley batch demo in.jsonl out.jsonl
    /medley batch gpt-oss-120b in.jsonl out.jsonl --at-once 128 --context 8192
    /medley batch gpt-oss-120b in.jsonl out.jsonl --url http://127.0.0.1:8000/v1

"""
    USAGE = "    {progname} [SWITCHES] MODEL IN OUT [-- ENGINE FLAGS]\n"
    HINT = "the engine's own flags come after --: medley batch MODEL IN OUT -- --max-model-len 8192"

    port = cli.SwitchAttr(
        "--port", int, 0, argname="PORT", help="where its server listens; default: any free"
    )
    url = cli.SwitchAttr(
        "--url", str, argname="URL", help="a server that runs already, instead of one of its own"
    )
    at_once = cli.SwitchAttr(
        "--at-once", cli.Range(1, 4096), 64, argname="N", help="requests that are under way at once"
    )

    def main(self, model: str, source: str, answers: str, *flags: str) -> None:
        from medley import api, port
        from medley.batch.book import opened
        from medley.batch.lines import Bad, Request, lines
        from medley.batch.sending import Answering, Progress

        self.port, self.goal, self.concurrency = self.port or port.free(), "throughput", self.at_once
        if self.dry_run:
            self.serve(model, *flags)
            return
        text = _read(Path(source))
        found = list(lines(text.decode("utf-8", "replace").split("\n")))
        requests = [each for each in found if isinstance(each, Request)]
        bad = [each for each in found if isinstance(each, Bad)]
        with opened(Path(answers), text, model, bad) as book:
            left = [each for each in requests if each.custom_id not in book.done]
            progress = Progress(len(left))
            done = len(requests) - len(left)
            _say(f"{len(requests)} requests, {done} of them done; wrong lines: {len(bad)}")
            if left and self.url:
                where, key = api.base(self.url), self._key()
                names = api.models(where, key)
                self._send(left, book, progress, Answering(where, model if model in names else names[0], key))
            elif left:
                self._serve_for(left, book, progress, model, flags)
            self._end(book, progress, len(bad))

    def _serve_for(
        self, left: "list[Request]", book: "Book", progress: "Progress", model: str, flags: tuple[str, ...]
    ) -> None:
        from medley.cli.served import Ended

        def then(server: "Answering") -> None:
            self._send(left, book, progress, server)

        self.then = then
        try:
            self.serve(model, *flags)
        except Ended:
            _say("all is answered; the server has ended")

    def _send(self, left: "list[Request]", book: "Book", progress: "Progress", server: "Answering") -> None:
        from medley.batch.sending import send

        with _bar(progress.total) as progress.seen:
            send(left, book, progress, server, at_once=self.at_once)

    def _key(self) -> str | None:
        from medley import api_key

        file = api_key.chosen(self.api_key, "127.0.0.1", make=False)
        return api_key.read(file) if file else os.environ.get(api_key.VARIABLE)

    def _end(self, book: "Book", progress: "Progress", bad: int) -> None:
        refused = book.refused + progress.refused
        done = len(book.done) - refused
        if self.as_json:
            files = {"answers": str(book.answers), "errors": str(book.errors)}
            print(json.dumps({"answered": done, "refused": refused, "wrong": bad, **files}))
            return
        print(f"{done} answered in {book.answers}")
        if refused or bad:
            print(f"wrong lines: {bad}, refused requests: {refused}; {book.errors} says which and why")


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise Problem(
            f"{file} cannot be read", cause=in_words(error), fix="name a file of requests"
        ) from error


@contextmanager
def _bar(total: int) -> "Iterator[Callable[[Progress], None]]":
    """What to call when something is done: a bar on a terminal, a line every ten seconds elsewhere."""
    began = time.monotonic()

    def words(progress: "Progress") -> str:
        rate = progress.tokens / max(0.001, time.monotonic() - began)
        refused = f", {progress.refused} refused" if progress.refused else ""
        return f"{rate:.1f} tokens/s{refused}"

    if not sys.stderr.isatty():
        said = [began]

        def line(progress: "Progress") -> None:
            done = progress.answered + progress.refused
            if time.monotonic() - said[0] >= _SAY_EVERY_S or done == total:
                said[0] = time.monotonic()
                _say(f"{done} of {total}, {words(progress)}")

        yield line
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    from medley.cli.terminal import console

    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[said]}", markup=False),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=console(sys.stderr)) as bar:
        task = bar.add_task("", total=total, said="")
        yield lambda progress: bar.update(
            task, completed=progress.answered + progress.refused, said=words(progress)
        )


def _say(text: str) -> None:
    print(f"medley: {text}", file=sys.stderr, flush=True)
