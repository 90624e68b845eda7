"""A host's control groups: how much processor it gets, and whether its time stands still.

cgroup v1 has a tree for each controller, v2 one for all; both name the file of processes alike.
"""

import contextlib
import errno
import os
import signal
from collections.abc import Container
from functools import partial
from pathlib import Path

from medley.errors import Problem
from tests.waiting import becomes_true, wait_for

PREFIX = "medley-rack"
PERIOD_US = 100_000
ROOT = Path("/sys/fs/cgroup")
TREES = ("cpu", "memory", "freezer")


def version_2(root: Path = ROOT) -> bool:
    return (root / "cgroup.controllers").exists()


def folders(keeper: int, host: str, root: Path = ROOT) -> tuple[Path, ...]:
    """Where this host's groups are, or would be."""
    name = f"{PREFIX}.{keeper}.{host}"
    if version_2(root):
        return (root / name,)
    return tuple(root / tree / name for tree in TREES if (root / tree).is_dir())


def make(keeper: int, host: str, first_process: int, cpus: float | None) -> None:
    try:
        for folder in folders(keeper, host):
            folder.mkdir()
            (folder / "cgroup.procs").write_text(str(first_process))
        if cpus is not None:
            limit(keeper, host, cpus)
    except OSError as error:
        raise Problem(
            f"{host} gets no control group",
            cause=str(error),
            fix="run as root of the machine, or in a container started with --privileged",
        ) from error


def limit(keeper: int, host: str, cpus: float | None) -> None:
    """Give it so many processors, or all it can get."""
    quota = None if cpus is None else int(cpus * PERIOD_US)
    folder = folders(keeper, host)[0]
    if version_2():
        (ROOT / "cgroup.subtree_control").write_text("+cpu")
        (folder / "cpu.max").write_text(f"{quota or 'max'} {PERIOD_US}")
    else:
        (folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        (folder / "cpu.cfs_quota_us").write_text(str(quota or -1))


def memory(keeper: int, host: str, more_bytes: int | None) -> None:
    """Let it take so much more than it has now, or all there is."""
    folder = next(each for each in folders(keeper, host) if version_2() or each.parent.name == "memory")
    if version_2():
        (ROOT / "cgroup.subtree_control").write_text("+memory")
        used, limit = folder / "memory.current", folder / "memory.max"
    else:
        used, limit = folder / "memory.usage_in_bytes", folder / "memory.limit_in_bytes"
    unlimited = "max" if version_2() else "-1"
    limit.write_text(unlimited if more_bytes is None else str(int(used.read_text()) + more_bytes))


def freeze(keeper: int, host: str, *, frozen: bool, limit_s: float = 20) -> None:
    """Stop the time of every process of a host, or let it go on; returns when it is so.

    Raise a FileNotFoundError for a group that another process removes meanwhile: what writes to an open file
    of it gets ENODEV (Linux 6.18).
    """
    try:
        _freeze(keeper, host, frozen=frozen, limit_s=limit_s)
    except OSError as error:
        if error.errno != errno.ENODEV:
            raise
        raise FileNotFoundError(error.errno, f"the group of {host} is gone") from error


def _freeze(keeper: int, host: str, *, frozen: bool, limit_s: float) -> None:
    folder = folders(keeper, host)[-1]
    if not folder.exists():
        return
    if version_2():
        (folder / "cgroup.freeze").write_text(str(int(frozen)))
        wanted, where = f"frozen {int(frozen)}", folder / "cgroup.events"
    else:
        wanted, where = "FROZEN" if frozen else "THAWED", folder / "freezer.state"
        where.write_text(wanted)
    wait_for(
        f"{host} is {wanted}",
        lambda: wanted in where.read_text().splitlines(),
        limit_s,
        state=where.read_text,
    )


def remove(keeper: int, host: str, limit_s: float = 10) -> None:
    """End what still runs in a host's groups, then the groups; the next start removes those that stay."""
    with contextlib.suppress(FileNotFoundError):
        freeze(keeper, host, frozen=False)
    for folder in folders(keeper, host):
        becomes_true(partial(_removed, folder), limit_s)


def _removed(folder: Path) -> bool:
    _end(folder)
    with contextlib.suppress(OSError):  # a process that has been killed takes a moment to leave
        folder.rmdir()
    return not folder.exists()


def _end(folder: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        for pid in (folder / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


def left(alive: Container[int]) -> list[tuple[int, str]]:
    """The groups, as (keeper, host), of keepers that are no longer alive."""
    trees = [ROOT] if version_2() else [ROOT / tree for tree in TREES]
    names = {folder.name for tree in trees for folder in tree.glob(f"{PREFIX}.*")}
    owners = [(int(keeper), host) for _, keeper, host in (name.split(".") for name in sorted(names))]
    return [(keeper, host) for keeper, host in owners if keeper not in alive]
