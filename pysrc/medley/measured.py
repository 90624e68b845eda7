"""What was measured of hosts and wires is kept here, and a plan counts with it instead of what is stated."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import TypedDict

from medley import shaped, store


@dataclass(frozen=True)
class Speed:
    """What one device reached by itself, with the weights of a model in 16 bits."""

    host: str
    """As a plan names it: `spark-1 (10.0.0.1)` in a cluster, `spark-1` outside of one."""
    index: int
    name: str
    """The device's own; with its memory it tells whether this is still the same device."""
    memory_bytes: int
    gb_s: float
    """Of weights, read for one token."""
    few_tflops: float
    """With 8 tokens at once."""
    tflops: float
    """With 256."""
    dtype: str
    threads: int
    """Of a CPU."""
    when: str
    """UTC, ISO 8601."""
    torch: str
    ray: str | None = None

    @property
    def day(self) -> str:
        return self.when[:10]


@dataclass(frozen=True)
class Wire:
    """Between two hosts, as their collectives use it."""

    one: str
    two: str
    """As a plan names them."""
    backend: str
    """gloo or nccl."""
    mbit: float
    """The slower way."""
    latency_us: float
    """One way, of 8 bytes."""
    when: str

    @property
    def ends(self) -> frozenset[str]:
        return frozenset((self.one, self.two))


class _Kept(TypedDict):
    speeds: list[Speed]
    wires: list[Wire]


@dataclass(frozen=True)
class Measured:
    speeds: Mapping[tuple[str, int], Speed] = field(default_factory=dict)
    """By host and the device's index."""
    wires: Mapping[frozenset[str], Wire] = field(default_factory=dict)

    def speed(self, host: str, index: int, name: str, memory_bytes: int) -> Speed | None:
        """None too where another device was measured there."""
        found = self.speeds.get((host, index))
        return found if found and (found.name, found.memory_bytes) == (name, memory_bytes) else None

    def wire(self, one: str, other: str) -> Wire | None:
        return self.wires.get(frozenset((one, other)))

    def having(self, speeds: Iterable[Speed], wires: Iterable[Wire]) -> "Measured":
        """With these in place of older ones."""
        return Measured(
            {(each.host, each.index): each for each in chain(self.speeds.values(), speeds)},
            {each.ends: each for each in chain(self.wires.values(), wires)},
        )


NOTHING = Measured()


def read() -> Measured:
    """What is kept here; nothing where it was written by another medley, for it can be measured again."""
    table = store.table(_path()) or {}
    if not shaped.fits(table, _Kept):
        return NOTHING
    wires = [Wire(**each) for each in table["wires"]]
    return NOTHING.having([Speed(**each) for each in table["speeds"]], wires)


def keep(speeds: Iterable[Speed], wires: Iterable[Wire]) -> None:
    known = read().having(speeds, wires)
    table = {
        "speeds": [asdict(each) for each in known.speeds.values()],
        "wires": [asdict(each) for each in known.wires.values()],
    }
    store.write(_path(), json.dumps(table, indent=1))


def _path() -> Path:
    return store.state() / "measured.json"
