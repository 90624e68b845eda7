"""Name the hosts or pairs that are slow or broken.

A pair is slow if it fails or carries under half of its slower link (for Gloo 10 Gbit/s at most), or of the
best pair if a link is unknown. A host is slow if all its pairs are. Half is the limit because TCP on a
healthy link keeps over 90%; the best pair is the measure because two of four hosts may be slow.
"""

from collections.abc import Iterable, Sequence

from medley.command import quote_word
from medley.errors import Problem
from medley.measurement.collective.result import AllReduceResult, Pair, Participant

_MIN_SHARE = 0.5
"""The share of its expected speed that a sound pair carries."""
_GLOO_MBIT = 10_000
"""Gloo copies every byte with one processor, so beyond this speed it cannot measure a faster link."""
_PAIR_HOSTS = 2
_START_STEP = "start the ranks"
"""The name of the first step in payload/allreduce.py."""


def find_problem(result: AllReduceResult) -> Problem | None:
    """Return the first of: silent hosts, hosts that cannot start, slow hosts or pairs, wrong sums."""
    failure = result.broken
    if failure and failure.silent:
        return _silent_hosts_problem(result, failure.step, failure.silent)
    if failure and failure.step == _START_STEP:
        return Problem(
            f"{_join_names(result, failure.errors)} cannot take part",
            cause=_list_errors(result),
            fix="there: medley facts, which shows its GPU, and medley env check; if it is slow: --limit 300",
        )
    if hosts := find_slow_hosts(result):
        return _slow_hosts_problem(result, hosts)
    if pairs := find_slow_pairs(result):
        return _slow_pairs_problem(result, pairs)
    if failure:
        return Problem(
            f"the hosts cannot {failure.step} together, though each pair works",
            cause=_list_errors(result),
            fix="if the network is slow, give each step more time: medley collective-test --limit 300",
        )
    # `sums` has only wrong ones.
    return _wrong_sums_problem(result) if result.sums else None


def _wrong_sums_problem(result: AllReduceResult) -> Problem:
    return Problem(
        "the sums of an all-reduce are wrong, though each pair is right",
        cause=_list_errors(result),
        fix="nothing computed here is to be trusted: try each two hosts alone, and their memory",
    )


def find_slow_pairs(result: AllReduceResult) -> tuple[Pair, ...]:
    """Return the pairs that fail, or that carry less than half of what they should."""
    best_mbit = max((pair.slower_mbit for pair in result.pairs), default=0.0)
    return tuple(
        pair
        for pair in result.pairs
        if pair.said or pair.slower_mbit < _MIN_SHARE * (compute_expected_mbit(result, pair) or best_mbit)
    )


def find_slow_hosts(result: AllReduceResult) -> tuple[Participant, ...]:
    """Return the hosts whose pairs are all slow; none of two hosts, because either may be the cause."""
    slow_pairs = set(find_slow_pairs(result))
    if len(result.members) <= _PAIR_HOSTS:
        return ()
    return tuple(
        member
        for address, member in result.members.items()
        if (host_pairs := {pair for pair in result.pairs if address in pair}) and host_pairs <= slow_pairs
    )


def compute_expected_mbit(result: AllReduceResult, pair: Pair) -> int | None:
    """Return what the pair's links should carry; None if the speed of one is unknown."""
    speeds = [mbit for address in (pair.one, pair.two) if (mbit := result.members[address].mbit)]
    if len(speeds) < _PAIR_HOSTS:
        return None
    return min(*speeds, _GLOO_MBIT) if result.backend == "gloo" else min(speeds)


def _silent_hosts_problem(result: AllReduceResult, step: str, silent: Sequence[str]) -> Problem:
    answering_hosts = len(result.members) - len(silent)
    does, pronoun, answers = ("does", "it", "answers") if len(silent) == 1 else ("do", "they", "answer")
    return Problem(
        f"{_join_names(result, silent)} {does} not answer",
        cause=f"{pronoun} did not {step} in time, and {answers} no other question either; "
        f"{answering_hosts} of {len(result.members)} hosts do",
        fix=f"look at it: ssh {quote_word(silent[0])} uptime; "
        "then there: medley ray-stop; medley ray-worker HEAD",
    )


def _slow_hosts_problem(result: AllReduceResult, hosts: Sequence[Participant]) -> Problem:
    pairs = [pair for pair in result.pairs if any(host.address in pair for host in hosts)]
    failed = all(pair.said for pair in pairs)
    fault = "cut off from the others, or far too slow" if failed else "slow"
    return Problem(
        f"{', '.join(map(str, hosts))} {'is' if len(hosts) == 1 else 'are'} {fault}",
        cause=_format_cause(result, pairs),
        fix=_format_fix(hosts[0], failed=failed),
    )


def _slow_pairs_problem(result: AllReduceResult, pairs: Sequence[Pair]) -> Problem:
    failed = any(pair.said for pair in pairs)
    names = ", ".join(f"{_get_name(result, pair.one)} and {_get_name(result, pair.two)}" for pair in pairs)
    return Problem(
        f"between {names} the link {'does not work' if failed else 'is slow'}",
        cause=_format_cause(result, pairs),
        fix=_format_fix(result.members[pairs[0].two], failed=failed),
    )


def _format_fix(member: Participant, *, failed: bool) -> str:
    if failed:
        return f"let all TCP ports in between these hosts; on {member.name}: sudo ufw status; medley facts"
    link = member.interface or "INTERFACE"
    return f"on {member.name}: ip -s link show {link}; cat /sys/class/net/{link}/speed; medley facts"


def _format_cause(result: AllReduceResult, pairs: Sequence[Pair]) -> str:
    """Return a line for each of these pairs, and one for the best of the other pairs."""
    lines = [_format_pair(result, pair) for pair in pairs]
    other_pairs = [pair for pair in result.pairs if pair not in pairs and pair.mbit]
    if other_pairs:
        best = max(other_pairs, key=lambda pair: pair.slower_mbit)
        lines.append(f"the best of the others, {_format_pair(result, best)}")
    return "\n".join(lines)


def _format_pair(result: AllReduceResult, pair: Pair) -> str:
    names = f"{_get_name(result, pair.one)} to {_get_name(result, pair.two)}"
    if pair.said or not pair.mbit:
        return f"{names}: {pair.said}"
    expected_mbit = compute_expected_mbit(result, pair)
    expected_text = f", where its links should give {expected_mbit}" if expected_mbit else ""
    return f"{names}: {pair.mbit[0]:.0f} Mbit/s, back {pair.mbit[1]:.0f}{expected_text}"


def _list_errors(result: AllReduceResult) -> str:
    errors = {**(result.sums or {}), **(result.broken.errors if result.broken else {})}
    return "\n".join(f"{_get_name(result, address)}: {text}" for address, text in errors.items())


def _join_names(result: AllReduceResult, addresses: Iterable[str]) -> str:
    return ", ".join(str(result.members[address]) for address in addresses)


def _get_name(result: AllReduceResult, address: str) -> str:
    return result.members[address].name
