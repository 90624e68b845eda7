"""Read what predictions need to know of a kind of host, from its table in hosts/."""

from functools import cache
from pathlib import Path

from medley import config
from medley.host_schema import HostTable, Speed

_DEFAULT_SPEED = Speed(like="spark")


def is_unified(kind: str) -> bool:
    """Whether GPU and system of this kind of host share one memory; False without a GPU."""
    table = read_host_table(kind)
    return table is not None and table.device != "cpu" and table.memory.unified


def read_speed(kind: str) -> Speed:
    """Return how fast this kind of host is predicted; a CPU's, and another maker's, has no formats."""
    table = read_host_table(kind)
    return (table.speed if table else None) or _DEFAULT_SPEED


def read_host_table(kind: str) -> HostTable | None:
    """Return the table of this kind of host, shipped or the user's."""
    return _host_table(config.folders(), kind)


@cache
def _host_table(_: tuple[Path, ...], kind: str) -> HostTable | None:
    """Return the table; published rows of benchmarks have devices without one."""
    return config.hosts().get(kind)
