"""Name the hosts or pairs that are slow or broken.

A pair falls short if it fails or carries under half of its slower link (for Gloo 10 Gbit/s at most), or
of the best pair if a link is unknown. A host is to blame if all its pairs fall short. Half, because TCP
on a healthy link keeps over 90%; the best pair, because of four hosts two may be slow.
"""

from collections.abc import Iterable, Sequence

from medley.errors import Problem
from medley.measurement.collective import Pair, Participant, Result

ENOUGH = 0.5
_GLOO_MBIT = 10_000
"""Gloo copies every byte with one processor: beyond this it is no measure of a faster link."""
_TWO = 2
_START = "start the ranks"
"""As payload/allreduce.py names it."""


def verdict(result: Result) -> Problem | None:
    broken = result.broken
    if broken and broken.silent:
        return _silent(result, broken.step, broken.silent)
    if broken and broken.step == _START:
        return Problem(
            f"{_named(result, broken.errors)} cannot take part",
            cause=_errors(result),
            fix="there: medley facts, which shows its GPU, and medley env check; if it is slow: --limit 300",
        )
    if blamed := hosts_to_blame(result):
        return _slow_hosts(result, blamed)
    if pairs := pairs_that_fall_short(result):
        return _slow_pairs(result, pairs)
    if broken:
        return Problem(
            f"the hosts cannot {broken.step} together, though each pair works",
            cause=_errors(result),
            fix="if the network is slow, give each step more time: medley collective-test --limit 300",
        )
    return _wrong_sums(result) if result.sums else None


def _wrong_sums(result: Result) -> Problem:
    return Problem(
        "the sums of an all-reduce are wrong, though each pair is right",
        cause=_errors(result),
        fix="nothing computed here is to be trusted: try each two hosts alone, and their memory",
    )


def pairs_that_fall_short(result: Result) -> tuple[Pair, ...]:
    best = max((pair.slower_mbit for pair in result.pairs), default=0.0)
    return tuple(
        pair
        for pair in result.pairs
        if pair.said or pair.slower_mbit < ENOUGH * (expected_mbit(result, pair) or best)
    )


def hosts_to_blame(result: Result) -> tuple[Participant, ...]:
    """Those of which every pair falls short; of two hosts none, because nobody can tell which it is."""
    short = set(pairs_that_fall_short(result))
    if len(result.members) <= _TWO:
        return ()
    return tuple(
        member
        for address, member in result.members.items()
        if (own := {pair for pair in result.pairs if address in pair}) and own <= short
    )


def expected_mbit(result: Result, pair: Pair) -> int | None:
    """What its links should give, where both are known."""
    known = [mbit for address in (pair.one, pair.two) if (mbit := result.members[address].mbit)]
    if len(known) < _TWO:
        return None
    return min(*known, _GLOO_MBIT) if result.backend == "gloo" else min(known)


def _silent(result: Result, step: str, silent: Sequence[str]) -> Problem:
    others = len(result.members) - len(silent)
    does, it, answers = ("does", "it", "answers") if len(silent) == 1 else ("do", "they", "answer")
    return Problem(
        f"{_named(result, silent)} {does} not answer",
        cause=f"{it} did not {step} in time, and {answers} no other question either; "
        f"{others} of {len(result.members)} hosts do",
        fix=f"look at it: ssh {silent[0]} uptime; then there: medley ray-stop; medley ray-worker HEAD",
    )


def _slow_hosts(result: Result, blamed: Sequence[Participant]) -> Problem:
    own = [pair for pair in result.pairs if any(member.address in pair for member in blamed)]
    failed = all(pair.said for pair in own)
    trouble = "cut off from the others, or far too slow" if failed else "slow"
    return Problem(
        f"{', '.join(map(str, blamed))} {'is' if len(blamed) == 1 else 'are'} {trouble}",
        cause=_cause(result, own),
        fix=_fix(blamed[0], failed=failed),
    )


def _slow_pairs(result: Result, pairs: Sequence[Pair]) -> Problem:
    failed = any(pair.said for pair in pairs)
    names = ", ".join(f"{_name(result, pair.one)} and {_name(result, pair.two)}" for pair in pairs)
    return Problem(
        f"between {names} the link {'does not work' if failed else 'is slow'}",
        cause=_cause(result, pairs),
        fix=_fix(result.members[pairs[0].two], failed=failed),
    )


def _fix(member: Participant, *, failed: bool) -> str:
    if failed:
        return f"let all TCP ports in between these hosts; on {member.name}: sudo ufw status; medley facts"
    link = member.interface or "INTERFACE"
    return f"on {member.name}: ip -s link show {link}; cat /sys/class/net/{link}/speed; medley facts"


def _cause(result: Result, pairs: Sequence[Pair]) -> str:
    """Each of these pairs, and the best of the others."""
    lines = [_pair_text(result, pair) for pair in pairs]
    rest = [pair for pair in result.pairs if pair not in pairs and pair.mbit]
    if rest:
        best = max(rest, key=lambda pair: pair.slower_mbit)
        lines.append(f"the best of the others, {_pair_text(result, best)}")
    return "\n".join(lines)


def _pair_text(result: Result, pair: Pair) -> str:
    names = f"{_name(result, pair.one)} to {_name(result, pair.two)}"
    if pair.said or not pair.mbit:
        return f"{names}: {pair.said}"
    expected = expected_mbit(result, pair)
    should = f", where its links should give {expected}" if expected else ""
    return f"{names}: {pair.mbit[0]:.0f} Mbit/s, back {pair.mbit[1]:.0f}{should}"


def _errors(result: Result) -> str:
    errors = {**(result.sums or {}), **(result.broken.errors if result.broken else {})}
    return "\n".join(f"{_name(result, address)}: {text}" for address, text in errors.items())


def _named(result: Result, addresses: Iterable[str]) -> str:
    return ", ".join(str(result.members[address]) for address in addresses)


def _name(result: Result, address: str) -> str:
    return result.members[address].name
