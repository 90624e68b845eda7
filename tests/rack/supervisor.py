"""The process that holds a rack: its network is the switches, its /dev/shm the hosts' disks.

Nothing of a rack has a name outside: no named namespace, no link, no mount, no file. All of it hangs on
processes, and every host dies with the keeper; so what is left after a crash is what the kernel leaves.
Only control groups have names; those of dead keepers are swept at the next start.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

from tests.rack import cgroup, running_racks
from tests.rack.init import mount
from tests.rack.spec import Port, Spec
from tests.waiting import becomes_true

INIT = Path(__file__).with_name("init.py")
SPACES = ("unshare", "--mount", "--uts", "--ipc", "--pid", "--net")
SHM_BYTES = 4 << 30
READY = "the rack is up, kept by "
DISKS = Path("/dev/shm")
_HEAR_LIMIT_S = 20


def main() -> None:
    spec = Spec.from_json(sys.argv[1])
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, _end)
    sweep()
    hosts: dict[str, subprocess.Popen[str]] = {}
    try:
        mount("disks", DISKS, kind="tmpfs", options="mode=755")
        switches(spec)
        boot(spec, spec.names, hosts)
        print(READY, os.getpid(), flush=True)
        keep(spec, hosts)
    finally:
        for host, process in hosts.items():
            end(host, process)


def boot(spec: Spec, names: Iterable[str], hosts: "dict[str, subprocess.Popen[str]]") -> None:
    """Start these hosts, all at once; a disk that is there is what it was."""
    for host in names:
        hosts[host] = start(spec, host)
    for host in names:
        _hear(hosts[host], "here")
        first = running_racks.first_process(hosts[host].pid)
        cgroup.make(os.getpid(), host, first, spec.cpus.get(host))
        wire(spec, host, first)
    for host in names:
        _say(hosts[host])
    for host in names:
        _hear(hosts[host], "ready")


def end(host: str, process: "subprocess.Popen[str]") -> None:
    """Kill process 1, which takes the others with it; unshare(1) then reaps it, so nobody else has to."""
    for pid in running_racks.children(process.pid) or [process.pid]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    cgroup.remove(os.getpid(), host)
    process.wait()


def start(spec: Spec, host: str) -> "subprocess.Popen[str]":
    """A host's first process, in namespaces of its own; killed when the keeper is, and whatever way."""
    about = {
        "name": host,
        "disk": str(DISKS / host),
        "share": spec.share,
        "shm_bytes": SHM_BYTES,
        "etc_hosts": spec.etc_hosts,
        "ports": [
            {
                "interface": p.interface,
                "address": p.address,
                "mtu": p.link.mtu,
                "shape": shape(p.link.mbit),
                "speed": p.link.mbit if p.link.shows_speed else None,
            }
            for p in spec.ports_of(host)
        ],
    }
    alone = (*SPACES, "--propagation", "slave", "--fork", "--kill-child")
    return subprocess.Popen(
        ("setpriv", "--pdeathsig", "KILL", *alone, sys.executable, "-I", "-S", INIT, json.dumps(about)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def switches(spec: Spec) -> None:
    lines = ["link set lo up"]
    for link in spec.links:
        mtu = f"{link.name} mtu {link.mtu}" if link.mtu else link.name
        lines += [f"link add {link.name} type bridge", f"link set {mtu} up"]
    _ip(lines)


def wire(spec: Spec, host: str, first: int) -> None:
    """A wire from each of its switches to the host whose first process that is."""
    lines = []
    for port in spec.ports_of(host):
        mtu = f" mtu {port.link.mtu}" if port.link.mtu else ""
        end = f"name {port.interface} address {mac(port)} netns {first}"
        lines += [
            f"link add {port.switch_port} type veth peer {end}",
            f"link set {port.switch_port} master {port.link.name}{mtu} up",
        ]
    others = (port.switch_port for port in other_ends(spec, host))
    lines += [f"link set {name} up" for name in others if _is_link(name)]
    _ip(lines)
    for port in spec.ports_of(host):
        if port.link.mbit:
            words = ("dev", port.switch_port, *shape(port.link.mbit))
            subprocess.run(["tc", "qdisc", "add", *words], check=True)


def mac(port: Port) -> str:
    """The same after a boot: others have it in their ARP tables."""
    return "02:4d:" + ":".join(f"{int(part):02x}" for part in port.address.split("."))


def _is_link(name: str) -> bool:
    return Path(f"/proc/sys/net/ipv4/conf/{name}").exists()


def _ip(lines: list[str]) -> None:
    subprocess.run(["ip", "-batch", "-"], input="\n".join(lines), text=True, check=True)


def shape(mbit: int | None) -> tuple[str, ...]:
    """The words for tc; a wire is shaped at both ends, so each way for itself."""
    if mbit is None:
        return ()
    return ("root", "tbf", "rate", f"{mbit}mbit", "burst", "256kb", "latency", "50ms")


def keep(spec: Spec, hosts: "dict[str, subprocess.Popen[str]]") -> None:
    """Until told to end; when a host dies, its cables lose their carrier at the other end.

    SIGUSR1: hosts that died are started anew.
    """
    ends = {signal.SIGTERM, signal.SIGINT}
    heard = {signal.SIGCHLD, signal.SIGUSR1, *ends}
    signal.pthread_sigmask(signal.SIG_BLOCK, heard)
    dead: set[str] = set()
    while True:
        buried(spec, hosts, dead)
        number = signal.sigwait(heard)
        if number in ends:
            return
        if number == signal.SIGUSR1:
            # The test saw the end of the host whose power it cut; this process may see it a moment later.
            becomes_true(lambda: buried(spec, hosts, dead), _HEAR_LIMIT_S)
            boot(spec, sorted(dead), hosts)
            dead.clear()


def buried(spec: Spec, hosts: "dict[str, subprocess.Popen[str]]", dead: set[str]) -> set[str]:
    """Add to the dead those that died since; their cables lose their carrier at the other end."""
    new = {host for host, process in hosts.items() if host not in dead and process.poll() is not None}
    for host in new:
        cgroup.remove(os.getpid(), host)
        for port in other_ends(spec, host):
            subprocess.run(["ip", "link", "set", port.switch_port, "down"], check=False)
    dead |= new
    return dead


def other_ends(spec: Spec, host: str) -> list[Port]:
    cables = [port.link for port in spec.ports_of(host) if port.link.direct]
    return [port for cable in cables for port in spec.plugged(cable.name) if port.host != host]


def sweep() -> None:
    """Remove the control groups of keepers that were killed."""
    alive = {keeper.pid for keeper in running_racks.keepers()}
    for keeper, host in cgroup.left(alive):
        cgroup.remove(keeper, host)


def _say(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    process.stdin.write("go on\n")
    process.stdin.flush()


def _hear(process: "subprocess.Popen[str]", word: str) -> None:
    assert process.stdout is not None
    heard = process.stdout.readline().strip()
    assert heard == word, f"a host said {heard!r} instead of {word!r}"


def _end(_number: int, _frame: object) -> NoReturn:
    sys.exit(0)


if __name__ == "__main__":
    main()
