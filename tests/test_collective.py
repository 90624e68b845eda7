import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import pytest

from medley import collective, transcript, trial
from medley.collective import Broken, Member, Pair, Rate, Result
from medley.facts import facts
from medley.problem import Problem
from medley.verdict import expected_mbit, hosts_to_blame, pairs_that_fall_short, verdict

HOSTS = Path(__file__).parent / "hosts"
NAMES = "abcd"


def result(
    rates: Mapping[str, float], links: Mapping[str, int] | None = None, *, backend: str = "gloo"
) -> Result:
    """Hosts a, b, … and what each pair carries, `ab=900`; 0 is a pair that fails."""
    names = sorted({name for pair in rates for name in pair})
    members = {name: Member(name, f"host-{name}", "eth0", (links or {}).get(name)) for name in names}
    pairs = (
        Pair(one, two, (rate, rate * 1.1), 50) if rate else Pair(one, two, said="refused")
        for (one, two), rate in ((tuple(pair), rate) for pair, rate in rates.items())
    )
    return Result(members, backend=backend, sums={}, pairs=tuple(pairs), ended=True)


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
    found = result(rates, links)
    assert [pair.one + pair.two for pair in pairs_that_fall_short(found)] == pairs
    assert "".join(member.address for member in hosts_to_blame(found)) == hosts
    problem = verdict(found)
    named = problem.what if problem else ""
    blamed = hosts or "".join(pairs)
    assert {name for name in NAMES if f"host-{name}" in named} == set(blamed)


def test_nccl_is_judged_by_the_whole_link() -> None:
    found = result(even(3, 6000), dict.fromkeys("abc", 200_000), backend="nccl")
    assert expected_mbit(found, found.pairs[0]) == 200_000
    assert "".join(member.address for member in hosts_to_blame(found)) == "abc"


def test_the_order_of_hosts_changes_nothing() -> None:
    rates = even(4, 900, ac=90, bc=90, cd=90)
    for order in permutations(NAMES):
        given = {"".join(pair): rates["".join(sorted(pair))] for pair in combinations(order, 2)}
        found = result(given)
        members = {name: found.members[name] for name in order}
        assert [member.address for member in hosts_to_blame(replace(found, members=members))] == ["c"]


def test_a_slow_host_s_problem_has_the_numbers() -> None:
    problem = verdict(result(even(3, 900, ac=90, bc=90)))
    assert problem is not None
    assert problem.what == "host-c (c) is slow"
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
            {"broken": Broken("form the group", {"a": "timed out", "c": "no answer"}, ("c",))},
            "host-c (c) does not answer",
            "did not form the group in time",
            id="silent: before all else",
        ),
        pytest.param(
            {"broken": Broken("start the ranks", {"b": "CUDA error"})},
            "host-b (b) cannot take part",
            "host-b: CUDA error",
            id="no GPU",
        ),
        pytest.param(
            {"broken": Broken("compare sums", {"a": "timed out"})},
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
    problem = verdict(replace(result(even(3, 900)), **changes))
    assert problem is not None
    assert what in problem.what
    assert cause in problem.cause


def test_wrong_sums_are_laid_to_the_host_whose_pairs_are_wrong() -> None:
    found = result(even(3, 900, ab=0, ac=0))
    problem = verdict(replace(found, sums={"a": "wrong", "b": "wrong", "c": "wrong"}))
    assert problem is not None
    assert problem.what.startswith("host-a (a) is")


@pytest.mark.parametrize(
    ("hosts", "bus"),
    [
        pytest.param(2, 100.0, id="two: as fast as the algorithm"),
        pytest.param(4, 150.0, id="four: 2 x 3/4"),
        pytest.param(8, 175.0, id="eight: 2 x 7/8"),
    ],
)
def test_bandwidth_of_the_bus_as_nccl_tests_has_it(hosts: int, bus: float) -> None:
    rate = Rate(12_500_000, 1.0, hosts)
    assert rate.algorithm_mbit == pytest.approx(100)
    assert rate.bus_mbit == pytest.approx(bus)
    assert Rate(8, None, hosts).bus_mbit is None


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        pytest.param(collective.SIZES, (8, 65536, 1 << 20, 16 << 20), id="the usual"),
        pytest.param("1m, 64KiB,4", (4, 65536, 1 << 20), id="ascending, whatever is typed"),
    ],
)
def test_sizes(text: str, sizes: tuple[int, ...]) -> None:
    assert collective.sizes(text) == sizes


@pytest.mark.parametrize("text", ["3", "0", "-8", "5G", "x", "1.5M", "8 9", "9" * 30])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(Problem, match="is no size"):
        collective.sizes(text)


@pytest.mark.parametrize(
    ("name", "interface", "mbit"),
    [
        pytest.param("orin-pair-a", "eno1", 10_000, id="as its driver says"),
        pytest.param("spark-pair-a", "enp1s0f1np1", 126_030, id="a Spark's twin: what its PCIe lanes carry"),
        pytest.param("cpu-rack", "bond0.40", None, id="without a driver, as a veth is, which says 10000"),
    ],
)
def test_what_a_link_should_give(name: str, interface: str, mbit: int | None) -> None:
    host = facts(transcript.parse((HOSTS / f"{name}.txt").read_text()))
    (address,) = (link.addresses[0].ip for link in host.net.links if link.name == interface)
    assert collective.mbit(host, address) == mbit
    assert collective.mbit(host, "203.0.113.1") is None


EVENTS: tuple[dict[str, Any], ...] = (
    {"step": "start the ranks"},
    {
        "hosts": {
            "a": {"interface": "eth0", "facts": "", "gpu": None},
            "b": {"interface": "eth1", "facts": "no transcript", "gpu": None},
        },
        "backend": "gloo",
        "why": "CPUs",
    },
    {"sums": {}},
    {"size": 8, "seconds": 0.001},
    {"size": 1 << 20, "seconds": None},
    {"pair": ["a", "b"], "said": None, "bytes": 1_000_000, "seconds": [0.1, 0.2], "latency_s": 0.0001},
    {"pair": ["a", "b"], "said": None, "bytes": 1_000_000, "seconds": [0.01, 0.02], "latency_s": 0.0002},
    {"done": True},
)


def test_events_fold_into_a_result_that_json_takes() -> None:
    found = Result({"a": Member("a", "one"), "b": Member("b", "two")})
    for event in EVENTS:
        found = collective.folded(found, event)
    assert found.ended
    assert found.members["b"] == Member("b", "two", "eth1")
    assert found.rates == (Rate(8, 0.001, 2), Rate(1 << 20, None, 2))
    (pair,) = found.pairs
    assert pair.mbit == pytest.approx((800, 400)), "the faster turn"
    assert pair.latency_us == pytest.approx(200)
    table = json.loads(json.dumps(found.tables(verdict(found))))
    assert [each["name"] for each in table["members"]] == ["one", "two"]
    assert table["rates"][0]["bus_mbit"] == pytest.approx(0.064)
    assert table["problem"] is None


def test_without_a_cluster_there_is_nothing_to_try(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path))
    with pytest.raises(Problem, match="in no cluster"):
        trial.cluster()


def test_a_pair_that_fails_once_has_failed() -> None:
    found = result(even(3, 900))
    assert verdict(collective.folded(found, {"pair": ["a", "b"], "said": "refused"})) is not None


def test_a_step_that_breaks_is_kept_with_who_was_silent() -> None:
    event = {"broken": "form the group", "errors": {"a": "timed out"}, "silent": ["b"]}
    assert collective.folded(Result(), event).broken == Broken("form the group", {"a": "timed out"}, ("b",))
