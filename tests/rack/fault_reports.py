"""What medley says on the hosts of a cluster in status, logs and events; each line with its time."""

import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.rack.cluster import STATE
from tests.rack.host import Host
from tests.rack.ssh_cluster import SshCluster

LOGS = ("logs/medley-serve-8000.log", "logs/medley-ray.log", "logs/join.log", "events.jsonl")
STATUS_EVERY_S = 3
STATUS_LIMIT_S = 60
_NUMBERS = re.compile(r"[\d.]+ of [\d.]+ (?:GiB|taken)|\d+ s\b")
_TROUBLE = re.compile(r"cause:|restart|Problem|\"kind\": \"(?:fault|restart|end)\"")


@dataclass(frozen=True)
class Sign:
    at: float
    text: str
    trouble: bool


@dataclass
class Signs:
    """Follows what is said, from `start` on."""

    desk: Callable[[], SshCluster]
    heard: list[Sign] = field(default_factory=list)
    _calm: set[str] = field(default_factory=set)
    _read: dict[tuple[str, str], int] = field(default_factory=dict)
    _ended: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        """Everything said so far is calm; what is new is heard."""
        self._calm = {_plain(line) for line in self._status()}
        list(self._new_lines())
        for follow in (self._follow_files, self._follow_status):
            self._threads.append(threading.Thread(target=follow, daemon=True))
            self._threads[-1].start()

    def stop(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(STATUS_LIMIT_S)

    def add(self, *lines: str, trouble: bool = True) -> None:
        """What a verb printed that was typed meanwhile."""
        self.heard += [Sign(time.monotonic(), line, trouble) for line in lines]

    def seen(self) -> float | None:
        """When there was the first sign of trouble."""
        return min((each.at for each in list(self.heard) if each.trouble), default=None)

    def named(self, words: tuple[str, ...]) -> float | None:
        """When all of these words had been said."""
        times = [self._first(word) for word in words]
        known = [each for each in times if each is not None]
        return max(known, default=None) if len(known) == len(times) else None

    def missing(self, words: tuple[str, ...]) -> list[str]:
        return [word for word in words if self._first(word) is None]

    def _first(self, word: str) -> float | None:
        pattern = re.compile(word)
        return min((each.at for each in list(self.heard) if pattern.search(each.text)), default=None)

    def _follow_files(self) -> None:
        while not self._ended.wait(0.25):
            for line in self._new_lines():
                self.heard.append(Sign(time.monotonic(), line, bool(_TROUBLE.search(line))))

    def _follow_status(self) -> None:
        while not self._ended.wait(STATUS_EVERY_S):
            for line in self._status():
                if _plain(line) not in self._calm:
                    self._calm.add(_plain(line))
                    self.heard.append(Sign(time.monotonic(), line, trouble=True))

    def _status(self) -> list[str]:
        return list(self.desk().type("status", limit_s=STATUS_LIMIT_S).lines)

    def _new_lines(self) -> Iterator[str]:
        for host in self.desk().rack.hosts:
            for name in LOGS:
                key, file = (host.name, name), inside(host, f"{STATE}/{name}")
                try:
                    text = file.read_bytes()
                except OSError:
                    continue
                yield from text[self._read.get(key, 0) :].decode(errors="replace").splitlines()
                self._read[key] = len(text)


def inside(host: Host, path: str) -> Path:
    """A file as the host itself sees it, with what is mounted there; only while it is alive."""
    return Path(f"/proc/{host.first_process}/root{path}")


def _plain(line: str) -> str:
    """Without what changes by itself."""
    return " ".join(_NUMBERS.sub("", line).split())
