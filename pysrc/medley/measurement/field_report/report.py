"""Define a field report: the results of one run on a user's hosts, as one JSON file."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta

from medley.measurement.bench.record import Record
from medley.measurement.bench.report import format_number
from medley.measurement.link.result import LinkMeasurement
from medley.schema import (
    DEFAULT_ENGINE,
    EngineName,
    Shape,
)
from medley.values import FileTable

FORMAT = "medley field report 1"

HostName = Annotated[str, Meta(pattern=r"^host-[1-9]\d?\Z")]
"""Host names become file names, so this pattern keeps paths out."""
MODEL_NAME = r"^\w[\w.-]{0,95}(/\w[\w.-]{0,95})?\Z"
ModelName = Annotated[str, Meta(pattern=MODEL_NAME)]
Word = Annotated[str, Meta(pattern=r"^[\w][\w.+-]{0,63}\Z")]
Count = Annotated[int, Meta(ge=1, le=4096)]


class ReportedHost(FileTable):
    """A host with its kind, if known, and its facts."""

    name: HostName
    kind: Word | None
    transcript: str
    """The output of `medley facts --transcript`, with the names of this report."""


class Wishes(FileTable):
    """The network settings of cluster.toml."""

    link: Mapping[HostName, str] = {}
    exclude: tuple[str, ...] = ()


class PlannedStage(FileTable):
    """A pipeline stage: its devices by host and index, and the number of its layers."""

    devices: Annotated[tuple[tuple[HostName, Annotated[int, Meta(ge=0, le=64)]], ...], Meta(min_length=1)]
    layers: Count


class ReportedLayout(FileTable):
    """A layout in words and by stage."""

    layout: str
    hosts: Annotated[tuple[HostName, ...], Meta(min_length=1)]
    stages: Annotated[tuple[PlannedStage, ...], Meta(min_length=1)]
    """The stages of one replica."""
    replicas: Count
    rdma: bool | None
    """Whether RDMA connects the hosts; None on one host."""
    mbit: int | None


class PlanRequest(FileTable):
    """The options of the plan."""

    engine: EngineName = DEFAULT_ENGINE
    hosts: Count | None = None
    """The number of hosts; None lets the planner choose."""
    spread: bool = False
    """Whether one replica must use all these hosts."""


class ReportedPlan(FileTable):
    """A plan from the transcripts of the report alone, so that anyone can repeat it."""

    asked: PlanRequest
    shape: Shape
    made: ReportedLayout
    tokens_per_s: float
    low: float
    high: float
    ttft_s: float
    why: tuple[str, ...]
    typed: tuple[str, ...]
    """The commands to type, by host."""


class Backend(FileTable):
    """A kernel or backend that an engine runs, with the line of its log."""

    what: str
    found: str
    line: Annotated[int, Meta(ge=1)]
    """The line's number in the log, from 1."""
    text: str


class ReportedModel(FileTable):
    """A model with its plan, its layout, its benchmark and its backends, as far as they are known."""

    name: ModelName
    by_report: bool
    """Whether the report started it; otherwise a server ran already."""
    plan: ReportedPlan | None = None
    ran: ReportedLayout | None = None
    bench: Record | None = None
    backends: tuple[Backend, ...] = ()


class ReportedLink(FileTable):
    """The measured link to another host, and what is wrong with it."""

    host: HostName
    measured: LinkMeasurement
    problems: tuple[Mapping[str, str], ...] = ()


class Skipped(FileTable):
    """A step that was left out or failed, with the reason."""

    step: str
    why: str


class FieldReport(FileTable):
    """The whole file; its fields are the keys of the JSON object."""

    format: Literal["medley field report 1"]
    whole: bool
    """False if the user or an error stopped the run."""
    when: Annotated[str, Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00\Z")]
    medley: Mapping[Literal["version", "source"], Word]
    hosts: Annotated[tuple[ReportedHost, ...], Meta(min_length=1, max_length=64)]
    wishes: Wishes = Wishes()
    fabric: Mapping[str, Any] | None = None
    """The output of `medley link show --json`."""
    links: tuple[ReportedLink, ...] = ()
    models: tuple[ReportedModel, ...] = ()
    collective: Mapping[str, Any] | None = None
    """The output of `medley collective-test --json`."""
    doctor: Mapping[str, Any] | None = None
    """The output of `medley doctor --json`."""
    skipped: tuple[Skipped, ...] = ()


def list_contents(report: FieldReport) -> Iterator[str]:
    """Yield a line for each part of the report, which the user reads before sending it."""
    for host in report.hosts:
        yield f"{host.name}: facts, redacted; kind {host.kind or 'unknown'}"
    for link in report.links:
        there_gbit, back_gbit = link.measured.there.mbit / 1000, link.measured.back.mbit / 1000
        yield f"link to {link.host}: {there_gbit:.3g} Gbit/s there, {back_gbit:.3g} Gbit/s back"
    for model in report.models:
        layout = model.ran.layout if model.ran else "not measured"
        yield f"{model.name}: {', '.join((layout, *_list_rates(model.bench)))}"
        yield f"{model.name}: {len(model.backends)} lines of the engine's log about its kernels"
    if report.collective:
        rates, speeds = report.collective.get("rates", ()), report.collective.get("speeds", ())
        yield f"collective-test: an all-reduce of {len(rates)} sizes, speed of {len(speeds)} devices"
    if report.doctor:
        counts = report.doctor.get("counts", {})
        yield f"doctor: {', '.join(f'{count} {state}' for state, count in counts.items())}"
    yield from (f"left out: {step.step}: {step.why.partition(chr(10))[0]}" for step in report.skipped)


def _list_rates(bench: Record | None) -> Iterator[str]:
    """Yield the rate for each number of concurrent streams, and the predicted rate if there is one."""
    for mode, concurrency in bench.rows if bench else ():
        if bench and (rate := bench.compute_spreads(mode, concurrency).get("output_tokens_per_s")):
            predicted = bench.find_prediction(mode, concurrency)
            note = f" (predicted {format_number(predicted[0].output_tokens_per_s)})" if predicted else ""
            yield f"{format_number(rate.median)} tok/s at {concurrency}{note}"
