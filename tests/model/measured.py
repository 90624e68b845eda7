"""Models whose bytes others counted, part by part, and not computed from config.json as the published are."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Measured:
    total_bytes: int
    """Of all weights, drafts included."""
    parameters_b: float
    """Without drafts."""
    active_b: float


# What each counts, and who counted: the model's table. Active ones here leave out what is only looked up.
MEASURED: Mapping[str, Measured] = {
    "glm-5.3-flash": Measured(328_326_771_576, 313.9, 18),
    "glm-5.3-flash-nvfp4": Measured(197_822_818_044, 313.9, 18),
    "glm-5.3": Measured(755_617_140_416, 743, 39),
    "glm-5.3-nvfp4": Measured(464_115_789_896, 743, 39),
    "deepseek-v4-flash": Measured(166_878_536_440, 284, 13),
    "deepseek-v4.1-flash": Measured(510_286_023_000, 748.6, 16),
    "qwen3.8-flash-next-fp8": Measured(185_502_232_570, 177.4, 7.3),
    "qwen3.8-flash-next-nvfp4": Measured(132_639_846_394, 177.4, 7.3),
    "kimi-k3": Measured(1_560_900_000_000, 2780, 104.2),
}
