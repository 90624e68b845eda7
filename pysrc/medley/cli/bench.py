"""`medley bench`: measure; `history`, `show` and `compare` what was measured."""

import secrets
from dataclasses import dataclass
from pathlib import Path

from medley.cli import Verb, build_suffix_check, flag, group, output, switch
from medley.cli.cluster_options import HeadChoice, run_at_head
from medley.cli.output import format_table, print_result
from medley.cli.progress import start_progress
from medley.cli.served import INSECURE_HELP
from medley.cluster.cluster_file import find_cluster_file, read_cluster
from medley.errors import Problem
from medley.measurement.bench import compare, page, record, report
from medley.measurement.bench.load import BenchLoad, parse_concurrencies
from medley.measurement.bench.record import Record
from medley.measurement.bench.run import measure_offline, measure_server
from medley.measurement.bench.target import (
    TargetOptions,
    plan_offline_target,
    prepare_target,
    require_context_room,
)
from medley.schema import (
    DEFAULT_ENGINE,
    EngineName,
)


@dataclass(frozen=True)
class PlotOptions:
    svg: str | None = switch("--svg FILE", "SVG file to draw plots in", check=build_suffix_check(".svg"))
    html: str | None = switch(
        "--html FILE", "HTML file for a page with plots", check=build_suffix_check(".html")
    )

    def write_files(self, *records: Record) -> None:
        """Write the plots of one record, or of two to compare."""
        if self.svg is not None:
            output.save_text(self.svg, page.build_image(records))
        if self.html is not None:
            build = page.build_page if len(records) == 1 else page.build_comparison_page
            output.save_text(self.html, build(*records))


class BenchVerb(Verb):
    USAGE = (
        "    {progname} [OPTIONS]\n"
        "    {progname} [OPTIONS] MODEL --offline [-- ENGINE FLAGS]\n"
        "    {progname} [OPTIONS] [MODEL] --field-report FILE\n"
    )

    url: str | None = switch("--url URL", "base URL of the server [default: this host's]")
    engine: EngineName | None = switch(
        "--engine ENGINE", "engine whose benchmark runs, with --url [default: vllm]"
    )
    environment: str | None = switch("--env ENV", "engine environment or virtualenv of the benchmark")
    tokenizer: str | None = switch(
        "--tokenizer MODEL", "folder or ORG/NAME of the tokenizer [default: the server's]"
    )
    model: str | None = switch("--model NAME", "served model to use [default: the first]")
    key_file: str | None = switch(
        "--api-key FILE", "file of the server's API key [default: its own, else MEDLEY_API_KEY]"
    )
    is_insecure: bool = flag("--insecure", INSECURE_HELP, requires=["--url"])
    concurrency: str = switch("--concurrency LIST", "concurrent streams of each step", default="1,4,16")
    repeats: int = switch("--repeats N", "runs per concurrency", (1, 100), default=3)
    input_len: int = switch("--input-len TOKENS", "prompt length, in tokens", (1, 10_000_000), default=512)
    output_len: int = switch("--output-len TOKENS", "answer length, in tokens", (2, 1_000_000), default=128)
    requests: int | None = switch(
        "--requests N", "requests per run [default: 4 per stream, at least 8]", (1, 1_000_000)
    )
    seed: int | None = switch("--seed N", "seed of the prompts [default: random]", (0, 1 << 31))
    timeout_s: int = switch("--timeout SECONDS", "time limit of a run, in seconds", (5, 86_400), default=1800)
    offline: bool = flag(
        "--offline",
        "benchmark MODEL on this host without a server",
        excludes=["--url", "--tokenizer", "--model", "--api-key"],
    )
    field_report: str | None = switch(
        "--field-report FILE",
        "file for a report about the whole cluster",
        excludes=[
            *("--offline", "--url", "--env", "--tokenizer", "--model", "--api-key", "--json", "--svg"),
            "--html",
        ],
    )
    head_choice: HeadChoice = group(HeadChoice)
    dry_run: bool = flag("--dry-run", "print the commands; start nothing")
    as_json: bool = flag("--json", "one JSON object: the whole record")
    plots: PlotOptions = group(PlotOptions)

    def main(self, *words: str) -> int:
        if self.nested_command:
            return 0
        if self.field_report:
            return self._write_field_report(self.field_report, words)
        measured = self._measure_offline(words) if self.offline else self._measure_served(words)
        if measured:
            self.plots.write_files(measured)
            print_result(measured.table, report.format_record(measured), as_json=self.as_json)
        return 0

    def _write_field_report(self, file: str, words: tuple[str, ...]) -> int:
        from medley.cli.field_report import FieldReportOptions, write_field_report

        if len(words) > 1:
            raise Problem(
                f"bench takes one model: {words[1]!r} is a second",
                cause="a field report measures a small model and at most one more",
                fix=f"medley bench {words[0]} --field-report {file}",
            )
        if head := self.head_choice.find_remote_head():
            return run_at_head(head)
        cluster_file = self.head_choice.cluster
        known_cluster = read_cluster(cluster_file) if find_cluster_file(cluster_file) else None
        options = FieldReportOptions(
            file,
            self._build_load(),
            self.timeout_s,
            words[0] if words else None,
            self.engine or (known_cluster.engine if known_cluster else DEFAULT_ENGINE),
            known_cluster if known_cluster and len(known_cluster.hosts) > 1 else None,
            ("--cluster", cluster_file) if cluster_file else (),
        )
        if self.dry_run:
            print("\n".join(options.list_commands()))
        else:
            write_field_report(options, start_progress())
        return 0

    def _measure_served(self, words: tuple[str, ...]) -> Record | None:
        if words:
            raise Problem(
                f"bench takes no model, and {words[0]!r} was given",
                cause="it measures what is served already",
                fix=f"medley serve {words[0]}, and in another terminal: medley bench; "
                f"or: medley bench {words[0]} --offline",
            )
        load, progress = self._build_load(), start_progress()
        server = (self.url, self.engine, self.environment, self.tokenizer, self.model, self.key_file)
        target = prepare_target(TargetOptions(*server, is_insecure=self.is_insecure), progress)
        require_context_room(load, target.served.model, target.max_tokens)
        if not self.dry_run:
            return measure_server(target, load, self.timeout_s, progress)
        for run in load.list_runs():
            print(target.build_command(run, Path(f"bench-{run.concurrency}-{run.repeat}.json")))
        return None

    def _measure_offline(self, words: tuple[str, ...]) -> Record | None:
        if not words or words[0].startswith("-"):
            raise Problem(
                "nothing says what is to be measured",
                cause="without a server bench starts the engine itself",
                fix="medley bench smollm2 --offline",
            )
        load, progress = self._build_load(), start_progress()
        target = plan_offline_target(
            words[0],
            load,
            self.engine or DEFAULT_ENGINE,
            self.environment,
            words[1:],
            dry_run=self.dry_run,
            user_command=self.typed_words,
            output=output.create_output(),
        )
        if not self.dry_run:
            return measure_offline(target, load, self.timeout_s, progress)
        for mode, run in target.list_runs(load, progress):
            print(target.build_command(mode, run, Path(f"{mode}-{run.concurrency}-{run.repeat}.json")))
        return None

    def _build_load(self) -> BenchLoad:
        return BenchLoad(
            parse_concurrencies(self.concurrency),
            self.repeats,
            self.input_len,
            self.output_len,
            secrets.randbelow(1 << 30) if self.seed is None else self.seed,
            self.requests,
        )


class BenchCompareVerb(Verb):
    USAGE = "    {progname} [OPTIONS] FIRST SECOND\n"
    plots: PlotOptions = group(PlotOptions)
    as_json: bool = flag("--json", "one JSON object")

    def main(self, first: str, second: str) -> None:
        one, two = record.find_record(first), record.find_record(second)
        comparison = compare.compare_records(one, two)
        self.plots.write_files(one, two)
        about = {"first": one.id, "second": two.id, "differs": compare.list_differences(one, two)}
        table = {**about, "results": [figure.table for figure in comparison]}
        print_result(table, compare.format_comparison(one, two, comparison), as_json=self.as_json)


class BenchHistoryVerb(Verb):
    as_json: bool = flag("--json", "one JSON list")

    def main(self) -> None:
        records = list(record.list_records())
        headers, *rows = report.build_history(records)
        lines = format_table(headers, rows) if records else ["no bench is kept here; medley bench makes one"]
        print_result([report.summarize_record(item) for item in records], lines, as_json=self.as_json)


class BenchShowVerb(Verb):
    USAGE = "    {progname} [OPTIONS] [ID]\n"
    plots: PlotOptions = group(PlotOptions)
    as_json: bool = flag("--json", "print one JSON object: the whole record")

    def main(self, word: str = "last") -> None:
        shown = record.find_record(word)
        self.plots.write_files(shown)
        condition_lines = (f"{name:<8}{value}" for name, value in report.list_conditions(shown))
        print_result(shown.table, (*report.format_record(shown), "", *condition_lines), as_json=self.as_json)
