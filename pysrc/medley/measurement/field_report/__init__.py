"""Field report: what one run on somebody's hosts found, as one JSON file; read it strictly."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from medley import config, json_shape, transcript
from medley.errors import Problem, in_words
from medley.measurement.bench.record import Record
from medley.measurement.bench.report import number
from medley.measurement.link import LinkMeasurement
from medley.schema import EngineName, Shape, StrictTable
from medley.transcript import Transcript

FORMAT = "medley field report 1"
_MOST_BYTES = 32 << 20

HostName = Annotated[str, Field(pattern=r"^host-[1-9]\d?$")]
"""Names become those of files, so a report can name nothing else."""
MODEL_NAME = r"^\w[\w.-]{0,95}(/\w[\w.-]{0,95})?$"
ModelName = Annotated[str, Field(pattern=MODEL_NAME)]
Word = Annotated[str, Field(pattern=r"^[\w][\w.+-]{0,63}$")]
Count = Annotated[int, Field(ge=1, le=4096)]


class ReportedHost(StrictTable):
    name: HostName
    kind: Word | None
    transcript: str
    """As `medley facts --transcript` prints it, with the names of this report."""


class Wishes(StrictTable):
    """What cluster.toml says of the network."""

    link: Mapping[HostName, str] = {}
    exclude: tuple[str, ...] = ()


class PlannedStage(StrictTable):
    devices: Annotated[tuple[tuple[HostName, Annotated[int, Field(ge=0, le=64)]], ...], Field(min_length=1)]
    layers: Count


class ReportedLayout(StrictTable):
    layout: str
    """In words."""
    stages: Annotated[tuple[PlannedStage, ...], Field(min_length=1)]
    """Of one replica."""
    replicas: Count
    rdma: bool | None
    """How hosts are joined; None on one host."""
    mbit: int | None


class ReportedPlan(ReportedLayout):
    """A plan made of nothing but the transcripts of a report, so that it can be made again."""

    engine: EngineName
    hosts: Count | None
    """How many were asked for; None: as many as are best."""
    spread: bool
    """Whether one replica had to lie over all of them."""
    shape: Shape
    tokens_per_s: float
    low: float
    high: float
    ttft_s: float
    why: tuple[str, ...]
    typed: tuple[str, ...]
    """What to type, host by host."""


class Backend(StrictTable):
    """A kernel or backend that an engine's log says it runs."""

    what: str
    found: str
    line: Annotated[int, Field(ge=1)]
    """Number in the log, from 1."""
    text: str


class ReportedModel(StrictTable):
    name: ModelName
    by_report: bool
    """Whether the report started it; it was served already otherwise."""
    plan: ReportedPlan | None = None
    ran: ReportedLayout | None = None
    bench: Record | None = None
    backends: tuple[Backend, ...] = ()


class ReportedLink(StrictTable):
    host: HostName
    measured: LinkMeasurement
    problems: tuple[Mapping[str, str], ...] = ()


class Made(StrictTable):
    version: Word
    source: Word


class Skipped(StrictTable):
    step: str
    why: str


class FieldReport(StrictTable):
    format: Literal["medley field report 1"]
    whole: bool
    """False where it was stopped, or something ended it."""
    when: Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00$")]
    medley: Made
    hosts: Annotated[tuple[ReportedHost, ...], Field(min_length=1, max_length=64)]
    wishes: Wishes = Wishes()
    fabric: Mapping[str, Any] | None = None
    """As `medley link show --json` prints it."""
    links: tuple[ReportedLink, ...] = ()
    models: tuple[ReportedModel, ...] = ()
    collective: Mapping[str, Any] | None = None
    """As `medley collective-test --json` prints it."""
    doctor: Mapping[str, Any] | None = None
    """As `medley doctor --json` prints it."""
    skipped: tuple[Skipped, ...] = ()

    @property
    def answers(self) -> dict[str, Transcript]:
        """What each host answered; a Problem where a transcript is none."""
        return {host.name: _parsed(host) for host in self.hosts}


def _parsed(host: ReportedHost) -> Transcript:
    try:
        return transcript.parse(host.transcript)
    except Problem as problem:
        raise Problem(
            f"the report's transcript of {host.name} is none", cause=problem.cause, fix=_FIX
        ) from problem


_FIX = "ask its sender for the file as medley bench --field-report wrote it"


def read(path: Path) -> FieldReport:
    """The report in a file; a Problem for any other file, whatever it holds."""
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise Problem(
            f"{path} cannot be read", cause=in_words(error), fix="name a file that is there"
        ) from error
    if len(content) > _MOST_BYTES:
        raise Problem(
            f"{path} is no field report", cause=f"it has more than {_MOST_BYTES >> 20} MiB", fix=_FIX
        )
    table = json_shape.table(content)
    if table is None or table.get("format") != FORMAT:
        said = (
            "it is not one JSON object" if table is None else f"its `format` is {table.get('format')!r:.60}"
        )
        raise Problem(f"{path} is no field report", cause=f"{said}; this medley reads {FORMAT!r}", fix=_FIX)
    try:
        json.dumps(table, allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise Problem(f"{path} is no field report", cause=f"{in_words(error)[:200]}", fix=_FIX) from error
    return _built(table, path)


def _built(table: Mapping[str, Any], path: Path) -> FieldReport:
    try:
        found = config.build(table, FieldReport, str(path))
    except Problem as problem:
        raise Problem(problem.what, cause=problem.cause, fix=_FIX) from problem
    names = [host.name for host in found.hosts]
    if len(set(names)) != len(names):
        raise Problem(f"{path} is no field report", cause="two of its hosts have one name", fix=_FIX)
    return found


def contents(found: FieldReport) -> Iterator[str]:
    """What is in it, a line each."""
    kinds = ", ".join(f"{host.name} ({host.kind or 'of no known kind'})" for host in found.hosts)
    yield f"hosts        {kinds}: facts, redacted"
    if found.fabric:
        networks = ", ".join(map(str, found.fabric.get("networks", ())))
        yield f"network      {found.fabric.get('transport')} over {networks}"
    for link in found.links:
        there, back = link.measured.there.mbit, link.measured.back.mbit
        yield f"link         to {link.host}: {there / 1000:.3g} Gbit/s there, {back / 1000:.3g} Gbit/s back"
    for model in found.models:
        yield f"model        {model.name}: {_figures(model)}"
        if model.backends:
            yield f"             {len(model.backends)} lines of kernels and backends of the engine's log"
    if found.collective:
        rates, speeds = found.collective.get("rates", ()), found.collective.get("speeds", ())
        yield f"collective   all-reduce of {len(rates)} sizes, speed of {len(speeds)} devices"
    if found.doctor:
        counts = ", ".join(f"{count} {state}" for state, count in found.doctor.get("counts", {}).items())
        yield f"doctor       {counts}"
    for each in found.skipped:
        yield f"left out     {each.step}: {each.why.splitlines()[0] if each.why else ''}"


def _figures(model: ReportedModel) -> str:
    if model.bench is None:
        return "planned, not measured" if model.plan else "not measured"
    parts = []
    for mode, many in model.bench.rows:
        rate = model.bench.spreads(mode, many).get("output_tokens_per_s")
        told = model.bench.predicted(mode, many)
        beside = f" (predicted {number(told[0].output_tokens_per_s)})" if told else ""
        parts += [f"{number(rate.median)} tok/s at {many}{beside}"] if rate else []
    return ", ".join(parts) or "no run was finished"
