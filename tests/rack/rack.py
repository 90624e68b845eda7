"""A rack: hosts made of namespaces, wired together, that vanish with whoever made them."""

import contextlib
import os
import signal
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

from medley import process, storage
from medley.command import Command
from medley.errors import Problem
from medley.process import Process
from tests.rack import running_racks
from tests.rack.host import Host, running, shared_cache
from tests.rack.init import HOME
from tests.rack.spec import Port, Spec
from tests.rack.supervisor import READY, shape
from tests.waiting import becomes_true, wait_for

TREE = Path(__file__).parents[2]
UP_LIMIT_S = 60
BOOT_LIMIT_S = 20


@dataclass(frozen=True)
class Rack:
    """Hosts and links that are up; leaving a `with` block takes them down."""

    spec: Spec
    keeper: int
    hosts: tuple[Host, ...]
    process: Process | None = None  # the keeper, where it is our child

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    def __getitem__(self, name: str) -> Host:
        for host in self.hosts:
            if host.name == name:
                return host
        raise Problem(
            f"there is no host {name}",
            cause=f"the hosts of this rack are {', '.join(host.name for host in self.hosts)}",
            fix="python -m tests.rack ls",
        )

    def cut(self, link: str, host: str | None = None) -> None:
        """Pull the plug of one host, or of all: its interface stays up, and has no carrier."""
        for port in self._plugs(link, host):
            self._outside("ip", "link", "set", port.switch_port, "down")

    def mend(self, link: str, host: str | None = None) -> None:
        for port in self._plugs(link, host):
            self._outside("ip", "link", "set", port.switch_port, "up")

    def boot(self, *names: str) -> Self:
        """Switch killed hosts on again: with their disks, and nothing that ran. Returns the rack anew."""
        os.kill(self.keeper, signal.SIGUSR1)
        keeper = running_racks.Keeper(self.keeper, self.spec)
        booted = "a first process runs on " + ", ".join(names)
        wait_for(
            booted,
            lambda: set(names) <= set(keeper.first_processes()),
            BOOT_LIMIT_S,
            state=keeper.first_processes,
        )
        again = found(keeper, self.process)
        wait_for(
            "each has the routes of its links",
            lambda: all(map(_wired, map(again.__getitem__, names))),
            BOOT_LIMIT_S,
        )
        # What is started on them is ended with the rack, by whoever holds it.
        hosts = tuple(replace(host, started=self[host.name].started) for host in again.hosts)
        return replace(self, hosts=hosts)

    def shape(self, link: str, mbit: int, host: str | None = None) -> None:
        """Make a link so fast, both ways: the wire of one host, or all of them."""
        for port in self.spec.plugged(link):
            if host not in {None, port.host}:
                continue
            words = shape(mbit)
            self._outside("tc", "qdisc", "replace", "dev", port.switch_port, *words)
            self[port.host].says("tc", "qdisc", "replace", "dev", port.interface, *words)

    def down(self, limit_s: float = 60) -> None:
        """End the keeper, and with it everything."""
        if self.process is not None:
            self.process.stop(limit_s)
        else:
            _end(self.keeper, limit_s)
        for started in (each for host in self.hosts for each in host.started):
            if started.wait(5) is None:
                started.stop(0)

    def _plugs(self, link: str, host: str | None) -> list[Port]:
        """A cable is cut at both ends, wherever it is cut."""
        plugged = self.spec.plugged(link)
        whole = host is None or plugged[0].link.direct
        return [port for port in plugged if (whole or port.host == host) and self[port.host].alive]

    def _outside(self, *argv: str) -> None:
        """Run it where the switches are."""
        enter = ("nsenter", "--target", str(self.keeper), "--net", "--")
        finished = process.run(Command((*enter, *argv)), limit_s=20)
        assert finished.status == 0, finished.lines


def up(spec: Spec | int = 2, *, detached: bool = False) -> Rack:
    """Bring a rack up. It goes when the thread that called this ends, unless it is `detached`."""
    if os.geteuid() != 0:
        raise Problem("no rack without root", cause="it makes namespaces and mounts", fix="sudo the same")
    spec = with_needed(Spec(spec) if isinstance(spec, int) else spec)
    lines: list[str] = []
    process = Process(_keeper(spec, detached=detached), lines.append)
    try:
        pid = _await_ready(process, lines)
        rack = found(running_racks.Keeper(pid, spec), None if detached else process)
        for host in rack.hosts:
            _link_vllm_cache(host)
    except BaseException:
        process.stop()
        raise
    return rack


def found(keeper: running_racks.Keeper, process: Process | None = None) -> Rack:
    """The rack that a keeper holds; its killed hosts are left out."""
    spec = keeper.spec
    firsts = keeper.first_processes()
    hosts = (
        Host(name, keeper.pid, firsts[name], spec.ports_of(name), spec.cores.get(name), spec.cache)
        for name in spec.names
        if name in firsts
    )
    return Rack(spec, keeper.pid, tuple(hosts), process)


def _wired(host: Host) -> bool:
    said = host.run(["ip", "route"])
    return said.status == 0 and len(said.lines) == len(host.ports)


def _link_vllm_cache(host: Host) -> None:
    """Use the machine's cache of vLLM 0.32, which else inspects the model's class for 8 s at each start."""
    (caches := host.path(f"{HOME}/.cache")).mkdir()
    (caches / "vllm").symlink_to(_vllm_cache())


def _vllm_cache() -> Path:
    return storage.make_folder(shared_cache().parent / "vllm")


def with_needed(spec: Spec) -> Spec:
    """Share what every host needs of the machine's /tmp, of which it has its own; the rest it sees anyway."""
    cache = shared_cache()
    needed = (
        TREE,
        Path(sys.prefix),
        Path(sys.base_prefix),
        cache,
        cache.parent / "medley-tests",
        _vllm_cache(),
    )
    folders = dict.fromkeys((*map(Path, spec.share), *needed))
    return replace(
        spec, share=tuple(str(storage.make_folder(each)) for each in folders if each.is_relative_to("/tmp"))
    )


def _end(keeper: int, limit_s: float) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(keeper, signal.SIGTERM)
    wait_for(f"the keeper {keeper} ends", lambda: not running(keeper), limit_s)


def _keeper(spec: Spec, *, detached: bool) -> Command:
    apart = ("setsid", "--fork") if detached else ()
    alone = ("unshare", "--mount", "--net", "--propagation", "slave")
    argv = (*apart, *alone, sys.executable, "-m", running_racks.KEEPER, spec.to_json())
    return Command(argv, env={"PYTHONPATH": str(TREE)})


def _await_ready(process: Process, lines: list[str]) -> int:
    """The keeper's pid, which it says when all is done."""

    def pid() -> int | None:
        return next((int(line.removeprefix(READY)) for line in lines if line.startswith(READY)), None)

    # A detached one is the child of a child that has ended: what it says is all there is to see.
    becomes_true(lambda: pid() or any(line.startswith("Traceback") for line in lines), UP_LIMIT_S)
    if said := pid():
        return said
    process.wait(20)  # for the last line of the traceback
    raise Problem("the rack does not come up", cause="\n".join(lines), fix=str(process.command))
