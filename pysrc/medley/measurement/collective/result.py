"""Collect the result of an all-reduce over hosts from the events of payload/allreduce.py."""

import contextlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import field

from medley import transcript
from medley.errors import Problem
from medley.host import facts
from medley.host.facts import Facts
from medley.network.fabric.speed import compute_link_mbit
from medley.planner.devices import LinkSpeed
from medley.values import Value

SIZES = "8,64K,1M,16M"
_UNIT_SHIFTS = {"": 0, "K": 10, "M": 20, "G": 30}
_SMALLEST_BYTES, _LARGEST_BYTES = 4, 16 << 30


class Participant(Value):
    """A host that takes part in an all-reduce, and its link."""

    address: str
    name: str
    interface: str | None = None
    mbit: int | None = None
    """The speed of its link; None if unknown, as for a virtual link, whatever that reports."""
    gpu: str | None = None

    def __str__(self) -> str:
        return f"{self.name} ({self.address})"


class AllReduceRate(Value):
    """The all-reduce of one size; `seconds` is None if it was left out, because it would take too long."""

    bytes: int
    seconds: float | None
    hosts: int

    @property
    def algorithm_mbit(self) -> float | None:
        return self.bytes * 8e-6 / self.seconds if self.seconds else None

    @property
    def bus_mbit(self) -> float | None:
        """The bus bandwidth of nccl-tests: what each link carries if every byte crosses the fewest links.

        https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
        """
        mbit = self.algorithm_mbit
        return mbit * 2 * (self.hosts - 1) / self.hosts if mbit else None


class Pair(Value):
    """Messages between two hosts, by address; `said` is the error if they failed."""

    one: str
    two: str
    mbit: tuple[float, float] | None = None
    """The speeds there, and back."""
    latency_us: float | None = None
    said: str | None = None

    @property
    def slower_mbit(self) -> float:
        return min(self.mbit) if self.mbit else 0.0

    def __contains__(self, address: str) -> bool:
        return address in {self.one, self.two}


class StepFailure(Value):
    """A step that failed: the error of each host, by address, and those that do not answer at all."""

    step: str
    errors: Mapping[str, str]
    silent: tuple[str, ...] = ()


class AllReduceResult(Value):
    """Everything that an all-reduce has measured so far; `table` gives it to programs."""

    members: Mapping[str, Participant] = field(default_factory=dict)
    """The participants by address, in the order of ranks."""
    backend: str | None = None
    why: str | None = None
    sums: Mapping[str, str] | None = None
    """The wrong sums by address: empty if all are right, None if the test did not come so far."""
    rates: tuple[AllReduceRate, ...] = ()
    pairs: tuple[Pair, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()
    """Pairs for which no time was left."""
    broken: StepFailure | None = None

    def list_link_speeds(self, when: str) -> Iterator[LinkSpeed]:
        """Yield the speeds of the working pairs, which plans use."""
        for pair in self.pairs:
            if self.backend and pair.mbit and pair.latency_us:
                first, second = (str(self.members[address]) for address in (pair.one, pair.two))
                yield LinkSpeed(first, second, self.backend, pair.slower_mbit, pair.latency_us, when)

    def build_table(self) -> dict[str, Any]:
        """Return all of it for JSON, with the derived figures."""
        rates = [
            {**rate.to_table(), "algorithm_mbit": rate.algorithm_mbit, "bus_mbit": rate.bus_mbit}
            for rate in self.rates
        ]
        members = [member.to_table() for member in self.members.values()]
        return {**self.to_table(), "members": members, "rates": rates}

    def add_event(self, event: Mapping[str, Any]) -> "AllReduceResult":
        """Return a copy with one event of payload/allreduce.py."""
        changes: dict[str, Any] = {}
        match event:
            case {"hosts": hosts, "backend": backend, "why": why}:
                members = {
                    address: _describe_member(member, hosts[address])
                    for address, member in self.members.items()
                }
                changes = {"members": members, "backend": backend, "why": why}
            case {"sums": wrong}:
                changes = {"sums": dict(wrong)}
            case {"size": size, "seconds": seconds}:
                changes = {"rates": (*self.rates, AllReduceRate(size, seconds, len(self.members)))}
            case {"pair": _}:
                changes = {"pairs": _add_pair(self.pairs, event)}
            case {"skipped": [first, second]}:
                changes = {"skipped": (*self.skipped, (first, second))}
            case {"broken": step, "errors": errors, "silent": silent}:
                changes = {"broken": StepFailure(step, dict(errors), tuple(silent))}
            case _:
                pass
        return self.replace(**changes)


def _describe_member(member: Participant, description: Mapping[str, Any]) -> Participant:
    mbit = None
    with contextlib.suppress(Problem):
        mbit = find_link_mbit(
            facts.read_facts(transcript.parse_transcript(description["facts"])), member.address
        )
    return member.replace(interface=description["interface"], mbit=mbit, gpu=description["gpu"])


def find_link_mbit(host: Facts, address: str) -> int | None:
    """Return the speed of the link with this address; a virtual link has no driver and no true speed."""
    for link in host.net.links:
        if link.driver and any(entry.ip == address for entry in link.addresses):
            return compute_link_mbit(link, host.rdma)
    return None


def _add_pair(pairs: tuple[Pair, ...], event: Mapping[str, Any]) -> tuple[Pair, ...]:
    """Keep the faster of a pair's two turns, or the failed one."""
    first, second = event["pair"]
    new_pair = Pair(first, second, said=event["said"])
    if not new_pair.said:
        there_mbit, back_mbit = (event["bytes"] * 8e-6 / seconds for seconds in event["seconds"])
        new_pair = new_pair.replace(mbit=(there_mbit, back_mbit), latency_us=event["latency_s"] * 1e6)
    by_ends = {(pair.one, pair.two): pair for pair in pairs}
    old_pair = by_ends.get((first, second))
    is_faster = old_pair is None or (not old_pair.said and old_pair.slower_mbit < new_pair.slower_mbit)
    if new_pair.said or is_faster:
        by_ends[first, second] = new_pair
    return tuple(by_ends.values())


def parse_sizes(text: str) -> tuple[int, ...]:
    """Return the sizes of `8,64K,1M` in bytes, ascending."""
    return tuple(sorted({_parse_size(size.strip()) for size in text.split(",") if size.strip()}))


def _parse_size(text: str) -> int:
    match = re.fullmatch(r"(\d{1,10})([KMG]?)(?:i?B)?", text, re.IGNORECASE)
    size_bytes = int(match[1]) << _UNIT_SHIFTS[match[2].upper()] if match else 0
    if not _SMALLEST_BYTES <= size_bytes <= _LARGEST_BYTES:
        raise Problem(
            f"{text!r} is not a message size",
            cause="a size is 4 bytes to 16G: a number, or one with K, M or G",
            fix=f"medley collective-test --sizes {SIZES}",
        )
    return size_bytes
