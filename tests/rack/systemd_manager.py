"""A user manager of systemd on a host of the rack, as a login on a host that runs systemd has it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import which

import pytest

from tests.rack.host import Host
from tests.waiting import wait_for

PROGRAM = Path("/lib/systemd/systemd")
_CGROUP = Path("/sys/fs/cgroup")
# It takes the group that it finds itself in for its own, and wants to see cgroup v2 alone.
_BEGIN = """\
set -e
mkdir -p /run/systemd/system "$XDG_RUNTIME_DIR"
echo $$ >"$1/cgroup.procs"
exec unshare --cgroup --mount sh -c '
  umount --lazy /sys/fs/cgroup
  mount -t cgroup2 none /sys/fs/cgroup
  exec env SYSTEMD_LOG_TARGET=console "$1" --user' sh "$2"
"""


@contextmanager
def manager(host: Host) -> Iterator[None]:
    """While the body runs, `systemctl --user` has an answer there."""
    if which("systemctl") is None or not PROGRAM.exists():
        pytest.skip("there is no systemd: apt-get install systemd")
    top = _CGROUP / "unified" if (_CGROUP / "unified").is_dir() else _CGROUP
    if not (top / "cgroup.procs").exists():
        pytest.skip(f"{top} is not of cgroup v2")
    group = top / f"medley-manager-{os.getpid()}-{host.name}"
    group.mkdir()
    said: list[str] = []
    process = host.start(["sh", "-c", _BEGIN, "sh", str(group), str(PROGRAM)], said.append)
    try:
        wait_for(
            f"the user manager of {host.name} runs",
            lambda: host.run(["systemctl", "--user", "is-system-running"]).status == 0,
            60,
            state=lambda: said,
        )
        yield
    finally:
        process.stop(10)
        wait_for(f"{group} is removed", lambda: _removed(group))


def _removed(group: Path) -> bool:
    """With all groups below it, once their processes are gone."""
    for folder, _, _ in os.walk(group, topdown=False):
        with suppress(OSError):
            Path(folder).rmdir()
    return not group.exists()
