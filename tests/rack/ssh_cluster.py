"""Hosts of a rack that let one another in by ssh, with a cluster.toml that names them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from medley.command import Command
from medley.process import Process, ProcessResult
from tests.rack import ssh
from tests.rack.cluster import MEDLEY, STATE
from tests.rack.host import Host
from tests.rack.rack import Rack
from tests.rack.spec import Link
from tests.waiting import wait_for

LINKS = (Link("lan"), Link("fast", mtu=9000))
"""ssh goes over the first, the cluster over the second."""
TABLE = """\
link = "10.78.1.0/24"

[hosts.host1]
role = "head"
"""
LIMIT_S = 240


@dataclass
class SshCluster:
    rack: Rack
    typed_at: str = "host1"

    @classmethod
    def of(cls, rack: Rack, more: Mapping[str, str] | None = None) -> "SshCluster":
        """`more` is what a host's table has besides its name."""
        ssh.serve(rack)
        return cls.with_table(rack, more or {})

    @classmethod
    def with_table(cls, rack: Rack, more: Mapping[str, str]) -> "SshCluster":
        others = "".join(f"\n[hosts.{host.name}]\n{more.get(host.name, '')}\n" for host in rack.hosts[1:])
        for host in rack.hosts:
            host.path("/tmp/home/cluster.toml").write_text(TABLE + others)
            if more:
                host.says(*MEDLEY, "check", "--accept", "/tmp/home/cluster.toml")
        return cls(rack)

    @property
    def head(self) -> Host:
        return self.rack["host1"]

    def type(self, *words: str, at: str | None = None, limit_s: float = LIMIT_S) -> ProcessResult:
        """A verb of medley's, where the user sits."""
        return self.rack[at or self.typed_at].run(Command((*MEDLEY, *words)), limit_s=limit_s)

    def done(self, *words: str, at: str | None = None, limit_s: float = LIMIT_S) -> list[str]:
        """What it prints, which has to succeed."""
        finished = self.type(*words, at=at, limit_s=limit_s)
        assert finished.status == 0, "\n".join(finished.lines)
        return list(finished.lines)

    def begin(self, *words: str, until: str) -> Process:
        """Type it, and wait until it says something."""
        lines: list[str] = []
        process = self.rack[self.typed_at].start(Command((*MEDLEY, *words)), lines.append)
        wait_for(
            f"medley {words[0]} prints {until!r} or ends",
            lambda: any(until in line for line in list(lines)) or process.poll() is not None,
            60,
            state=lambda: lines,
        )
        assert any(until in line for line in lines), lines
        return process

    def states(self) -> dict[str, str]:
        """By host, its row in `status`."""
        lines = self.type("status").lines
        rows = [line.split("  ") for line in lines]
        names = {host.name for host in self.rack.hosts}
        return {row[0].strip(): " ".join(filter(None, row[1:])) for row in rows if row[0].strip() in names}

    def become(
        self, description: str, true: Callable[[dict[str, str]], bool], limit_s: float = 120
    ) -> dict[str, str]:
        """Return the first `status` of which `true` holds; it must be one that stays."""
        found: dict[str, str] = {}

        def is_true() -> bool:
            found.clear()
            found.update(self.states())
            return true(found)

        wait_for(description, is_true, limit_s, state=lambda: found)
        return found

    def all_up(self, limit_s: float = 120) -> None:
        names = {host.name for host in self.rack.hosts}
        self.become(
            "every host is up",
            lambda said: set(said) == names and all(" up " in f" {row}" for row in said.values()),
            limit_s,
        )

    def all_up_without(self, name: str, word: str, before: set[int], limit_s: float = 120) -> None:
        """Wait until one host has processes with that word which it did not have before, and all are up.

        What `status` shows from the end of one process to the start of the next may pass between two looks.
        """
        host = self.rack[name]
        wait_for(
            f"{name} has started {word} again",
            lambda: set(processes(host, word)) - before,
            limit_s,
            state=lambda: busy(host),
        )
        self.all_up(limit_s)


def busy(host: Host) -> list[str]:
    """The processes of a host besides the rack's own, and ours that ask."""
    lines = host.says("ps", "-eo", "pid,args").splitlines()[1:]
    words = ("init.py", "sshd", "ps -eo", "sh -c for group")
    return [line for line in lines if not any(word in line for word in words) and " sh -c" not in line]


def falls_still(host: Host) -> None:
    """Wait until nothing but the rack's own runs there."""
    wait_for(
        f"nothing but the rack's own runs on {host.name}",
        lambda: busy(host) == [],
        state=lambda: busy(host),
    )


def kept(host: Host) -> set[str]:
    """The files of medley's state there, but logs and what else tells what happened."""
    files = host.says("find", STATE, "-type", "f").splitlines()
    found = (file.removeprefix(f"{STATE}/") for file in files if "/logs/" not in file)
    return {file for file in found if not file.startswith(("events.", "device-history."))}


def process(host: Host, word: str) -> int:
    """A process of the host's by a word of its command, with its number there."""
    return processes(host, word)[0]


def processes(host: Host, word: str) -> list[int]:
    """All of them, none where no command has the word."""
    lines = host.says("ps", "-eo", "pid,args").splitlines()[1:]
    return [int(line.split()[0]) for line in lines if word in line and "ps -eo" not in line]
