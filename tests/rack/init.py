"""The first process of a host: gives it its own parts of the file system, then reaps orphans.

It runs as `python -I -S init.py JSON` in fresh namespaces, so it imports nothing of ours. Lines on stdin and
stdout keep it in step with the keeper: "here", then, when the wires are plugged in, "ready".
"""

import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

MS_BIND, MS_REC = 4096, 16384
MNT_DETACH = 2
HOME = "/tmp/home"

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    about = json.loads(sys.argv[1])
    disk = Path(about["disk"])
    furnish(disk, about)
    print("here", flush=True)
    sys.stdin.readline()
    plug(about["ports"])
    show_speeds(about["ports"])
    print("ready", flush=True)
    with Path(os.devnull).open("r+b") as null:
        for number in (0, 1):
            os.dup2(null.fileno(), number)
    reap()


def furnish(disk: Path, about: dict[str, Any]) -> None:
    """Its own /tmp, $HOME, /run, /etc, /proc, /sys, /dev/shm and name; the rest is everybody's."""
    for name in ("tmp/home/.ssh", "run/user/0", "run/sshd", "etc", "work"):
        (disk / name).mkdir(parents=True, mode=0o700, exist_ok=True)
    for name, mode in (("tmp", 0o1777), ("run", 0o755), ("run/sshd", 0o755), ("etc", 0o755)):
        (disk / name).chmod(mode)
    socket.sethostname(about["name"])
    etc(disk / "etc", about)
    for path in map(Path, about["share"]):
        target = disk / "tmp" / path.relative_to("/tmp")
        target.mkdir(parents=True, exist_ok=True)
        mount(path, target, flags=MS_BIND)
    system(disk)
    mount(disk / "tmp", "/tmp", flags=MS_BIND | MS_REC)
    options = f"lowerdir=/etc,upperdir={disk}/etc,workdir={disk}/work"
    mount("etc", "/etc", kind="overlay", options=options)
    # NixOS keeps its programs behind such links; those of the boot before are there.
    links = (entry for entry in Path("/run").iterdir() if entry.is_symlink())
    for link in (each for each in links if not (disk / "run" / each.name).is_symlink()):
        (disk / "run" / link.name).symlink_to(link.readlink())
    mount(disk / "run", "/run", flags=MS_BIND)
    mount("shm", "/dev/shm", kind="tmpfs", options=f"mode=1777,size={about['shm_bytes']}")  # hides the disks


def etc(folder: Path, about: dict[str, Any]) -> None:
    """The files that make a host: who it is, whom it knows, and that root lives in $HOME."""
    users = [line.split(":") for line in Path("/etc/passwd").read_text().splitlines() if ":" in line]
    kept = [user for user in users if user[0] != "root"]
    if all(user[0] != "sshd" for user in kept):
        kept.append(["sshd", "x", "65533", "65534", "", "/run/sshd", "/bin/false"])
    shell = shutil.which("bash") or "/bin/sh"
    passwd = [["root", "x", "0", "0", "root", HOME, shell], *kept]
    texts = {
        "hosts": about["etc_hosts"],
        "hostname": about["name"] + "\n",
        "resolv.conf": "",  # there is no world outside: a name it does not know fails at once
        "passwd": "".join(":".join(user) + "\n" for user in passwd),
        "shadow": "root:*:19000:0:99999:7:::\n",  # without a password, and not locked: sshd lets keys in
    }
    for name, text in texts.items():
        (folder / name).write_text(text)


def system(disk: Path) -> None:
    """/proc of its own processes and /sys of its own network, with the cgroups as they were."""
    mount("proc", "/proc", kind="proc")
    groups = Path("/sys/fs/cgroup")
    held = disk / "cgroup"
    held.mkdir(exist_ok=True)
    mount(groups, held, flags=MS_BIND | MS_REC)
    mount("sysfs", "/sys", kind="sysfs")
    mount(held, groups, flags=MS_BIND | MS_REC)
    _done(_libc.umount2(os.fsencode(held), MNT_DETACH), held)


def plug(ports: list[dict[str, Any]]) -> None:
    """Name, address and speed of each interface; the wires already end here."""
    lines = ["link set lo up"]
    for port in ports:
        name = port["interface"]
        mtu = f" mtu {port['mtu']}" if port["mtu"] else ""
        lines += [f"address add {port['address']}/24 dev {name}", f"link set {name}{mtu} up"]
    subprocess.run(["ip", "-batch", "-"], input="\n".join(lines), text=True, check=True)
    for port in ports:
        if port["shape"]:
            subprocess.run(["tc", "qdisc", "add", "dev", port["interface"], *port["shape"]], check=True)


def show_speeds(ports: list[dict[str, Any]]) -> None:
    """Put a file over the speed in sysfs: a veth says 10 Gbit/s, whatever tc lets through."""
    for port in ports:
        if port["speed"]:
            shown = Path(f"/run/speed-{port['interface']}")
            shown.write_text(f"{port['speed']}\n")
            mount(shown, f"/sys/class/net/{port['interface']}/speed", flags=MS_BIND)


def reap() -> None:
    """Wait for every orphan. A first process that does not leaves zombies, which `ray stop` waits for."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass
        signal.sigwait({signal.SIGCHLD})


def mount(
    source: Path | str, target: Path | str, *, kind: str = "", flags: int = 0, options: str = ""
) -> None:
    words = (os.fsencode(word) for word in (source, target, kind))
    _done(_libc.mount(*words, ctypes.c_ulong(flags), os.fsencode(options)), target)


def _done(status: int, target: Path | str) -> None:
    if status != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(target))


if __name__ == "__main__":
    main()
