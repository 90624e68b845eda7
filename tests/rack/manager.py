"""A user manager of systemd on a host of the rack, as a login on a host that runs systemd has it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import which

import pytest

from tests.rack.host import Host
from tests.rack.patience import within

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
        up = within(20, lambda: host.run(["systemctl", "--user", "is-system-running"]).status == 0)
        assert up, "\n".join(said)
        yield
    finally:
        process.stop(10)
        assert within(10, lambda: _removed(group)), f"{group} stays"


def _removed(group: Path) -> bool:
    """With all groups below it, once their processes are gone."""
    for folder, _, _ in os.walk(group, topdown=False):
        with suppress(OSError):
            Path(folder).rmdir()
    return not group.exists()
