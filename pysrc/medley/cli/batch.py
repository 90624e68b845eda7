"""`medley batch`."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from medley import serving
from medley.cli import Verb, flag, group, switch
from medley.cli.output import print_result, say
from medley.cli.serve import ServeOptions, announce_server, quiet, show_dry_run
from medley.cli.served import INSECURE
from medley.cli.terminal import create_console
from medley.errors import Problem, in_words
from medley.network import tcp
from medley.serving import api, server_address
from medley.serving.batch import BadLine, BatchFiles, Request, open_batch, parse_lines
from medley.serving.batch_client import BatchProgress, BatchServer, send_batch
from medley.serving.prepare import prepare_job
from medley.serving.server import ServerRun, WorkDone, run_job

_SAY_EVERY_S = 10


class BatchVerb(Verb):
    USAGE = "    {progname} [OPTIONS] MODEL IN OUT [-- ENGINE FLAGS]\n"
    HINT = "flags of the engine come after --: medley batch MODEL IN OUT -- --max-model-len 8192"

    options: ServeOptions = group(
        ServeOptions, port=switch("--port PORT", "port of the server [default: any free one]", default=0)
    )
    url: str | None = switch("--url URL", "base URL of a running server to use")
    is_insecure: bool = flag("--insecure", INSECURE, requires=["--url"])
    at_once: int = switch("--at-once N", "concurrent requests", (1, 4096), default=64)

    def main(self, model: str, source: str, answers: str, *flags: str) -> None:
        asked = self.options
        planning = replace(asked.planning, goal="throughput", concurrency=self.at_once)
        asked = replace(asked, port=asked.port or tcp.find_free_port(), planning=planning)
        if asked.dry_run:
            show_dry_run(asked.build_request(model, flags, self.typed_words), as_json=asked.as_json)
            return
        try:
            text = Path(source).read_bytes()
        except OSError as error:
            raise Problem(
                f"{Path(source)} cannot be read", cause=in_words(error), fix="name a file of requests"
            ) from error
        found = list(parse_lines(text.decode("utf-8", "replace").split("\n")))
        requests = [each for each in found if isinstance(each, Request)]
        bad = [each for each in found if isinstance(each, BadLine)]
        with open_batch(Path(answers), text, model, bad) as book:
            left = [each for each in requests if each.custom_id not in book.done_ids]
            progress = BatchProgress(len(left))
            done = len(requests) - len(left)
            say(f"{len(requests)} requests, {done} of them done; wrong lines: {len(bad)}")
            if left and self.url:
                url, key_file = api.complete_url(self.url), self.options.api_key
                at = server_address.find_address(url, key_file, is_insecure=self.is_insecure)
                names = api.list_models(at.local_url, at.key)
                name = model if model in names else names[0]
                self._send(left, book, progress, BatchServer(at.local_url, name, at.key))
            elif left:
                served = partial(self._send, left, book, progress)  # it is served until this has returned
                server = ServerRun(asked.timeout_s, partial(announce_server, as_json=asked.as_json), served)
                try:
                    with serving.claim_port(model, asked.host, asked.port), quiet() as printer:
                        run_job(
                            prepare_job(asked.build_request(model, flags, self.typed_words), printer),
                            server,
                            printer,
                        )
                except WorkDone:
                    say("all is answered; the server has ended")
            self._end(book, progress, len(bad))

    def _send(
        self, left: list[Request], book: BatchFiles, progress: BatchProgress, server: BatchServer
    ) -> None:
        with _bar(progress.total) as progress.on_change:
            send_batch(left, book, progress, server, concurrency=self.at_once)

    def _end(self, book: BatchFiles, progress: BatchProgress, bad: int) -> None:
        refused = book.refused_count + progress.refused
        done = len(book.done_ids) - refused
        files = {"answers": str(book.answers), "errors": str(book.errors)}
        lines = [f"{done} answered in {book.answers}"]
        if refused or bad:
            lines += [f"wrong lines: {bad}, refused requests: {refused}; {book.errors} says which and why"]
        table = {"answered": done, "refused": refused, "wrong": bad, **files}
        print_result(table, lines, as_json=self.options.as_json)


@contextmanager
def _bar(total: int) -> Iterator[Callable[[BatchProgress], None]]:
    """What to call when something is done: a bar on a terminal, a line every ten seconds elsewhere."""
    began = time.monotonic()

    def words(progress: BatchProgress) -> str:
        rate = progress.tokens / max(0.001, time.monotonic() - began)
        refused = f", {progress.refused} refused" if progress.refused else ""
        return f"{rate:.1f} tokens/s{refused}"

    if not sys.stderr.isatty():
        said = [began]

        def line(progress: BatchProgress) -> None:
            done = progress.answered + progress.refused
            if time.monotonic() - said[0] >= _SAY_EVERY_S or done == total:
                said[0] = time.monotonic()
                say(f"{done} of {total}, {words(progress)}")

        yield line
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[said]}", markup=False),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=create_console(sys.stderr)) as bar:
        task = bar.add_task("", total=total, said="")
        yield lambda progress: bar.update(
            task, completed=progress.answered + progress.refused, said=words(progress)
        )
