"""A real control group with a limit of memory, of version 1 or 2, whichever this machine has."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import wait_for

ROOT = Path("/sys/fs/cgroup")


@contextlib.contextmanager
def limited(limit_bytes: int) -> Iterator[Path]:
    """Make one; a process joins by writing 0 to its file `cgroup.procs`."""
    version_1 = ROOT / "memory"
    tree = version_1 if version_1.is_dir() else ROOT
    folder = tree / f"medley-test-{os.getpid()}"
    try:
        if tree != version_1:
            (tree / "cgroup.subtree_control").write_text("+memory")
        folder.mkdir()
        limit = "memory.limit_in_bytes" if tree == version_1 else "memory.max"
        (folder / limit).write_text(str(limit_bytes))
    except OSError as error:
        pytest.skip(f"control groups need root: {error}")
    try:
        yield folder
    finally:
        _remove(folder)


def _remove(folder: Path) -> None:
    def removed() -> bool:
        with contextlib.suppress(OSError):  # a process that has ended takes a moment to leave
            folder.rmdir()
        return not folder.exists()

    wait_for(f"{folder} is removed", removed, state=(folder / "cgroup.procs").read_text)


def killed(group: Path) -> int:
    """How many processes of it the kernel has killed for lack of memory."""
    file = next(each for name in ("memory.events", "memory.oom_control") if (each := group / name).exists())
    return int(
        next(line.split()[1] for line in file.read_text().splitlines() if line.startswith("oom_kill "))
    )
