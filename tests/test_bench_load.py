"""What a benchmark is asked, and in which order."""

import pytest

from medley.bench.load import Load, concurrencies
from medley.problem import Problem


def test_each_repeat_has_every_concurrency_after_one_warm_up() -> None:
    runs = list(Load((1, 4), repeats=2, seed=5).runs())
    assert [(run.repeat, run.concurrency) for run in runs] == [(0, 4), (1, 1), (1, 4), (2, 1), (2, 4)]
    assert [run.requests for run in runs] == [4, 8, 16, 8, 16]


def test_no_two_runs_have_the_same_prompts() -> None:
    seeds = [run.seed for run in Load((1, 4, 16), repeats=3, seed=5).runs()]
    assert seeds == list(range(5, 15))


def test_requests_are_as_asked() -> None:
    assert {run.requests for run in Load((1, 4), requests=2).runs() if run.repeat} == {2}


def test_a_list_of_concurrencies() -> None:
    assert concurrencies("16,1,4,4") == (1, 4, 16)


@pytest.mark.parametrize("words", ["", "0", "1,", "4097", "x", "-1", "1.5"])
def test_what_is_no_list_of_concurrencies(words: str) -> None:
    with pytest.raises(Problem, match="--concurrency"):
        concurrencies(words)


def test_without_a_server_a_batch_is_repeated_in_one_start_and_a_heap_in_many() -> None:
    load = Load((1, 4), repeats=3, seed=5)
    assert [(run.concurrency, run.requests) for run in load.batches()] == [(1, 3), (4, 3)]
    assert [(run.concurrency, run.requests, run.repeat) for run in load.heaps()] == [
        (4, 16, 1),
        (4, 16, 2),
        (4, 16, 3),
    ]
    assert len({run.seed for run in load.heaps()}) == 3
