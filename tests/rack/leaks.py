"""What a rack could leave behind, and a program that makes many and says what they left.

    unshare --mount --net python -m tests.rack.leaks 20

In a network and mounts of its own it sees what itself does, and nothing of the machine's other business.
"""

import json
import subprocess
import sys
from pathlib import Path

from tests.rack import cgroup
from tests.rack.init import mount
from tests.rack.rack import TREE, Rack, up
from tests.rack.spec import Link, Spec

SPEC = Spec(2, (Link(), Link.cable("fast", "host1", "host2", mbit=400)), cpus={"host2": 0.5}, name="traces")
KINDS = ("net", "mnt", "uts", "ipc", "pid")


def main() -> None:
    # In the machine's own /tmp others make and remove files; the tree is needed, wherever it lies.
    for folder in ("/run", "/dev/shm", *(() if TREE.is_relative_to("/tmp") else ("/tmp",))):
        mount("empty", folder, kind="tmpfs")
    before = traces()
    made: set[str] = set()
    for _ in range(int(sys.argv[1])):
        with up(SPEC) as rack:
            made |= namespaces_of(rack)
            inside = traces()
    missed = sorted(name for name in before if before[name] != inside[name])
    after = traces()
    left = {name: sorted(after[name] ^ before[name]) for name in before}
    left["namespaces"] = sorted(made & namespaces())
    print(json.dumps({"left": left, "made": len(made), "while it was up": missed}))


def traces() -> dict[str, set[str]]:
    links = subprocess.run(["ip", "-br", "link"], capture_output=True, text=True, check=True).stdout
    return {
        "links": {line.split()[0] for line in links.splitlines()},
        "mounts": set(Path("/proc/self/mountinfo").read_text().splitlines()),
        "named namespaces": {entry.name for entry in Path("/run").glob("netns/*")},
        "files": {str(entry) for top in ("/run", "/dev/shm") for entry in Path(top).rglob("*")}
        | {str(entry) for word in ("rack", "medley", "host") for entry in Path("/tmp").glob(f"*{word}*")},
        "children": children(),
        "groups": {str(folder) for folder in cgroup.ROOT.glob(f"*/{cgroup.PREFIX}.*") if own(folder)},
    }


def own(group: Path) -> bool:
    """Whether a group is of a rack of this program; those of others come and go."""
    try:
        stat = (Path("/proc") / group.name.split(".")[1] / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return stat.rpartition(")")[2].split()[1] == str(Path("/proc/self").readlink())


def children() -> set[str]:
    me = Path("/proc/self").readlink()
    return set(Path(f"/proc/{me}/task/{me}/children").read_text().split())


def namespaces_of(rack: Rack) -> set[str]:
    pids = (rack.keeper, *(host.first_process for host in rack.hosts))
    return {link(pid, kind) for pid in pids for kind in KINDS} - {link("self", kind) for kind in KINDS}


def namespaces() -> set[str]:
    """Every namespace that a process is in."""
    pids = [entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return {link(pid, kind) for pid in pids for kind in KINDS}


def link(pid: int | str, kind: str) -> str:
    try:
        return str(Path(f"/proc/{pid}/ns/{kind}").readlink())
    except OSError:
        return ""


if __name__ == "__main__":
    main()
