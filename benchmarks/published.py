"""A published measurement as the prediction's inputs: hardware, model and load, read from its words."""

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks import models
from medley.layout.devices import stated
from medley.layout.shapes import Device, Layout, Link, Stage
from medley.predict import Load
from medley.tables import Shape

DECODE, PREFILL, TTFT, OTHER = "decode", "prefill", "ttft", "other"

_GIB = 1 << 30
# Kinds of hosts by words of the column `hw`; memory only decides which Orin it is.
_KINDS = (
    (r"spark|gb10|ascent gx10|ai top atom", "spark"),
    (r"thor", "thor"),
    (r"orin", "orin"),
    (r"rtx|geforce|blackwell", "rtx"),
    (r"cpu|xeon|epyc", "cpu"),
)
# Devices medley does not serve, for rows of comparison: (GB/s, dense bf16 TFLOPS) as their makers state.
_FOREIGN = (
    (r"8060s|strix halo|ai max", (256.0, 59.0)),  # source: AMD Ryzen AI Max+ 395, Radeon 8060S
    (r"m[34] ultra", (819.0, 57.0)),  # source: Apple Mac Studio 2025; twice an M3 Max
    (r"7900 xtx", (960.0, 123.0)),  # source: AMD Radeon RX 7900 XTX
    (r"r9700", (640.0, 96.0)),  # source: AMD Radeon AI PRO R9700
    (r"mi300x", (5300.0, 1307.0)),  # source: AMD Instinct MI300X
    (r"m[12] ultra", (800.0, 27.0)),  # source: Apple Mac Studio 2022, 2023
    (r"m4 max", (546.0, 34.0)),  # source: Apple MacBook Pro 2024
)
_NATIVE_ENGINES = r"llama\.?cpp|ggml|ollama|t(ensor)?rt|ds4|exllama|mlc"
_SPECULATIVE = r"mtp|nextn|dflash|dspark|eagle|medusa|specul|draft|ngram|lookahead"
_TCP_LATENCY_US, _RDMA_LATENCY_US = 30.0, 2.0  # sources: usual of a LAN; perftest ib_write_lat on two Sparks


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
    total, active = _parameters(row, unknown)
    stored = models.bits(row["quant"], row["engine"])
    if stored is None:
        unknown.append("quantisation")
        stored = models.Bits(8, 8, 16, "fp8")
    concurrency = _number(row["concurrency"])
    if concurrency is None:
        unknown.append("concurrency")
    shape = models.shape(row["model"], total, active, stored)
    laid = layout(row, shape.layers)
    if any(device.kind == "?" for stage in laid.stages for device in stage.devices):
        unknown.append("hardware")
    if "not said" in row["link"]:
        unknown.append("transport")
    prompt, output, context, cached = tokens(row)
    streams = max(1, int(concurrency or 16))
    included = re.search(r"output|throughput", row["metric"].lower()) is not None
    return Case(
        row=row,
        what=_what(row["metric"]),
        value=float(row["value"]),
        shape=shape,
        layout=laid,
        load=Load(streams, prompt, context, cached),
        output_tokens=output if included else None,
        native=re.search(_NATIVE_ENGINES, row["engine"].lower()) is not None,
        unknown=tuple(unknown),
    )


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


def layout(row: dict[str, str], layers: int) -> Layout:
    """As the row's tp and pp say, over the hosts it names; what is left of them is further copies."""
    tp, pp = max(1, int(_number(row["tp"]) or 1)), max(1, int(_number(row["pp"]) or 1))
    nodes = max(1, int(_number(row["nodes"]) or 1))
    copies = max(1, nodes // (tp * pp))
    devices = list(_devices(row["hw"], nodes, tp * pp * copies))
    first, *others = [
        _stages(devices[at : at + tp * pp], tp, layers) for at in range(0, tp * pp * copies, tp * pp)
    ]
    return Layout(first, link(row["link"]) if nodes > 1 else None, tuple(others))


def _stages(devices: list[Device], tp: int, layers: int) -> tuple[Stage, ...]:
    groups = [tuple(devices[at : at + tp]) for at in range(0, len(devices), tp)]
    return tuple(Stage(group, cut) for group, cut in zip(groups, _cuts(layers, groups), strict=True))


def _cuts(layers: int, groups: list[tuple[Device, ...]]) -> list[int]:
    """Layers by bandwidth, at least one each."""
    speed = [sum(device.bandwidth_gb_s for device in group) for group in groups]
    edges = [round(layers * sum(speed[: at + 1]) / sum(speed)) for at in range(len(speed))]
    return [max(1, edge - before) for before, edge in zip([0, *edges], edges, strict=False)]


def _devices(hw: str, nodes: int, needed: int) -> Iterator[Device]:
    names = [name.strip() for name in re.split(r"\s\+\s|\s&\s", hw)]
    for index in range(max(needed, nodes)):
        per_host = -(-needed // nodes)
        host = index // per_host
        name = names[min(host, len(names) - 1)] if len(names) > 1 else names[0]
        yield _device(f"host-{host + 1}", index % per_host, re.sub(r"^\d+\s*[x\u00d7]\s*", "", name))


def _device(host: str, index: int, name: str) -> Device:
    kind = next((kind for pattern, kind in _KINDS if re.search(pattern, name.lower())), "other")
    memory = re.search(r"(\d+)\s*gb", name.lower())
    memory_bytes = int(memory[1]) * _GIB if memory else 64 * _GIB
    foreign = next((facts for pattern, facts in _FOREIGN if re.search(pattern, name.lower())), None)
    facts = stated(kind, name, memory_bytes=memory_bytes)
    if not foreign and facts.assumed and kind != "cpu":
        kind = "?"
    if kind == "other" and not foreign:
        kind = "cuda"  # a GPU of NVIDIA's that medley serves without a kind of its own
    bandwidth, tflops = foreign or (facts.bandwidth_gb_s, facts.bf16_tflops)
    return Device(host, index, kind, memory_bytes, bandwidth, tflops, name)


def link(words: str) -> Link:
    """The wire between hosts; ten gigabits of TCP where nothing is said."""
    said = words.lower()
    speed = re.search(r"(\d+(?:\.\d+)?)\s*g", said)
    fast = speed is not None and float(speed[1]) >= 100  # noqa: PLR2004  nobody buys that for sockets
    rdma = (
        fast or re.search(r"roce|rdma|infiniband|cx-?[67]|connectx", said) is not None
    ) and "tcp" not in said
    mbit = int(float(speed[1]) * 1000) if speed else (200_000 if rdma else 10_000)
    return Link(mbit, _RDMA_LATENCY_US if rdma else _TCP_LATENCY_US, rdma)
