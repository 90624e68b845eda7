"""What makers state of devices: memory bandwidth and dense bfloat16 operations, by GPU or kind of host.

The bandwidths of the Jetsons, GB10, RTX PRO 6000, 5090, 5070 Ti and 5060 Ti were read in the sheets named.
The others agree with what public repositories quote of them: NVIDIA's aiconfigurator, Lightning's table,
notes of the RTX Blackwell white papers, lists of cards. Of what is "from memory" no quotation was found.
"""

import re
from dataclasses import dataclass

_RTX = "NVIDIA RTX Blackwell GPU Architecture, bf16 with fp32 accumulation: a 16th of its sparse FP4 AI TOPS,"
_PRO = "NVIDIA RTX PRO Blackwell datasheet: an eighth of its sparse FP4 AI TOPS,"
_ADA = "NVIDIA Ada GPU Architecture, bf16 with fp32 accumulation: a quarter of its dense int8"
_AMPERE = "NVIDIA Ampere GA102 GPU Architecture, bf16 with fp32 accumulation: a quarter of its dense int8"
_AMPERE_PRO = "NVIDIA Ampere GA102 GPU Architecture, bf16 with fp32 accumulation: half of its dense int8"


@dataclass(frozen=True)
class Stated:
    bandwidth_gb_s: float
    bf16_tflops: float
    """Dense, on tensor cores where there are any."""
    source: str
    assumed: bool = False
    """Nobody stated it for this device: a cautious reading of its generation."""


# Words of the name as nvidia-smi prints it; the first that fits counts, so longer ones stand before shorter.
_NAMED: tuple[tuple[str, Stated], ...] = (
    ("GB10", Stated(273, 125, "NVIDIA DGX Spark datasheet: an eighth of 1 PFLOP of sparse FP4")),
    ("Thor", Stated(273, 258, "NVIDIA Jetson Thor datasheet: an eighth of 2070 TFLOPS of sparse FP4")),
    ("Orin Nano", Stated(102.4, 16.7, "NVIDIA Orin Nano Super datasheet: a quarter of 67 sparse TOPS")),
    (
        "Orin NX",
        Stated(
            102.4,
            15,
            "an AGX Orin's share for half its cores at 918 MHz, not 1300 (clock from memory): "
            "the datasheet's 100 TOPS are the accelerators' too",
        ),
    ),
    ("Orin", Stated(204.8, 42.5, "NVIDIA AGX Orin technical brief: a quarter of 170 sparse TOPS")),
    (
        "RTX PRO 6000 Blackwell Server Edition",
        Stated(1597, 480, "NVIDIA datasheet of the Server Edition: four times its 120 TFLOPS of fp32"),
    ),
    ("RTX PRO 6000", Stated(1792, 500, f"{_PRO} 4000")),
    ("RTX PRO 5000", Stated(1344, 258, f"{_PRO} 2064")),
    ("RTX PRO 4500", Stated(896, 211, f"{_PRO} 1687")),
    ("RTX PRO 4000", Stated(672, 147, f"{_PRO} 1178, from memory")),
    ("RTX 6000 Ada", Stated(960, 364, "NVIDIA RTX PRO Blackwell GPU Architecture, Table 4")),
    ("RTX 5090", Stated(1792, 210, f"{_RTX} 3352")),
    ("RTX 5080", Stated(960, 113, f"{_RTX} 1801")),
    ("RTX 5070 Ti", Stated(896, 88, f"{_RTX} 1406")),
    ("RTX 5070", Stated(672, 62, f"{_RTX} 988")),
    ("RTX 5060 Ti", Stated(448, 47, f"{_RTX} 759")),
    ("RTX 5060", Stated(448, 38, f"{_RTX} 614")),
    ("RTX 4090", Stated(1008, 165, _ADA)),
    ("RTX 4080", Stated(717, 97, _ADA)),
    ("RTX 4070 Ti SUPER", Stated(672, 88, _ADA)),
    ("RTX 4070", Stated(504, 58, _ADA)),
    ("RTX 4060 Ti", Stated(288, 44, _ADA)),
    ("RTX 3090", Stated(936, 71, _AMPERE)),
    ("RTX 3080 Ti", Stated(912, 68, _AMPERE)),
    ("RTX 3080", Stated(760, 60, _AMPERE)),
    ("RTX 3060", Stated(360, 25, _AMPERE)),
    ("RTX A6000", Stated(768, 155, _AMPERE_PRO)),
    ("RTX A5000", Stated(768, 111, "NVIDIA RTX A5000 datasheet, from memory")),
    ("A10", Stated(600, 125, "NVIDIA A10 datasheet")),
    ("A40", Stated(696, 150, "NVIDIA A40 datasheet")),
    ("V100", Stated(900, 112, "NVIDIA V100 datasheet (fp16: it has no bf16)")),
    ("T4", Stated(320, 65, "NVIDIA T4 datasheet (fp16: it has no bf16)")),
    ("L40S", Stated(864, 362, "NVIDIA L40S datasheet")),
    ("L4", Stated(300, 121, "NVIDIA L4 datasheet, half of the sparse figure")),
    ("H200", Stated(4800, 989, "NVIDIA H200 datasheet, half of the sparse figure")),
    ("H100 PCIe", Stated(2000, 756, "NVIDIA H100 datasheet (PCIe), half of the sparse figure")),
    ("H100", Stated(3350, 989, "NVIDIA H100 datasheet (SXM), half of the sparse figure")),
    ("GH200", Stated(4000, 989, "NVIDIA GH200 datasheet (HBM3), from memory")),
    ("B200", Stated(7700, 2250, "NVIDIA Blackwell datasheet, half of the sparse figure")),
    ("A100", Stated(1555, 312, "NVIDIA A100 datasheet (40 GB; the one of 80 GB has more)")),
)

_PATTERNS = tuple((re.compile(rf"\b{word}\b", re.IGNORECASE), facts) for word, facts in _NAMED)
_LEAST_AGX_BYTES = 24 << 30

_KIND_NAMES = {"spark": "GB10", "thor": "Thor", "orin": "Orin", "orin-r39": "Orin"}

# The slowest card of each generation that serves a language model, its desktop cards of 8 GB included.
_GENERATIONS: tuple[tuple[float, Stated], ...] = (
    (12.0, Stated(320, 30, "the least of capability 12.0 (an RTX 5050 has 320 GB/s)", assumed=True)),
    (
        9.0,
        Stated(
            2000, 400, "less than any of capability 9.0 and 10.x (an H100 PCIe has 2039 GB/s)", assumed=True
        ),
    ),
    (8.9, Stated(256, 30, "the least of capability 8.9 (an RTX 4060 laptop has 256 GB/s)", assumed=True)),
    (8.0, Stated(192, 15, "the least of capability 8.x (an RTX 3050 laptop has 192 GB/s)", assumed=True)),
    (0.0, Stated(160, 8, "an NVIDIA GPU of which no more is known", assumed=True)),
)
_CPU = Stated(30, 0.5, "two channels of DDR4, half of them reached, and no matrix unit", assumed=True)

# Cards of so much memory have at least so wide a bus: a cautious floor from the cards sold with each size.
_BY_MEMORY = ((70 << 30, 900.0), (40 << 30, 700.0), (22 << 30, 500.0), (14 << 30, 288.0))


def device_facts(
    kind: str, gpu_name: str = "", *, capability: str | None = None, memory_bytes: int | None = None
) -> tuple[float, float]:
    """(GB/s, dense bf16 TFLOPS) of a device; `stated` says where from."""
    found = stated(kind, gpu_name, capability=capability, memory_bytes=memory_bytes)
    return found.bandwidth_gb_s, found.bf16_tflops


def stated(
    kind: str, gpu_name: str = "", *, capability: str | None = None, memory_bytes: int | None = None
) -> Stated:
    """The GPU's own line, else its kind's, else a floor for its generation and memory, marked as assumed."""
    found = _named(gpu_name) or _named(_KIND_NAMES.get(kind, ""))
    if found is None:
        return _CPU if kind == "cpu" else _floor(capability, memory_bytes)
    # Every Jetson Orin calls its GPU the same; an AGX has 32 GB or more, and twice the bandwidth.
    if found is _named("Orin") and memory_bytes is not None and memory_bytes < _LEAST_AGX_BYTES:
        return _named("Orin NX") or found
    return found


def _named(gpu_name: str) -> Stated | None:
    return next((facts for pattern, facts in _PATTERNS if pattern.search(gpu_name)), None)


def _floor(capability: str | None, memory_bytes: int | None) -> Stated:
    level = float(capability) if capability else 0.0
    least = next(facts for since, facts in _GENERATIONS if level >= since)
    width = next((gb_s for size, gb_s in _BY_MEMORY if (memory_bytes or 0) >= size), 0.0)
    if level < 8.0 or width <= least.bandwidth_gb_s:  # noqa: PLR2004  before 8.0 a large card may be old and slow
        return least
    source = (
        f"{least.source}; no card with {(memory_bytes or 0) / (1 << 30):.0f} GiB has under {width:.0f} GB/s"
    )
    return Stated(width, least.bf16_tflops, source, assumed=True)
