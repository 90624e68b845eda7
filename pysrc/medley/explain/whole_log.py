"""Read facts that the log may show only below the line of a failure."""

from collections.abc import Mapping

_FIGURES = ("host_gpu", "pulled_image")
WHOLE_LOG_GROUPS = frozenset(_FIGURES)
"""Groups that are filled in when the whole log is read."""


def read_whole_log(figures: Mapping[str, str]) -> dict[str, str | None]:
    """Return the groups of WHOLE_LOG_GROUPS, each None if the log does not show it."""
    return {name: figures.get(name) for name in _FIGURES}
