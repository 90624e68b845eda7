"""Estimates from noisy samples: the interval of a mean ratio, and the slope of what may grow."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

_Z = 1.959964
"""The standard normal's quantile at 97.5 %."""
_EXACT = (math.tan(0.475 * math.pi), math.sqrt(2 * 0.95**2 / (1 - 0.95**2)))


@dataclass(frozen=True)
class Interval:
    """A mean ratio, with the 95 % confidence interval of it."""

    middle: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """As a part of the middle, to the side that is wider."""
        return max(self.high - self.middle, self.middle - self.low) / self.middle

    def __str__(self) -> str:
        return f"{self.middle:.3f} ({self.low:.3f} to {self.high:.3f})"


def student_t(freedom: int) -> float:
    """Student's t at 97.5 %: exact for 1 and 2 degrees of freedom, else by an expansion.

    The source is Abramowitz and Stegun, 26.7.5. It is 0.4 % low with 3 degrees of freedom, and 0.1 % with 4.
    """
    if freedom < 1:
        raise ValueError(freedom)
    if freedom <= len(_EXACT):
        return _EXACT[freedom - 1]
    z, n = _Z, freedom
    return (
        z
        + (z**3 + z) / (4 * n)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
        + (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / (92160 * n**4)
    )


def mean_ratio(ratios: Sequence[float]) -> Interval:
    """The geometric mean of at least two ratios; the interval is that of the mean of their logarithms."""
    logs = [math.log(each) for each in ratios]
    middle, error = statistics.mean(logs), statistics.stdev(logs) / math.sqrt(len(logs))
    reach = student_t(len(logs) - 1) * error
    return Interval(math.exp(middle), math.exp(middle - reach), math.exp(middle + reach))


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The median of the slopes between all pairs of points (Theil and Sen), in y per x.

    A few wild samples do not move it.
    """
    return statistics.median(
        (later - earlier) / (after - before)
        for number, (before, earlier) in enumerate(points)
        for after, later in points[number + 1 :]
        if after != before
    )
