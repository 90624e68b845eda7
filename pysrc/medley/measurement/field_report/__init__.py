"""Field report: what one run on somebody's hosts found, as one JSON file."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from medley.measurement.bench.record import Record
from medley.measurement.bench.report import number
from medley.measurement.link import LinkMeasurement
from medley.schema import EngineName, Shape, StrictTable

FORMAT = "medley field report 1"

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
    hosts: Annotated[tuple[HostName, ...], Field(min_length=1)]
    stages: Annotated[tuple[PlannedStage, ...], Field(min_length=1)]
    """Of one replica."""
    replicas: Count
    rdma: bool | None
    """How hosts are joined; None on one host."""
    mbit: int | None


class PlanRequest(StrictTable):
    engine: EngineName = "vllm"
    hosts: Count | None = None
    """How many; None: as many as are best."""
    spread: bool = False
    """Whether one replica has to lie over all of them."""


class ReportedPlan(StrictTable):
    """A plan made of nothing but the transcripts of a report, so that it can be made again."""

    asked: PlanRequest
    shape: Shape
    made: ReportedLayout
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


class Skipped(StrictTable):
    step: str
    why: str


class FieldReport(StrictTable):
    format: Literal["medley field report 1"]
    whole: bool
    """False where it was stopped, or something ended it."""
    when: Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00$")]
    medley: Mapping[Literal["version", "source"], Word]
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


def contents(found: FieldReport) -> Iterator[str]:
    for host in found.hosts:
        yield f"{host.name}: facts, redacted; kind {host.kind or 'unknown'}"
    for link in found.links:
        there, back = link.measured.there.mbit / 1000, link.measured.back.mbit / 1000
        yield f"link to {link.host}: {there:.3g} Gbit/s there, {back:.3g} Gbit/s back"
    for model in found.models:
        layout = model.ran.layout if model.ran else "not measured"
        yield f"{model.name}: {', '.join((layout, *_rates(model.bench)))}"
        yield f"{model.name}: {len(model.backends)} lines of the engine's log about its kernels"
    if found.collective:
        rates, speeds = found.collective.get("rates", ()), found.collective.get("speeds", ())
        yield f"collective-test: an all-reduce of {len(rates)} sizes, speed of {len(speeds)} devices"
    if found.doctor:
        counts = found.doctor.get("counts", {})
        yield f"doctor: {', '.join(f'{count} {state}' for state, count in counts.items())}"
    yield from (f"left out: {each.step}: {each.why.partition(chr(10))[0]}" for each in found.skipped)


def _rates(bench: Record | None) -> Iterator[str]:
    for mode, many in bench.rows if bench else ():
        if bench and (rate := bench.spreads(mode, many).get("output_tokens_per_s")):
            told = bench.predicted(mode, many)
            beside = f" (predicted {number(told[0].output_tokens_per_s)})" if told else ""
            yield f"{number(rate.median)} tok/s at {many}{beside}"
