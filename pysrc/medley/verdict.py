"""A verdict is what a collective's result says of the cluster: all is well, or the host or pair to blame.

Whom to blame: a pair falls short if it fails, or carries under half of what it should. That is the slower of
its two links where both are known (for Gloo 10 Gb/s at most), else what the best pair of all carries. A host
of which every pair falls short is to blame itself; a pair that falls short between two others is named as a
pair. Half, because TCP on a healthy link keeps over nine tenths, and two runs on a busy host differ by less.
The best pair, not the median: of four hosts two may be slow, and then five of six pairs are.
"""

from collections.abc import Iterator

from medley.collective import GLOO_MBIT, Member, Pair, Result
from medley.problem import Problem

_ENOUGH = 0.5
_TWO = 2
_START = "start the ranks"
"""As inside/collective.py says it."""


def verdict(result: Result) -> Problem | None:
    """What is wrong, or None."""
    broken = result.broken
    if broken and broken.silent:
        return _silent(result, broken.silent)
    if broken and broken.step == _START:
        return _not_started(result)
    return next(_wrong(result), None)


def _wrong(result: Result) -> Iterator[Problem]:
    if blamed := hosts_to_blame(result):
        yield _of_hosts(result, blamed)
    elif pairs := pairs_that_fall_short(result):
        yield _of_pairs(result, pairs)
    elif result.broken:
        yield Problem(
            f"the hosts cannot {result.broken.step} together, though each pair works",
            cause=_errors(result),
            fix="if the network is slow, give each step more time: medley collective-test --limit 300",
        )
    elif result.sums:
        yield Problem(
            "the sums of an all-reduce are wrong, though each pair is right",
            cause=_errors(result),
            fix="nothing computed here is to be trusted: try each two hosts alone, and their memory",
        )


def pairs_that_fall_short(result: Result) -> tuple[Pair, ...]:
    best = max((pair.slower_mbit for pair in result.pairs), default=0.0)
    return tuple(
        pair
        for pair in result.pairs
        if pair.said or pair.slower_mbit < _ENOUGH * (expected_mbit(result, pair) or best)
    )


def hosts_to_blame(result: Result) -> tuple[Member, ...]:
    """Those of which every pair falls short; of two hosts none, for nobody can say which of them it is."""
    short = pairs_that_fall_short(result)
    if len(result.members) <= _TWO:
        return ()
    return tuple(
        member
        for address, member in result.members.items()
        if (own := [pair for pair in result.pairs if address in pair]) and set(own) <= set(short)
    )


def expected_mbit(result: Result, pair: Pair) -> int | None:
    """What its links should give, where both are known."""
    known = [result.members[address].mbit for address in (pair.one, pair.two)]
    ends = [each for each in known if each]
    if len(ends) < _TWO:
        return None
    return min(*ends, GLOO_MBIT) if result.backend == "gloo" else min(ends)


def _silent(result: Result, silent: tuple[str, ...]) -> Problem:
    broken = result.broken
    step = broken.step if broken else _START
    others = len(result.members) - len(silent)
    does, it, answers = ("does", "it", "answers") if len(silent) == 1 else ("do", "they", "answer")
    return Problem(
        f"{_named(result, silent)} {does} not answer",
        cause=f"{it} did not {step} in time, and {answers} no other question either; "
        f"{others} of {len(result.members)} hosts do",
        fix=f"look at it: ssh {silent[0]} uptime; then there: medley ray-stop; medley ray-worker HEAD",
    )


def _not_started(result: Result) -> Problem:
    errors = result.broken.errors if result.broken else {}
    return Problem(
        f"{_named(result, tuple(errors))} cannot take part",
        cause=_errors(result),
        fix="there: medley facts, which shows its GPU, and medley env check; if it is slow: --limit 300",
    )


def _of_hosts(result: Result, blamed: tuple[Member, ...]) -> Problem:
    addresses = [member.address for member in blamed]
    own = [pair for pair in result.pairs if any(address in pair for address in addresses)]
    failed = all(pair.said for pair in own)
    verb = "is" if len(blamed) == 1 else "are"
    trouble = "cut off from the others, or far too slow" if failed else "slow"
    return Problem(
        f"{_named(result, tuple(addresses))} {verb} {trouble}",
        cause="\n".join(_pair_shown(result, pair) for pair in own) + _beside(result, own),
        fix=_look(blamed[0], failed=failed),
    )


def _of_pairs(result: Result, pairs: tuple[Pair, ...]) -> Problem:
    failed = any(pair.said for pair in pairs)
    shown = ", ".join(f"{_name(result, pair.one)} and {_name(result, pair.two)}" for pair in pairs)
    return Problem(
        f"between {shown} the wire {'does not work' if failed else 'is slow'}",
        cause="\n".join(_pair_shown(result, pair) for pair in pairs) + _beside(result, pairs),
        fix=_look(result.members[pairs[0].two], failed=failed),
    )


def _look(member: Member, *, failed: bool) -> str:
    if failed:
        return f"let all TCP ports in between these hosts; on {member.name}: sudo ufw status; medley facts"
    link = member.interface or "INTERFACE"
    return f"on {member.name}: ip -s link show {link}; cat /sys/class/net/{link}/speed; medley facts"


def _pair_shown(result: Result, pair: Pair) -> str:
    shown = f"{_name(result, pair.one)} to {_name(result, pair.two)}"
    if pair.said or not pair.mbit:
        return f"{shown}: {pair.said}"
    expected = expected_mbit(result, pair)
    there, back = pair.mbit
    beside = f", where its links should give {expected}" if expected else ""
    return f"{shown}: {there:.0f} Mbit/s, back {back:.0f}{beside}"


def _beside(result: Result, shown: "tuple[Pair, ...] | list[Pair]") -> str:
    rest = [pair for pair in result.pairs if pair not in shown and pair.mbit]
    best = max(rest, key=lambda pair: pair.slower_mbit, default=None)
    return f"\nthe best of the others, {_pair_shown(result, best)}" if best else ""


def _errors(result: Result) -> str:
    said = {**(result.sums or {}), **(result.broken.errors if result.broken else {})}
    return "\n".join(f"{_name(result, address)}: {text}" for address, text in said.items())


def _named(result: Result, addresses: tuple[str, ...]) -> str:
    return ", ".join(str(result.members[address]) for address in addresses)


def _name(result: Result, address: str) -> str:
    return result.members[address].name
