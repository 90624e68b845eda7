from collections.abc import Mapping
from itertools import combinations, permutations
from typing import Any

import pytest

from medley.measurement.collective.result import AllReduceResult, Pair, Participant, StepFailure
from medley.measurement.collective.verdict import (
    compute_expected_mbit,
    find_problem,
    find_slow_hosts,
    find_slow_pairs,
)

NAMES = "abcd"


def result(
    rates: Mapping[str, float], links: Mapping[str, int] | None = None, *, backend: str = "gloo"
) -> AllReduceResult:
    """Hosts a, b, … and what each pair carries, `ab=900`; 0 is a pair that fails."""
    names = sorted({name for pair in rates for name in pair})
    members = {name: Participant(name, f"host-{name}", "eth0", (links or {}).get(name)) for name in names}
    pairs = (
        Pair(first, second, (rate, rate * 1.1), 50) if rate else Pair(first, second, said="refused")
        for (first, second), rate in ((tuple(pair), rate) for pair, rate in rates.items())
    )
    return AllReduceResult(members, backend=backend, sums={}, pairs=tuple(pairs))


def even(hosts: int, mbit: float, **others: float) -> dict[str, float]:
    return {"".join(pair): mbit for pair in combinations(NAMES[:hosts], 2)} | others


@pytest.mark.parametrize(
    ("rates", "links", "hosts", "pairs"),
    [
        pytest.param(even(2, 90), {}, "", [], id="two, and nobody knows what their links should give"),
        pytest.param(even(2, 900), {"a": 1000, "b": 1000}, "", [], id="two, as fast as their links"),
        pytest.param(even(2, 90), {"a": 1000, "b": 1000}, "", ["ab"], id="two, slow: nobody can say which"),
        pytest.param(even(2, 90), {"a": 1000, "b": 100}, "", [], id="two, as fast as the slower link"),
        pytest.param(even(2, 0), {}, "", ["ab"], id="two that do not reach each other"),
        pytest.param(even(3, 900, ac=90, bc=90), {}, "c", ["ac", "bc"], id="one of three is slow"),
        pytest.param(even(3, 900, ab=90), {}, "", ["ab"], id="one cable of three is slow"),
        pytest.param(even(3, 900, ab=0), {}, "", ["ab"], id="one cable of three is broken"),
        pytest.param(even(3, 900, ab=460), {}, "", [], id="over half is noise"),
        pytest.param(even(3, 900, ab=440), {}, "", ["ab"], id="under half is not"),
        pytest.param(even(4, 900, ad=90, bd=90, cd=90), {}, "d", ["ad", "bd", "cd"], id="one of four"),
        pytest.param(even(4, 900, ad=0, bd=0, cd=0), {}, "d", ["ad", "bd", "cd"], id="one is cut off"),
        pytest.param(
            even(4, 90, ab=900), {}, "cd", ["ac", "ad", "bc", "bd", "cd"], id="two of four: five of six pairs"
        ),
        pytest.param(
            even(3, 900, ab=9000),
            {"a": 10_000, "b": 10_000, "c": 1000},
            "",
            [],
            id="a slow link by design is none that falls short",
        ),
        pytest.param(
            even(3, 90),
            dict.fromkeys("abc", 1000),
            "abc",
            ["ab", "ac", "bc"],
            id="all equally slow, which their links show",
        ),
        pytest.param(even(3, 6000), dict.fromkeys("abc", 200_000), "", [], id="Gloo is no judge of 200 Gb/s"),
    ],
)
def test_who_is_to_blame(
    rates: Mapping[str, float], links: dict[str, int], hosts: str, pairs: list[str]
) -> None:
    measured = result(rates, links)
    assert [pair.one + pair.two for pair in find_slow_pairs(measured)] == pairs
    assert "".join(member.address for member in find_slow_hosts(measured)) == hosts
    problem = find_problem(measured)
    title = problem.what if problem else ""
    expected = hosts or "".join(pairs)
    assert {name for name in NAMES if f"host-{name}" in title} == set(expected)


def test_nccl_is_judged_by_the_whole_link() -> None:
    measured = result(even(3, 6000), dict.fromkeys("abc", 200_000), backend="nccl")
    assert compute_expected_mbit(measured, measured.pairs[0]) == 200_000
    assert "".join(member.address for member in find_slow_hosts(measured)) == "abc"


def test_the_order_of_hosts_changes_nothing() -> None:
    rates = even(4, 900, ac=90, bc=90, cd=90)
    for order in permutations(NAMES):
        reordered = {"".join(pair): rates["".join(sorted(pair))] for pair in combinations(order, 2)}
        measured = result(reordered)
        members = {name: measured.members[name] for name in order}
        assert [member.address for member in find_slow_hosts(measured.replace(members=members))] == ["c"]


def test_a_slow_host_s_problem_has_the_numbers() -> None:
    problem = find_problem(result(even(3, 900, ac=90, bc=90)))
    assert problem is not None
    assert "host-c (c)" in problem.what
    assert problem.cause.splitlines() == [
        "host-a to host-c: 90 Mbit/s, back 99",
        "host-b to host-c: 90 Mbit/s, back 99",
        "the best of the others, host-a to host-b: 900 Mbit/s, back 990",
    ]
    assert "on host-c: ip -s link show eth0" in problem.fix


@pytest.mark.parametrize(
    ("changes", "what", "cause"),
    [
        pytest.param(
            {"broken": StepFailure("form the group", {"a": "timed out", "c": "no answer"}, ("c",))},
            "host-c (c) does not answer",
            "did not form the group in time",
            id="silent: before all else",
        ),
        pytest.param(
            {"broken": StepFailure("start the ranks", {"b": "CUDA error"})},
            "host-b (b) cannot take part",
            "host-b: CUDA error",
            id="no GPU",
        ),
        pytest.param(
            {"broken": StepFailure("compare sums", {"a": "timed out"})},
            "the hosts cannot compare sums together",
            "host-a: timed out",
            id="each pair works",
        ),
        pytest.param(
            {"sums": {"a": "2 sums"}}, "sums of an all-reduce are wrong", "host-a: 2 sums", id="sums"
        ),
    ],
)
def test_what_else_goes_wrong(changes: dict[str, Any], what: str, cause: str) -> None:
    problem = find_problem(result(even(3, 900)).replace(**changes))
    assert problem is not None
    assert what in problem.what
    assert cause in problem.cause


def test_wrong_sums_are_laid_to_the_host_whose_pairs_are_wrong() -> None:
    measured = result(even(3, 900, ab=0, ac=0))
    problem = find_problem(measured.replace(sums={"a": "wrong", "b": "wrong", "c": "wrong"}))
    assert problem is not None
    assert problem.what.startswith("host-a (a) is")


def test_a_pair_that_fails_once_has_failed() -> None:
    measured = result(even(3, 900))
    assert find_problem(measured.add_event({"pair": ["a", "b"], "said": "refused"})) is not None
