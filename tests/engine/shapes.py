"""Compare the bytes that medley derives for a model with what its modules and its headers hold.

python -m tests.engine.shapes   build a tiny model of every registered architecture; write benchmarks/results
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medley.environment import virtualenv
from medley.errors import Problem
from medley.model.checkpoint import Checkpoint, TensorSizes, read_checkpoint
from medley.model.shape import build_weight_fields, compute_shape, sum_checkpoint

GENERATOR = Path(__file__).with_name("tiny_models.py")
TABLE = Path(__file__).parents[2] / "benchmarks" / "results" / "shapes.txt"
ENVIRONMENTS = ("vllm-cpu", "sglang-cpu")
LIMIT_S = 1200
_NEAR = 0.1
_HEADER = """\
Bytes of a tiny model of each architecture that the locked engines register (the CPU locks' vLLM and SGLang),
built and saved by the transformers of both locks. Derived: the layers, routed experts among them, the output
head, drafts, and the rest on the first stage, as medley's planner adds them up. Headers: all tensors of
model.safetensors, less what no engine loads. equal: the sums are the same, and each part is what the model's
own modules hold. Not compared: transformers cannot build it; the engine's class is named instead.
config: a layer's bytes by config.json alone, as medley takes them where a model's headers cannot be had, as a
share of what it holds. Norms, biases and routers are left out there: they weigh more in tiny models."""


@dataclass(frozen=True)
class Row:
    architecture: str
    engines: str
    result: str
    """`equal`, or what differs, or why nothing was compared."""
    layers: int = 0
    derived_bytes: int = 0
    header_bytes: int = 0
    estimate: float | None = None
    """What config.json alone gives for a layer, as a share of what it holds."""

    @property
    def compared(self) -> bool:
        return self.header_bytes > 0

    @property
    def equal(self) -> bool:
        return self.result.startswith("equal")

    def __str__(self) -> str:
        alone = "-" if self.estimate is None else f"{self.estimate:.2f}"
        sums = f"{self.layers:3} {self.derived_bytes:>13,} {self.header_bytes:>13,} {alone:>6}"
        return f"{self.architecture:45} {self.engines:11} {sums if self.compared else '':38}  {self.result}"


def generate(environment: str, out: Path, architectures: Sequence[str] = ()) -> dict[str, dict[str, Any]]:
    """Write the tiny models with this engine environment's transformers; return its index of them."""
    python = virtualenv.prepare_environment(environment).programs / "python"
    said = subprocess.run(
        [python, GENERATOR, out, *architectures],
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert said.returncode == 0, said.stderr[-4000:]
    index: dict[str, dict[str, Any]] = json.loads((out / "index.json").read_text())
    return index


def compared(folder: Path, index: Mapping[str, Mapping[str, Any]]) -> Iterator[Row]:
    for name, entry in index.items():
        engine = str(entry.get("engine", ""))
        if "parts" in entry:
            yield compare(folder / name, name, engine, entry["parts"])
        else:
            reason = f"not compared: {entry['error']}"
            yield Row(name, engine, f"{reason}; {entry['source']}" if entry.get("source") else reason)


def compare(folder: Path, name: str, engine: str, parts: Mapping[str, Any]) -> Row:
    """Weights first; what keeps medley from planning such a model is said beside."""
    found = read_checkpoint(folder)
    header_bytes = sum(tensor.size_bytes for tensor in found.tensors.values()) - parts["unused"]
    try:
        ours, held = build_weight_fields(found), sum_checkpoint(found)[0]
    except Problem as problem:
        return Row(name, engine, f"refused: {_said(problem, folder)}", header_bytes=header_bytes)
    derived = sum(part.size_bytes for part in (held.layers, held.first, held.head, held.draft))
    wrong = dict(_differences(ours, held, parts)) | ({"sum": "differs"} if derived != header_bytes else {})
    result = "differ: " + "; ".join(f"{part} {value}" for part, value in wrong.items()) if wrong else "equal"
    try:
        compute_shape(found)
    except Problem as problem:
        result += f"; no plan: {_said(problem, folder)}"
    alone = _estimate(found, ours["layer_bytes"])
    return Row(name, engine, result, len(held.layer_numbers), derived, header_bytes, alone)


def _estimate(found: Checkpoint, layer_bytes: int) -> float | None:
    try:
        alone = compute_shape(Checkpoint(found.where, found.config, {}, index={}))
    except Problem:
        return None
    return alone.layer_bytes / layer_bytes


def _said(problem: Problem, folder: Path) -> str:
    return f"{problem.what} {problem.cause}".removeprefix(f"{folder}: ")


def _differences(
    ours: Mapping[str, Any], held: TensorSizes, parts: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """What medley's shape says of the parts of a model, beside what the modules hold."""
    layers, experts = parts["layers"], parts["experts"]
    count = ours.get("experts", 0)
    expected = {
        "layers": (len(held.layer_numbers), len(layers)),
        "layers' bytes": (held.layers.size_bytes, sum(layers)),
        "layer's bytes": (ours["layer_bytes"], sum(layers) // max(1, len(layers))),
        "experts' bytes": (held.layers.expert_bytes, sum(experts)),
        "expert's bytes": (ours.get("expert_bytes", 0), sum(experts) // max(1, count * len(layers))),
        "has experts": (count > 0, sum(experts) > 0),
        "head": (ours["head_bytes"], parts["head"]),
        "first": (ours["embedding_bytes"], parts["total"] - sum(layers) - parts["head"] - parts["unused"]),
        "draft": (ours["draft_bytes"], 0),
        "unused": (held.unused.size_bytes, parts["unused"]),
    }
    yield from ((part, f"{got} of {due}") for part, (got, due) in expected.items() if got != due)


def table(rows: Sequence[Row]) -> str:
    """Counts first, then a line for each architecture of either engine."""
    equal = sum(row.equal for row in rows)
    built = sum(row.compared for row in rows)
    count = (
        f"{len(rows)} registered, {built} built and compared, {equal} equal, {len(rows) - built} not compared"
    )
    near = sum(row.estimate is not None and abs(row.estimate - 1) <= _NEAR for row in rows)
    count += f"; by config.json alone {near} within {_NEAR:.0%}"
    sums = f"{'  n':3} {'derived':>13} {'headers':>13} {'config':>6}"
    columns = f"{'architecture':45} {'engines':11} {sums}  result"
    lines = ["$ .venv/bin/python -m tests.engine.shapes", _HEADER, "", count, "", columns, *map(str, rows)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def merged(found: Sequence[Row]) -> list[Row]:
    """One row for an architecture that both engines register; where one environment builds it, that row."""
    rows: dict[str, Row] = {}
    for row in found:
        other = rows.get(row.architecture)
        kept = row if other is None or (row.compared and not other.compared) else other
        both = kept.engines if other is None else f"{other.engines} {row.engines}"
        rows[row.architecture] = Row(**(vars(kept) | {"engines": both}))
    return [rows[name] for name in sorted(rows)]


def everything(out: Path) -> list[Row]:
    found: list[Row] = []
    for name in ENVIRONMENTS:
        folder = out / name
        index = generate(name, folder)
        found += compared(folder, index)
    return merged(found)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        rows = everything(Path(folder))
    TABLE.write_text(table(rows))
    print(next(line for line in table(rows).splitlines() if " built and compared" in line))


if __name__ == "__main__":
    main()
