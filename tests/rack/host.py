"""A host of the rack, as a test sees it: run something on it, cut its power, stop its time."""

import contextlib
import ctypes
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shutil import which

from medley import process
from medley.command import Command
from medley.errors import Problem
from medley.process import Process
from tests.rack import cgroup
from tests.rack.init import HOME
from tests.rack.spec import Port
from tests.waiting import wait_for

CLONE_NEWNET = 0x40000000
LIMIT_S = 120
# What belongs to the caller's own session, and would make a host see the caller's things.
PRIVATE = ("MEDLEY_", "RAY_", "SSH_", "TMP", "TEMP", "VLLM_", "XDG_", "PYTEST_")

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Host:
    """One host, alive or killed; `first_process` is its process 1, with its pid out here."""

    name: str
    keeper: int
    first_process: int
    ports: tuple[Port, ...]
    cores: str | None = None
    cache: str | None = None
    started: list[Process] = field(default_factory=list, repr=False, compare=False)

    @property
    def address(self) -> str:
        return self.ports[0].address

    @property
    def environment(self) -> dict[str, str]:
        """The variables of every process: its own home and state, and the engine environments of its rack."""
        # A cache is shared and only read: environments are large, and take minutes to build.
        return {
            "HOME": HOME,
            "MEDLEY_CACHE": self.cache or str(shared_cache()),
            "MEDLEY_STATE": f"{HOME}/.local/state/medley",
            "XDG_RUNTIME_DIR": "/run/user/0",
        }

    def port(self, link: str) -> Port:
        return next(port for port in self.ports if port.link.name == link)

    def command(self, command: Command | Sequence[str], *, folder: str = HOME) -> Command:
        """The command that runs it on this host, from out here; what is printed is what is run."""
        inner = command if isinstance(command, Command) else Command(tuple(command))
        groups = " ".join(f"{each}/cgroup.procs" for each in cgroup.folders(self.keeper, self.name))
        join = f'for group in {groups}; do echo 0 >"$group"; done; exec "$@"'
        enter = ("nsenter", "--target", str(self.first_process))
        spaces = ("--mount", "--uts", "--ipc", "--net", "--pid", "--")
        pinned = ("taskset", "--cpu-list", self.cores) if self.cores else ()
        run = ("env", f"--chdir={folder}", *pinned, *inner.argv)
        private = tuple(name for name in os.environ if name.startswith(PRIVATE))
        return Command(
            (*enter, *spaces, "sh", "-c", join, "sh", *run),
            env={**self.environment, **inner.env},
            unset=(*private, *inner.unset),
        )

    def run(
        self, command: Command | Sequence[str], *, folder: str = HOME, limit_s: float = LIMIT_S
    ) -> process.ProcessResult:
        return process.run(self.command(command, folder=folder), limit_s=limit_s)

    def says(self, *argv: str, limit_s: float = LIMIT_S) -> str:
        """What a command prints, which has to succeed."""
        finished = self.run(argv, limit_s=limit_s)
        text = "\n".join(finished.lines)
        assert finished.status == 0, f"{self.name}: {argv} ended with {finished.status}\n{text}"
        return text

    def start(
        self,
        command: Command | Sequence[str],
        on_line: Callable[[str], None] | None = None,
        *,
        folder: str = HOME,
    ) -> Process:
        """Start it, and leave it to run; it ends with the rack at the latest."""
        process = Process(self.command(command, folder=folder), on_line or (lambda _: None))
        self.started.append(process)
        return process

    def path(self, inside: str) -> Path:
        """Where a file of its /tmp, /etc or /run is for us; of a killed host, too."""
        top = inside.split("/")[1]
        assert top in {"tmp", "etc", "run"}, f"{inside} is not this host's own"
        return Path(f"/proc/{self.keeper}/root/dev/shm/{self.name}{inside}")

    @property
    def alive(self) -> bool:
        return running(self.first_process)

    def kill(self) -> None:
        """Cut its power: no process of it hears of it, and none is left."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.first_process, signal.SIGKILL)
        with contextlib.suppress(FileNotFoundError):
            cgroup.freeze(self.keeper, self.name, frozen=False)
        wait_for(f"{self.name} is off", lambda: not self.alive)

    def pause(self) -> None:
        """Stop its time; the wires stay plugged in and its kernel still answers a ping."""
        cgroup.freeze(self.keeper, self.name, frozen=True)

    def resume(self) -> None:
        cgroup.freeze(self.keeper, self.name, frozen=False)

    def limit(self, cpus: float | None) -> None:
        """Make it as slow as a host of so many processors, or as fast as it can be."""
        cgroup.limit(self.keeper, self.name, cpus)

    def memory(self, more_bytes: int | None) -> None:
        """Leave it so much memory besides what it has taken, or all there is."""
        cgroup.memory(self.keeper, self.name, more_bytes)

    def drop(self, first: int, last: int | None = None) -> None:
        """A firewall that says nothing: what others begin at these ports, TCP or UDP, is lost."""
        if which("nft") is None:
            raise Problem("no firewall on this rack", cause="there is no nft", fix="apt-get install nftables")
        ports = f"{first}-{last or first}"
        chain = "add chain inet rack input { type filter hook input priority 0; }"
        rule = "add rule inet rack input iifname != lo ct state new"
        rules = (f"{rule} {kind} dport {ports} drop" for kind in ("tcp", "udp"))
        self.says("nft", "; ".join(["add table inet rack", chain, *rules]))

    def allow(self) -> None:
        """Take the firewall away."""
        self.says("nft", "delete table inet rack")

    @contextlib.contextmanager
    def network(self) -> Iterator[None]:
        """This thread is on the host's network: for a test that is itself the client."""
        with Path("/proc/thread-self/ns/net").open() as here:
            with Path(f"/proc/{self.first_process}/ns/net").open() as there:
                _enter(there.fileno())
            try:
                yield
            finally:
                _enter(here.fileno())


def shared_cache() -> Path:
    """Where medley out here keeps its environments."""
    if own := os.environ.get("MEDLEY_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "medley"


def _enter(namespace: int) -> None:
    if _libc.setns(namespace, CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def running(pid: int) -> bool:
    """Whether there is such a process, and it is not a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
