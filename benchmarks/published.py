"""A published measurement as the prediction's inputs: hardware, model and load, read from its words."""

import csv
import re
from dataclasses import dataclass
from pathlib import Path

from benchmarks import models
from benchmarks.hardware import layout
from medley import config
from medley.planner import Layout, Load
from medley.schema import Shape

DECODE, PREFILL, TTFT, OTHER = "decode", "prefill", "ttft", "other"

_NATIVE_ENGINES = r"llama\.?cpp|ggml|ollama|t(ensor)?rt|ds4|exllama|mlc"
_SPECULATIVE = r"mtp|nextn|dflash|dspark|eagle|medusa|specul|draft|ngram|lookahead"


@dataclass(frozen=True)
class Case:
    """A row with what the prediction needs of it."""

    row: dict[str, str]
    what: str
    """DECODE, PREFILL, TTFT or OTHER."""
    value: float
    shape: Shape
    layout: Layout
    load: Load
    output_tokens: int | None
    """Where the prompts' time is in the figure: so many were asked for."""
    native: bool
    """An engine without Python between its steps."""
    chunk_tokens: int
    """Of a prompt in one pass: as the source says, else the engine's default."""
    unknown: tuple[str, ...]
    """What the row does not say and was assumed: it is printed, and not scored."""

    @property
    def scored(self) -> bool:
        return not self.unknown

    @property
    def kind(self) -> str:
        return "+".join(sorted({device.kind for stage in self.layout.stages for device in stage.devices}))

    @property
    def site(self) -> str:
        """Whose measurement it is: pages of one site tell of the same runs."""
        return re.split(r"[ /(]", self.row["source"])[0]

    @property
    def name(self) -> str:
        row = self.row
        return (
            f"{row['model'][:26]} {row['quant'][:8]} {row['engine'][:16]} tp{row['tp']} pp{row['pp']} "
            f"c{row['concurrency'][:4]} {row['metric']}"
        )


@dataclass(frozen=True)
class Left:
    """A row that is no measurement of a model alone, and why it is left out."""

    row: dict[str, str]
    because: str


def read(path: Path) -> list[Case | Left]:
    with path.open(newline="") as file:
        return [_read(row) for row in csv.DictReader(file)]


def _read(raw: dict[str, str | None]) -> Case | Left:
    row = {key: (value or "").strip() for key, value in raw.items() if key}
    because = _left_out(row)
    return Left(row, because) if because else _case(row)


def _left_out(row: dict[str, str]) -> str | None:
    words = " ".join(row[column] for column in ("engine", "model", "quant", "metric")).lower()
    if re.search(_SPECULATIVE, words):
        return "speculative decoding: its speed depends on how many guesses were right"
    if _what(row["metric"]) == OTHER:
        return "a wire's speed, not a model's"
    if _number(row["value"]) is None:
        return "no value"
    return None


def _what(metric: str) -> str:
    name = metric.lower()
    if "ttft" in name:
        return TTFT
    if re.search(r"bw|lat|busbw", name) and not re.search(r"decode|prefill", name):
        return OTHER
    if re.search(r"prefill|prompt|^pp\d", name):
        return PREFILL
    if re.search(r"decode|output|tpot|itl|gen|tok|throughput|^tg\d", name):
        return DECODE
    return OTHER


def _case(row: dict[str, str]) -> Case:
    unknown: list[str] = []
    shape = _shape(row, unknown)
    concurrency = _number(row["concurrency"])
    what = _what(row["metric"])
    native = re.search(_NATIVE_ENGINES, row["engine"].lower()) is not None
    if native and what == PREFILL:
        unknown.append("kernels of another engine")
    if concurrency is None and what != PREFILL:
        unknown.append("concurrency")
    laid = layout(row, shape.layers)
    if any(device.kind in {"?", "cpu"} for stage in laid.stages for device in stage.devices):
        unknown.append("hardware")  # nothing is fitted to a CPU: field reports bring rows of them
    if "not said" in row["link"]:
        unknown.append("transport")
    prompt, output, context, cached = tokens(row)
    streams = max(1, int(concurrency or 16))
    included = re.search(r"output|throughput", row["metric"].lower()) is not None
    return Case(
        row=row,
        what=what,
        value=float(row["value"]),
        shape=shape,
        layout=laid,
        load=Load(streams, prompt, context, cached),
        output_tokens=output if included else None,
        native=native,
        chunk_tokens=_chunk_tokens(row, laid, native=native),
        unknown=tuple(unknown),
    )


def _chunk_tokens(row: dict[str, str], laid: Layout, *, native: bool) -> int:
    """Of vLLM's defaults: 8192 on devices of 70 GiB or more, else 2048 (vllm/engine/arg_utils.py of 0.32)."""
    said = re.search(r"(\d+) batched tokens", row["source"])
    if said:
        return int(said[1])
    least = min(device.memory_bytes for stage in laid.stages for device in stage.devices)
    return 8192 if least >= 70 << 30 and not native else 2048  # llama.cpp's pages say -ub 2048


def _shape(row: dict[str, str], unknown: list[str]) -> Shape:
    """As the row says: its model, how its weights and its cache are stored, and what unpacks them."""
    found = _model(row, unknown)
    if "fp8 kv" in row["source"].lower():
        found = found.replace(kv_bits=8)
    if "marlin" in row["engine"].lower() and found.weights != "bf16":
        found = found.replace(weights="awq")
    return found


def _model(row: dict[str, str], unknown: list[str]) -> Shape:
    """A row that gives a table's name (models/*.toml) and no parameters has that table's shape."""
    table = None if row["params_total_b"] else config.load_models().get(row["model"])
    if table is not None and table.shape is not None:
        return table.shape
    total, active = _parameters(row, unknown)
    stored = models.bits(row["quant"], row["engine"])
    if stored is None:
        unknown.append("quantisation")
        stored = models.Bits(8, 8, 16, "fp8")
    return models.shape(row["model"], total, active, stored)


def _parameters(row: dict[str, str], unknown: list[str]) -> tuple[float, float]:
    named = re.search(r"(\d+(?:\.\d+)?)b\b", row["model"].lower())
    total = _number(row["params_total_b"]) or (float(named[1]) if named else None)
    active_named = re.search(r"-a(\d+(?:\.\d+)?)b", row["model"].lower())
    active = _number(row["params_active_b"]) or (float(active_named[1]) if active_named else None)
    build = models.known(row["model"])
    if active is None and build is not None:
        active = total  # or worked out of its build, where it has experts
    if total is None or active is None:
        unknown.append("parameters")
    total = total or (10 * active if active else 8.0)
    return total, min(active or total / 10, total)


def _number(words: str) -> float | None:
    try:
        return float(words)
    except ValueError:
        return None


def _size(words: str) -> int:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(k?)", words.lower())
    return int(float(found[1]) * (1024 if found[2] else 1)) if found else 0


def tokens(row: dict[str, str]) -> tuple[int, int, int, int]:
    """(prompt, output, context while decoding, cached before the prompt) as metric and source say them."""
    metric, said = row["metric"].lower(), f"{row['metric']} {row['source']}".lower()
    depth = _found(metric, r"@\s*d?(\d+k?)") or 0
    bare = _found(metric, r"(?:decode|prefill)\w*\((\d+k?)\)") or 0
    prompt = _found(metric, r"(?:pp|ctx)(\d+k?)") or bare
    # llama-bench measures generation (tg) from an empty context on.
    alone = "llama.cpp" in row["engine"].lower() and re.search(r"tg\d+", metric) is not None
    prompt = prompt or (1 if alone else _found(said, r"\b(?:isl/osl|isl|in|pp|input)[\s=]*(\d+k?)\b") or 512)
    output = _found(said, r"\b(?:isl/osl\s*\d+/|osl|out|tg|output)[\s=]*(\d+k?)\b") or 128
    return prompt, output, depth + prompt + output // 2, depth


def _found(text: str, pattern: str) -> int | None:
    match = re.search(pattern, text)
    return _size(match[1]) if match else None
