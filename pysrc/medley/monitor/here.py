"""Here is the host that this process runs on, looked at again and again at little cost."""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Generic, TypeVar

from medley.facts.link_kind import link_kind
from medley.monitor import ports, proc
from medley.monitor.looking import Looking
from medley.monitor.sample import Link, Port, Sample
from medley.monitor.served import Served

T = TypeVar("T")
_SLOW_S = 10
"""What changes when somebody plugs or installs; some drivers take a lock to tell a link's speed."""
_HIDDEN = {"loopback", "container"}
"""What goes through a container's link goes through a wire, too."""
_LINK_TYPES = {"32": "infiniband", "772": "loopback", "65534": "none", "512": "ppp"}


class Kept(Generic[T]):
    """A value that is found anew when it is older than `for_s`."""

    def __init__(self, found: Callable[[], T], for_s: float = _SLOW_S) -> None:
        self._found, self._for_s, self._at = found, for_s, float("-inf")

    def __call__(self) -> T:
        if time.monotonic() >= self._at + self._for_s:
            self._value, self._at = self._found(), time.monotonic()
        return self._value


class Here:
    def __init__(self, every_s: float, root: Path = Path("/")) -> None:
        self._proc, self._sys = root / "proc", root / "sys"
        self._kinds = Kept(lambda: {name: self._kind(name) for name in self._names()})
        self._speeds = Kept(lambda: {name: self._speed(name) for name in self._kinds()})
        self._ports = Kept(lambda: list(self._found_ports()))
        self._gpus = Looking(every_s, self._sys)
        self._served = Served()

    def sample(self, *, whole: bool = False) -> Sample:
        """`whole`: with engines' metrics as they are."""
        gpus, silent = self._gpus.seen()
        return Sample(
            at_s=time.clock_gettime(time.CLOCK_BOOTTIME),
            cpu=proc.cpu(_text(self._proc / "stat"), _text(self._proc / "loadavg")),
            memory=proc.memory(_text(self._proc / "meminfo")),
            gpus=gpus,
            gpus_silent=silent,
            links=tuple(self._links()),
            ports=tuple(_port(folder, files) for folder, files in self._ports()),
            retransmits=proc.retransmits(_text(self._proc / "net/snmp")),
            ray=self._served.ray(),
            engines=self._served.engines(whole=whole),
            cost_s=time.process_time(),
        )

    def end(self) -> None:
        self._gpus.end()

    def _links(self) -> Iterator[Link]:
        for name, counters in proc.links(_text(self._proc / "net/dev")).items():
            kind = self._kinds().get(name) or link_kind(name)
            folder = self._sys / "class/net" / name
            index, state = _text(folder / "ifindex").strip(), _text(folder / "operstate").strip()
            if kind not in _HIDDEN:
                yield Link(
                    name=name,
                    index=int(index) if index.isdecimal() else 0,
                    counters=counters,
                    up=state in {"up", "unknown"} if state else None,
                    mbit=self._speeds().get(name),
                    kind=kind,
                )

    def _names(self) -> list[str]:
        folder = self._sys / "class/net"
        return [each.name for each in folder.iterdir()] if folder.is_dir() else []

    def _kind(self, name: str) -> str:
        folder = self._sys / "class/net" / name
        told = dict(line.partition("=")[::2] for line in _text(folder / "uevent").splitlines())
        driver = folder / "device/driver"
        return link_kind(
            name,
            link_type=_LINK_TYPES.get(_text(folder / "type").strip(), "ether"),
            made_as=told.get("DEVTYPE", ""),
            driver=driver.resolve().name if driver.exists() else None,
        )

    def _speed(self, name: str) -> int | None:
        text = _text(self._sys / "class/net" / name / "speed").strip()
        return int(text) if text.isdecimal() and int(text) else None

    def _found_ports(self) -> Iterator[tuple[Path, list[Path]]]:
        """Each with the counters that it has."""
        for folder in sorted((self._sys / "class/infiniband").glob("*/ports/*")):
            files = (folder / each / name for each in ports.FOLDERS for name in (*ports.WORDS, *ports.BAD))
            yield folder, [file for file in files if file.is_file()]


def _port(folder: Path, files: list[Path]) -> Port:
    state, rate = _text(folder / "state"), _text(folder / "rate").split()
    return Port(
        name=f"{folder.parents[1].name}/{folder.name}",
        counters=ports.counters({file.name: _text(file) for file in files}),
        active=state.strip().endswith(" ACTIVE") if state else None,
        mbit=round(float(rate[0]) * 1000) if rate[1:2] == ["Gb/sec"] else None,
    )


def _text(path: Path) -> str:
    """Nothing where it is not there, or its driver does not tell."""
    with suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace")
    return ""
