"""Result of an all-reduce over hosts, folded from the events of payload/allreduce.py."""

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from medley import transcript
from medley.errors import Problem
from medley.host import facts
from medley.host.facts import Facts
from medley.network.fabric.types import link_mbit
from medley.planner.devices import LinkSpeed

SIZES = "8,64K,1M,16M"
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30}
_SMALLEST_BYTES, _LARGEST_BYTES = 4, 16 << 30


@dataclass(frozen=True)
class Participant:
    address: str
    name: str
    interface: str | None = None
    mbit: int | None = None
    """What its link should carry; None where nobody knows, as for a virtual one, whatever that reports."""
    gpu: str | None = None

    def __str__(self) -> str:
        return f"{self.name} ({self.address})"


@dataclass(frozen=True)
class AllReduceRate:
    """The all-reduce of one size; `seconds` is None where it was left out, because it would take too long."""

    bytes: int
    seconds: float | None
    hosts: int

    @property
    def algorithm_mbit(self) -> float | None:
        return self.bytes * 8e-6 / self.seconds if self.seconds else None

    @property
    def bus_mbit(self) -> float | None:
        """As nccl-tests has it: what each link carries if every byte takes the least ways there are.

        https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
        """
        mbit = self.algorithm_mbit
        return mbit * 2 * (self.hosts - 1) / self.hosts if mbit else None


@dataclass(frozen=True)
class Pair:
    """Messages between two hosts, by address; `said` is how they failed."""

    one: str
    two: str
    mbit: tuple[float, float] | None = None
    """There, and back."""
    latency_us: float | None = None
    said: str | None = None

    @property
    def slower_mbit(self) -> float:
        return min(self.mbit) if self.mbit else 0.0

    def __contains__(self, address: str) -> bool:
        return address in {self.one, self.two}


@dataclass(frozen=True)
class StepFailure:
    """A step that failed: the error of each host, by address, and those that do not answer at all."""

    step: str
    errors: Mapping[str, str]
    silent: tuple[str, ...] = ()


@dataclass(frozen=True)
class Result:
    members: Mapping[str, Participant] = field(default_factory=dict)
    """By address, in the order of ranks."""
    backend: str | None = None
    why: str | None = None
    sums: Mapping[str, str] | None = None
    """What is wrong with them, by address: empty where they are right, None where they were not reached."""
    rates: tuple[AllReduceRate, ...] = ()
    pairs: tuple[Pair, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()
    """Pairs for which no time was left."""
    broken: StepFailure | None = None

    def link_speeds(self, when: str) -> Iterator[LinkSpeed]:
        """Yield the working pairs, for plans."""
        for pair in self.pairs:
            if self.backend and pair.mbit and pair.latency_us:
                one, two = (str(self.members[address]) for address in (pair.one, pair.two))
                yield LinkSpeed(one, two, self.backend, pair.slower_mbit, pair.latency_us, when)

    def table(self) -> dict[str, Any]:
        """For programs: all of it, the derived figures too."""
        rates = [
            {**asdict(rate), "algorithm_mbit": rate.algorithm_mbit, "bus_mbit": rate.bus_mbit}
            for rate in self.rates
        ]
        members = [asdict(member) for member in self.members.values()]
        return {**asdict(self), "members": members, "rates": rates}

    def having(self, event: Mapping[str, Any]) -> "Result":
        """Add what one event of payload/allreduce.py tells."""
        changes: dict[str, Any] = {}
        match event:
            case {"hosts": hosts, "backend": backend, "why": why}:
                members = {at: _described(member, hosts[at]) for at, member in self.members.items()}
                changes = {"members": members, "backend": backend, "why": why}
            case {"sums": wrong}:
                changes = {"sums": dict(wrong)}
            case {"size": size, "seconds": seconds}:
                changes = {"rates": (*self.rates, AllReduceRate(size, seconds, len(self.members)))}
            case {"pair": _}:
                changes = {"pairs": _with_pair(self.pairs, event)}
            case {"skipped": [one, two]}:
                changes = {"skipped": (*self.skipped, (one, two))}
            case {"broken": step, "errors": errors, "silent": silent}:
                changes = {"broken": StepFailure(step, dict(errors), tuple(silent))}
            case _:
                pass
        return replace(self, **changes)


def _described(member: Participant, about: Mapping[str, Any]) -> Participant:
    mbit = None
    with contextlib.suppress(Problem):
        mbit = host_mbit(facts.facts(transcript.parse(about["facts"])), member.address)
    return replace(member, interface=about["interface"], mbit=mbit, gpu=about["gpu"])


def host_mbit(host: Facts, address: str) -> int | None:
    """What the link with this address should carry; a virtual one has no driver and no true speed."""
    for link in host.net.links:
        if link.driver and any(each.ip == address for each in link.addresses):
            return link_mbit(link, host.rdma)
    return None


def _with_pair(pairs: tuple[Pair, ...], event: Mapping[str, Any]) -> tuple[Pair, ...]:
    """Keep the faster of a pair's two turns, or the failed one."""
    one, two = event["pair"]
    new = Pair(one, two, said=event["said"])
    if not new.said:
        there, back = (event["bytes"] * 8e-6 / seconds for seconds in event["seconds"])
        new = replace(new, mbit=(there, back), latency_us=event["latency_s"] * 1e6)
    by_ends = {(pair.one, pair.two): pair for pair in pairs}
    before = by_ends.get((one, two))
    if before is None or new.said or (not before.said and before.slower_mbit < new.slower_mbit):
        by_ends[one, two] = new
    return tuple(by_ends.values())


def sizes(text: str) -> tuple[int, ...]:
    """In bytes, ascending, from `8,64K,1M`."""
    return tuple(sorted({_size(word.strip()) for word in text.split(",") if word.strip()}))


def _size(word: str) -> int:
    found = re.fullmatch(r"(\d{1,10})([KMG]?)(?:i?B)?", word, re.IGNORECASE)
    bytes_ = int(found[1]) << _UNITS[found[2].upper()] if found else 0
    if not _SMALLEST_BYTES <= bytes_ <= _LARGEST_BYTES:
        raise Problem(
            f"{word!r} is not a message size",
            cause="a size is 4 bytes to 16G: a number, or one with K, M or G",
            fix=f"medley collective-test --sizes {SIZES}",
        )
    return bytes_
