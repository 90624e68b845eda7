"""Read what predictions need to know of a kind of host, from its table in hosts/."""

from functools import cache
from pathlib import Path

from medley import config
from medley.host_schema import HostTable, Speed

_DEFAULT_SPEED = Speed(like="spark")


def is_unified(kind: str) -> bool:
    """Return whether GPU and system of this kind of host share one memory; False without a GPU."""
    table = read_host_table(kind)
    return table is not None and table.device != "cpu" and table.memory.unified


def read_speed_table(kind: str) -> Speed:
    """Return the [speed] table of this kind of host, by which predictions scale; the default without one."""
    table = read_host_table(kind)
    return (table.speed if table else None) or _DEFAULT_SPEED


def read_host_table(kind: str) -> HostTable | None:
    """Return the table of this kind of host, shipped or the user's."""
    return _read_cached_table(config.list_config_folders(), kind)


@cache
def _read_cached_table(_: tuple[Path, ...], kind: str) -> HostTable | None:
    """Return the table; None without one, as for some devices in published benchmarks.

    The folders of tables are only the cache's key, because variables such as MEDLEY_CONFIG change them.
    """
    return config.load_hosts().get(kind)
