import pytest
from hypothesis import given
from hypothesis import strategies as some

from medley.problem import Problem
from medley.transfer.chain import chain


def test_each_takes_it_from_the_one_before() -> None:
    assert chain(("a", "b", "c", "d"), {"b"}) == {
        "a": ("b",),
        "c": ("a", "b"),
        "d": ("c", "a", "b"),
    }


def test_two_that_have_it_head_a_chain_each() -> None:
    assert chain(("a", "b", "c", "d", "e"), {"a", "b"}) == {
        "c": ("a", "b"),
        "d": ("b", "a"),
        "e": ("d", "b", "a"),
    }


def test_where_all_have_it_nobody_asks() -> None:
    assert chain(("a", "b"), {"a", "b"}) == {}


def test_where_none_has_it_is_a_problem() -> None:
    with pytest.raises(Problem, match="no host has the model"):
        chain(("a", "b"), {"c"})


@given(some.sets(some.integers(0, 12), min_size=1), some.data())
def test_nobody_waits_for_itself(numbers: set[int], data: some.DataObject) -> None:
    """Each that lacks it is in one chain, all chains are as long, and no source asks those it serves."""
    hosts = [str(number) for number in sorted(numbers)]
    having = data.draw(some.sets(some.sampled_from(hosts), min_size=1))
    found = chain(hosts, having)
    assert set(found) == set(hosts) - having
    for host, sources in found.items():
        assert having < {*sources, host}
        for source in sources:
            assert host not in found.get(source, ())
    own = [len(sources) - len(having) for sources in found.values()]
    assert max(own, default=0) <= (len(found) + len(having) - 1) // len(having)
