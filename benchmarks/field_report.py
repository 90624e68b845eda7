"""Take in a field report: check it, plan it again; make recordings, predictor rows and matrix rows of it.

    .venv/bin/python -m benchmarks.field_report FILE            # what it would add, and whether it replays
    .venv/bin/python -m benchmarks.field_report FILE --write    # add it to this tree
    .venv/bin/python -m benchmarks.field_report FILE --write --into FOLDER

Exit code 1 where the file is not a field report, was taken in before, or its plans come out otherwise now.
docs/how-to/field-report.md says what a maintainer looks at before `--write`.
"""

import argparse
import csv
import io
import json
import math
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks import support
from medley import config, json_shape, storage, transcript
from medley.errors import Problem, describe_error
from medley.host import facts
from medley.host.facts import Facts
from medley.measurement.bench.record import Record
from medley.measurement.field_report.replay import plan_model
from medley.measurement.field_report.report import (
    FORMAT,
    FieldReport,
    ReportedHost,
    ReportedLayout,
    ReportedModel,
    ReportedPlan,
    list_contents,
)
from medley.transcript import Transcript

RECORDED = Path("tests/host/recorded/field")
PUBLISHED = Path("benchmarks/published.csv")
SUPPORT = Path("benchmarks/support.csv")
PAGE = Path("docs/reference/support-matrix.md")
_NAMES = {
    "spark": "DGX Spark GB10",
    "thor": "Jetson AGX Thor",
    "orin": "Jetson AGX Orin",
    "orin-r39": "Jetson AGX Orin",
}
"""Words of the column `hw`, as benchmarks/hardware.py reads them, where a GPU's own name does not do."""
_VIRTUAL = {None, "veth", "bridge", "dummy", "tun"}
_GBIT = 1000
_MOST_BYTES = 32 << 20
_FIX = "ask its sender for the file as medley bench --field-report wrote it"
_EQUAL = 1e-6
"""Two processors may round the last digits of a prediction otherwise."""
_FIGURES = ("tokens_per_s", "low", "high", "ttft_s")


@dataclass(frozen=True)
class Intake:
    """A report, and what is made of it."""

    report: FieldReport
    name: str
    """Of its recordings, and of its source in the rows."""
    answers: Mapping[str, Transcript]
    known: Mapping[str, Facts]

    @property
    def simulated(self) -> bool:
        """Whether its hosts are namespaces: no GPU, and no link with a driver but veth's."""
        drivers = {link.driver for each in self.known.values() for link in each.net.links}
        return not any(each.gpus for each in self.known.values()) and drivers <= _VIRTUAL

    def recordings(self) -> Iterator[tuple[str, str]]:
        """File names and texts; the first line says what it is."""
        for host, said in self.answers.items():
            made = self.report.medley
            where = "hosts made of network namespaces" if self.simulated else "its owner's hosts"
            first = f"# Recorded by medley bench --field-report on {where}: {host} of {len(self.known)}."
            second = f"# medley {made['version']}, source {made['source']}, on {self.report.when[:10]}."
            yield f"{self.name}-{host}.txt", f"{first}\n{second}\n\n{transcript.format_transcript(said)}"

    def replayed(self) -> Iterator[tuple[ReportedModel, list[str]]]:
        """Each planned model, and what its plan says otherwise now."""
        for model in self.report.models:
            if then := model.plan:
                now = plan_model(model.name, then.shape, self.answers, self.report.wishes, then.asked)
                yield model, list(differences(then, now))

    def predictor_rows(self) -> Iterator[dict[str, str]]:
        """In the columns of published.csv: output tokens a second, the prompts' time included."""
        for model in self.report.models:
            for mode, many in model.bench.rows if model.plan and model.ran and model.bench else ():
                if mode == "served":
                    yield from self._row(model, many)

    def _row(self, model: ReportedModel, many: int) -> Iterator[dict[str, str]]:
        plan, ran, bench = model.plan, model.ran, model.bench
        rate = bench.compute_spreads("served", many).get("output_tokens_per_s") if bench else None
        if not (plan and ran and bench and rate):
            return
        yield {
            "hw": " + ".join(dict.fromkeys(map(self._hardware, ran.hosts))),
            "nodes": str(len(ran.hosts)),
            "link": _link(ran),
            "engine": f"{plan.asked.engine} {_version(bench)}".strip(),
            "model": model.name,
            "params_total_b": "",
            "params_active_b": "",
            "quant": plan.shape.weights,
            "tp": str(max(len(stage.devices) for stage in ran.stages)),
            "pp": str(len(ran.stages)),
            "concurrency": str(many),
            "metric": f"output_throughput(in{bench.load.input_tokens} out{bench.load.output_tokens})",
            "value": f"{rate.median:.4g}",
            "unit": "tok/s",
            "source": f"field-{self.name} medley bench, median of {len(bench.find_results('served', many))}",
        }

    def _hardware(self, host: str) -> str:
        known = self.known.get(host)
        if known is None or not known.gpus:
            return f"CPU {known.system if known else '?'}"
        kind = next((each.kind for each in self.report.hosts if each.name == host), None) or "?"
        return _NAMES.get(kind) or re.sub(r"[^\w .+()-]", "", known.gpus[0].name)[:60]

    def support_rows(self) -> Iterator[support.Row]:
        """One for each model that answered."""
        kinds = {each.name: each.kind or "?" for each in self.report.hosts}
        for model in self.report.models:
            if not (model.plan and model.ran and model.bench and model.bench.counted):
                continue
            hosts = model.ran.hosts
            over = [] if len(hosts) == 1 else ["RDMA" if model.ran.rdma else "TCP"]
            yield support.Row(
                host="+".join(sorted({kinds.get(each, "?") for each in hosts})),
                hosts=str(len(hosts)),
                engine=model.plan.asked.engine,
                layout=", ".join((_sizes(model.ran), *over)),
                model=model.name,
                badge="simulated" if self.simulated else "hardware",
                evidence=f"field report {self.name}",
            )


def _sizes(ran: ReportedLayout) -> str:
    """As the page has it: TP 2, PP 2."""
    tensor, stages = max(len(stage.devices) for stage in ran.stages), len(ran.stages)
    named = (("TP", tensor), ("PP", stages), ("DP", ran.replicas))
    return " ".join(f"{name} {many}" for name, many in named if many > 1) or "one rank"


def read(path: Path) -> FieldReport:
    """The report in a file; a Problem for any other file, whatever it holds."""
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise Problem(
            f"{path} cannot be read", cause=describe_error(error), fix="name a file that is there"
        ) from error
    table = json_shape.parse_object(content) if len(content) <= _MOST_BYTES else None
    if table is None:
        raise _no_report(path, f"it is not one JSON object of at most {_MOST_BYTES >> 20} MiB")
    if table.get("format") != FORMAT:
        raise _no_report(path, f"its `format` is {table.get('format')!r:.60}; this medley reads {FORMAT!r}")
    try:
        json.dumps(table, allow_nan=False)
        found = config.build_table(table, FieldReport, str(path))
    except (ValueError, RecursionError) as error:
        raise _no_report(path, describe_error(error)[:200]) from error
    except Problem as problem:
        raise Problem(problem.what, cause=problem.cause, fix=_FIX) from problem
    if len({host.name for host in found.hosts}) < len(found.hosts):
        raise _no_report(path, "two of its hosts have one name")
    return found


def _no_report(path: Path, cause: str) -> Problem:
    return Problem(f"{path} is no field report", cause=cause, fix=_FIX)


def answers(host: ReportedHost) -> Transcript:
    """What it answered; a Problem where that is no transcript."""
    try:
        return transcript.parse_transcript(host.transcript)
    except Problem as problem:
        what = f"the transcript of {host.name} is none"
        raise Problem(what, cause=problem.cause, fix=_FIX) from problem


def differences(then: ReportedPlan, now: ReportedPlan) -> Iterator[str]:
    """Yield what a plan says otherwise than an earlier one, a line each."""
    for key in ReportedPlan.__struct_fields__:
        before, after = getattr(then, key), getattr(now, key)
        same = math.isclose(before, after, rel_tol=_EQUAL) if key in _FIGURES else before == after
        if isinstance(before, tuple) and not same:
            yield from (f"{key}: - {each}" for each in before if each not in after)
            yield from (f"{key}: + {each}" for each in after if each not in before)
        elif not same:
            yield f"{key}: {before} then, {after} now"


def intake(path: Path) -> Intake:
    """The report in a file; a Problem for any other file."""
    found = read(path)
    said = {host.name: answers(host) for host in found.hosts}
    kinds = "-".join(dict.fromkeys(host.kind or "unknown" for host in found.hosts))
    digest = storage.hash_file(path)[:6]
    name = f"{kinds}-{len(found.hosts)}-{found.when[:10].replace('-', '')}-{digest}"
    return Intake(found, name, said, {host: facts.read_facts(each) for host, each in said.items()})


def write(taken: Intake, root: Path) -> Iterator[Path]:
    """Add what is made of it below `root`; yields each file that is new or changed."""
    folder = root / RECORDED
    for name, text in taken.recordings():
        if (folder / name).exists():
            raise Problem(
                f"{taken.name} was taken in before",
                cause=f"{folder / name} is there",
                fix="git log --stat -1 " + str(RECORDED),
            )
        storage.write_text(folder / name, text)
        yield folder / name
    if rows := list(taken.predictor_rows()):
        _append(root / PUBLISHED, rows)
        yield root / PUBLISHED
    known = support.read(root / SUPPORT)
    made = [row for row in taken.support_rows() if not support.wrong([row])]
    for row in made:
        known = support.with_row(known, row)
    if made:
        support.write(known, root / SUPPORT)
        (root / PAGE).write_text(support.page(known), encoding="utf-8")
        yield from (root / SUPPORT, root / PAGE)


def _append(path: Path, rows: list[dict[str, str]]) -> None:
    text = path.read_text(encoding="utf-8")
    columns = next(csv.reader([text.partition("\n")[0]]))
    added = io.StringIO()
    csv.DictWriter(added, columns, lineterminator="\n").writerows(rows)
    path.write_text(f"{text.rstrip()}\n{added.getvalue()}", encoding="utf-8")


def _link(ran: ReportedLayout) -> str:
    if ran.mbit is None:
        return "none" if all(len(stage.devices) == 1 for stage in ran.stages) else "PCIe"
    return f"{ran.mbit / _GBIT:g}GbE {'RoCE' if ran.rdma else 'TCP'}"


def _version(bench: Record) -> str:
    versions = bench.about.get("engine", {}).get("versions", {})
    found = versions.get(bench.engine) if isinstance(versions, Mapping) else None
    return re.sub(r"[^\w.+-]", "", str(found or ""))


def main() -> int:
    options = _options()
    try:
        return _take(intake(options.file), options)
    except Problem as problem:
        print(problem, file=sys.stderr)
        return 1


def _take(taken: Intake, options: argparse.Namespace) -> int:
    differ = 0
    print("\n".join(list_contents(taken.report)), f"\nname: {taken.name}")
    print(
        "hosts: simulated" if taken.simulated else "hosts: hardware",
        "" if taken.report.whole else "(not whole)",
    )
    for model, lines in taken.replayed():
        print(f"plan of {model.name}: {'the same now' if not lines else 'otherwise now:'}")
        print("".join(f"    {line}\n" for line in lines), end="")
        if model.ran and model.plan and model.ran.layout != model.plan.made.layout:
            print(f"    it ran {model.ran.layout}; by the transcripts alone {model.plan.made.layout}")
        differ += bool(lines)
    for row in taken.predictor_rows():
        print(f"predictor row: {','.join(row.values())}")
    for each in taken.support_rows():
        found = support.wrong([each])
        print(
            "\n".join(f"no matrix row: {line}" for line in found)
            or f"matrix row: {', '.join((*each.key, each.badge))}"
        )
    for path in write(taken, options.into) if options.write else ():
        print(f"written: {path}")
    return int(differ > 0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--write", action="store_true", help="add recordings, rows and the page")
    parser.add_argument("--into", type=Path, default=support.ROOT, help="the tree to add to")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
