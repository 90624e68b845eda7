"""A transfer over hosts of a rack, led from outside: what `medley pull` does by ssh is done here by files."""

import json
import random
import secrets
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from medley.command import Command
from medley.model.transfer import order_sources
from medley.process import Process
from medley.process_identity import list_descendants
from tests.rack.host import Host
from tests.rack.init import HOME
from tests.rack.rack import TREE
from tests.waiting import wait_for

HERE = f"{HOME}/transfer"
ROOT = "/tmp/model"
LIMIT_S = 60.0


@dataclass
class Run:
    """A program that runs on a host, and what it has said."""

    host: Host
    process: Process
    said: list[dict[str, Any]] = field(default_factory=list)

    def all(self, kind: str) -> list[Any]:
        return [each[kind] for each in list(self.said) if kind in each]

    def await_(self, kind: str, limit_s: float = LIMIT_S) -> Any:
        """What it says of this kind at last."""
        wait_for(
            f"{self.host.name} prints {kind} or ends",
            lambda: self.all(kind) != [] or self.process.poll() is not None,
            limit_s,
            state=lambda: list(self.process.last_lines)[-5:],
        )
        assert self.all(kind), f"{self.host.name} ended: {list(self.process.last_lines)}"
        return self.all(kind)[-1]

    def at(self, kind: str) -> float:
        """When it said so, on the clock that all hosts share."""
        return float(next(each["at"] for each in reversed(self.said) if kind in each))

    def await_bytes(self, least: int) -> None:
        wait_for(
            f"{self.host.name} has {least} bytes",
            lambda: any(done >= least for done, _ in self.all("progress")),
            LIMIT_S,
            state=lambda: list(self.process.last_lines)[-5:],
        )

    def kill(self) -> None:
        """As `kill -9` does; nsenter, which started it, sees it die, and leaves no zombie on the host."""
        for each in list_descendants(self.process.pid):
            each.signal(signal.SIGKILL)
        assert self.process.wait(10) is not None


def model(host: Host, size_bytes: int, root: str = ROOT) -> Path:
    """Random bytes in two files, and what makes them a model."""
    top = host.path(root)
    top.mkdir()
    source = random.Random(size_bytes)
    for number in (1, 2):
        with (top / f"model-{number}.safetensors").open("wb") as file:
            for start in range(0, size_bytes // 2, 1 << 20):
                file.write(source.randbytes(min(1 << 20, size_bytes // 2 - start)))
    (top / "config.json").write_text("{}")
    return top


def start(verb: str, host: Host, root: str = ROOT) -> Run:
    run = Run(host, None)  # type: ignore[arg-type] # known when it is started
    argv = (sys.executable, "-m", "tests.rack.transfer_program", verb, root, host.address)
    env = {"PYTHONPATH": str(TREE), "MEDLEY_CACHE": f"{HOME}/cache"}

    def heard(line: str) -> None:
        if line.startswith("{"):
            run.said.append(json.loads(line))

    run.process = host.start(Command(argv, env=env), heard)
    return run


class Transfer:
    """From the hosts that have it to the others."""

    def __init__(self, having: tuple[Host, ...], lacking: tuple[Host, ...], root: str = ROOT) -> None:
        self.hosts, self.root = {host.name: host for host in (*having, *lacking)}, root
        self._secret = secrets.token_hex(32)
        self._sources = order_sources([*self.hosts], [host.name for host in having])
        self.runs: dict[str, Run] = {}
        for host in self.hosts.values():
            folder = host.path(HERE)
            folder.mkdir(exist_ok=True)
            for old in folder.iterdir():
                old.unlink()
            (folder / "secret").write_text(self._secret)
            self.runs[host.name] = start("offer" if host in having else "fetch", host, root)
        for host in having:
            self.runs[host.name].await_("port")
        text = having[0].path(f"{HERE}/manifest.json").read_text()
        for host in lacking:
            self._give(host, "manifest.json", text)
        for host in lacking:
            self.runs[host.name].await_("port")
        for host in lacking:
            self.lead(host)

    def lead(self, host: Host) -> None:
        """Tell a host whom to ask."""
        named = [
            (name, self.hosts[name].address, self.runs[name].await_("port"))
            for name in self._sources[host.name]
        ]
        self._give(host, "sources.json", json.dumps(named))

    def again(self, host: Host) -> Run:
        """On a host whose program was killed."""
        host.path(f"{HERE}/sources.json").unlink()
        self.runs[host.name] = start("fetch", host, self.root)
        self.lead(host)
        return self.runs[host.name]

    def stop(self) -> None:
        for run in self.runs.values():
            run.process.stop(0)

    @staticmethod
    def _give(host: Host, name: str, text: str) -> None:
        path = host.path(f"{HERE}/{name}")
        path.with_suffix(".new").write_text(text)
        path.with_suffix(".new").replace(path)
