"""`medley batch`."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from medley.cli import Verb, flag, group, switch
from medley.cli.output import print_message, print_result
from medley.cli.serve import ServeOptions, announce_server, hide_engine_output, show_dry_run
from medley.cli.served import INSECURE_HELP
from medley.cli.terminal import create_console
from medley.errors import Problem, describe_error
from medley.network.free_port import find_free_port
from medley.serving import api, port_claim, server_address
from medley.serving.batch import BatchFiles, RefusedLine, Request, open_batch, parse_lines
from medley.serving.batch_client import BatchProgress, BatchServer, send_batch
from medley.serving.prepare import prepare_job
from medley.serving.server import ServerRun, WorkDone, run_job

_PRINT_INTERVAL_S = 10


class BatchVerb(Verb):
    USAGE = "    {progname} [OPTIONS] MODEL IN OUT [-- ENGINE FLAGS]\n"
    HINT = "flags of the engine come after --: medley batch MODEL IN OUT -- --max-model-len 8192"

    options: ServeOptions = group(
        ServeOptions, port=switch("--port PORT", "port of the server [default: any free one]", default=0)
    )
    url: str | None = switch("--url URL", "base URL of a running server to use")
    is_insecure: bool = flag("--insecure", INSECURE_HELP, requires=["--url"])
    at_once: int = switch("--at-once N", "concurrent requests", (1, 4096), default=64)

    def main(self, model: str, source: str, answers: str, *flags: str) -> None:
        options = self.options
        planning = replace(options.planning, goal="throughput", concurrency=self.at_once)
        options = replace(options, port=options.port or find_free_port(), planning=planning)
        if options.dry_run:
            show_dry_run(options.build_request(model, flags, self.typed_words), as_json=options.as_json)
            return
        try:
            text = Path(source).read_bytes()
        except OSError as error:
            raise Problem(
                f"{Path(source)} cannot be read", cause=describe_error(error), fix="name a file of requests"
            ) from error
        parsed_lines = list(parse_lines(text.decode("utf-8", "replace").split("\n")))
        requests = [parsed_line for parsed_line in parsed_lines if isinstance(parsed_line, Request)]
        bad_lines = [parsed_line for parsed_line in parsed_lines if isinstance(parsed_line, RefusedLine)]
        with open_batch(Path(answers), text, model, bad_lines) as files:
            open_requests = [request for request in requests if request.custom_id not in files.done_ids]
            progress = BatchProgress(len(open_requests))
            done_count = len(requests) - len(open_requests)
            print_message(
                f"{len(requests)} requests, {done_count} of them done; wrong lines: {len(bad_lines)}"
            )
            if open_requests and self.url:
                url, key_file = api.complete_url(self.url), self.options.api_key
                address = server_address.find_address(url, key_file, is_insecure=self.is_insecure)
                names = api.list_models(address.local_url, address.key)
                name = model if model in names else names[0]
                self._send(open_requests, files, progress, BatchServer(address.local_url, name, address.key))
            elif open_requests:
                # The server runs until this has returned.
                send_requests = partial(self._send, open_requests, files, progress)
                server = ServerRun(
                    options.timeout_s, partial(announce_server, as_json=options.as_json), send_requests
                )
                try:
                    with (
                        port_claim.claim_port(model, options.host, options.port),
                        hide_engine_output() as output,
                    ):
                        run_job(
                            prepare_job(options.build_request(model, flags, self.typed_words), output),
                            server,
                            output,
                        )
                except WorkDone:
                    print_message("all is answered; the server has ended")
            self._print_counts(files, progress, len(bad_lines))

    def _send(
        self, requests: list[Request], files: BatchFiles, progress: BatchProgress, server: BatchServer
    ) -> None:
        with _show_progress(progress.total) as progress.on_change:
            send_batch(requests, files, progress, server, concurrency=self.at_once)

    def _print_counts(self, files: BatchFiles, progress: BatchProgress, bad_count: int) -> None:
        refused_count = files.refused_count + progress.refused
        answered_count = len(files.done_ids) - refused_count
        file_table = {"answers": str(files.answers), "errors": str(files.errors)}
        lines = [f"{answered_count} answered in {files.answers}"]
        if refused_count or bad_count:
            counts = f"wrong lines: {bad_count}, refused requests: {refused_count}"
            lines += [f"{counts}; {files.errors} says which and why"]
        table = {"answered": answered_count, "refused": refused_count, "wrong": bad_count, **file_table}
        print_result(table, lines, as_json=self.options.as_json)


@contextmanager
def _show_progress(total: int) -> Iterator[Callable[[BatchProgress], None]]:
    """Yield a function that shows each change: a bar on a terminal, a line every ten seconds elsewhere."""
    began_s = time.monotonic()

    def format_rate(progress: BatchProgress) -> str:
        rate = progress.tokens / max(0.001, time.monotonic() - began_s)
        refused = f", {progress.refused} refused" if progress.refused else ""
        return f"{rate:.1f} tokens/s{refused}"

    if not sys.stderr.isatty():
        printed_at_s = [began_s]

        def print_line(progress: BatchProgress) -> None:
            done = progress.answered + progress.refused
            if time.monotonic() - printed_at_s[0] >= _PRINT_INTERVAL_S or done == total:
                printed_at_s[0] = time.monotonic()
                print_message(f"{done} of {total}, {format_rate(progress)}")

        yield print_line
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}", markup=False),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=create_console(sys.stderr)) as bar:
        task = bar.add_task("", total=total, rate="")
        yield lambda progress: bar.update(
            task, completed=progress.answered + progress.refused, rate=format_rate(progress)
        )
