"""The estimates by which benchmarks of hours judge, and the load that they draw by a seed."""

import json
import math
import random
from dataclasses import asdict
from itertools import islice
from pathlib import Path

import pytest

from benchmarks.completions import halves, prompt
from benchmarks.estimates import mean_ratio, slope, student_t
from benchmarks.soak import GROUPS, Sample, group_of, growth
from benchmarks.soak_load import SECONDS, phases
from benchmarks.throughput import WAYS, Burst, Pair, intervals, page, read, verdict


@pytest.mark.parametrize(
    ("freedom", "value"), [(1, 12.706), (2, 4.303), (4, 2.776), (6, 2.447), (19, 2.093), (120, 1.980)]
)
def test_students_t_is_that_of_the_tables(freedom: int, value: float) -> None:
    assert student_t(freedom) == pytest.approx(value, rel=0.002)


def test_a_mean_ratio_lies_within_its_interval_and_equal_ratios_have_none() -> None:
    estimate = mean_ratio([0.9, 1.0, 1.1])
    assert estimate.low < estimate.middle < estimate.high
    assert estimate.middle == pytest.approx((0.9 * 1.0 * 1.1) ** (1 / 3))
    assert estimate.half_width == pytest.approx(math.exp(student_t(2) * _error([0.9, 1.0, 1.1])) - 1)
    assert mean_ratio([0.97] * 5).half_width == pytest.approx(0)


def _error(ratios: list[float]) -> float:
    logs = [math.log(value) for value in ratios]
    middle = sum(logs) / len(logs)
    return math.sqrt(sum((value - middle) ** 2 for value in logs) / (len(logs) - 1) / len(logs))


def test_nineteen_of_twenty_intervals_hold_the_true_ratio() -> None:
    source = random.Random(7)
    hits = 0
    for _ in range(1000):
        estimate = mean_ratio([0.98 * math.exp(source.gauss(0, 0.05)) for _ in range(20)])
        hits += estimate.low <= 0.98 <= estimate.high
    assert 930 <= hits <= 970


def test_a_slope_is_found_among_wild_samples() -> None:
    points = [(float(x), 3 + 0.5 * x) for x in range(40)]
    points[7], points[20], points[39] = (7.0, 1000.0), (20.0, -500.0), (39.0, 800.0)
    assert slope(points) == pytest.approx(0.5, abs=0.01)


def test_growth_is_that_of_an_hour_after_the_warm_up() -> None:
    def sample(at_s: float) -> Sample:
        return Sample(at_s, {"medley descriptors": 20 + at_s if at_s < 600 else 30 + at_s / 900}, frozenset())

    grown = growth([sample(30.0 * number) for number in range(100)], 600)
    assert grown["medley descriptors"] == pytest.approx(4)
    assert growth([sample(700), sample(730)], 600) == {}


def test_the_same_seed_draws_the_same_phases_and_a_round_has_each_kind() -> None:
    first, repeated, different = (list(islice(phases(seed), 50)) for seed in (3, 3, 4))
    assert first == repeated != different
    for start in range(0, 50, len(SECONDS)):
        assert {phase.kind for phase in first[start : start + len(SECONDS)]} == set(SECONDS)
    assert all(SECONDS[phase.kind][0] <= phase.seconds <= SECONDS[phase.kind][1] for phase in first)


def test_prompts_differ_from_their_first_words_on_and_have_the_length_asked_for() -> None:
    prompts = [prompt(number, 64) for number in range(3000)]
    assert len({text[:13] for text in prompts}) == len(prompts), "else the engine would know a part of them"
    assert {len(text.split()) for text in prompts} == {64}
    assert len(prompt(5, 2).split()) == 2


def test_processes_are_medleys_the_engines_or_rays() -> None:
    assert group_of("python -m medley serve demo", "") == "medley"
    assert group_of("env/bin/vllm serve", "medley") == "engine"
    assert group_of("python -c from multiprocessing.spawn import", "engine") == "engine"
    assert group_of("env/lib/ray/core/src/ray/raylet/raylet --x", "medley") == "ray"
    assert group_of("/usr/sbin/sshd -D", "") == ""
    assert set(GROUPS) == {"medley", "engine", "ray"}


def pair(start: int, ratio: float, cpu_s: float = 2.0) -> Pair:
    rates = {"medley": 100 * ratio, "raw": 100}
    bursts = [Burst(way, 200, 200 / rates[way], cpu_s, 0.01) for way in (*WAYS, *reversed(WAYS))]
    return Pair(start, 1.0, tuple(bursts))


def test_enough_equal_pairs_meet_the_bound() -> None:
    lines = list(verdict([pair(number // 4, 0.97 + number % 2 / 50) for number in range(20)]))
    assert any(line.startswith("Met: ") for line in lines), lines


@pytest.mark.parametrize(
    "pairs",
    [
        [pair(number // 4, 0.93 + number % 2 / 100) for number in range(20)],
        [pair(number // 4, (0.7, 1.4)[number % 2]) for number in range(20)],
        [pair(number // 4, 0.99 + number % 2 / 100) for number in range(19)],
        [pair(number // 4, (0.8, 1.2, 1.1, 0.9, 1.0)[number // 4]) for number in range(20)],
    ],
    ids=["slower", "noisy", "too few", "starts differ"],
)
def test_others_do_not(pairs: list[Pair]) -> None:
    lines = list(verdict(pairs))
    assert any(line.startswith("Not met: ") for line in lines), lines


def test_the_interval_of_starts_is_wider_where_starts_differ_and_pairs_do_not() -> None:
    by_pairs, by_starts = intervals([pair(number // 4, (0.9, 1.0, 1.1)[number // 4]) for number in range(12)])
    assert by_starts[1].half_width > by_pairs[1].half_width
    assert by_pairs[1].middle == pytest.approx(by_starts[1].middle)


def test_words_after_two_dashes_are_serves() -> None:
    assert halves(["20", "--write", "--", "--stall-limit", "20"]) == (
        ["20", "--write"],
        ["--stall-limit", "20"],
    )
    assert halves(["20"]) == (["20"], [])


def test_a_page_has_its_conditions_a_row_for_each_pair_and_what_the_idle_server_used() -> None:
    text = page("16 streams", [pair(0, 0.99), pair(0, 1.01)])
    assert "16 streams" in text
    assert "pair  2: medley  101.0 tokens/s, raw  100.0, ratio 1.010; of processor time 1.000" in text
    assert "medley 1.0%, raw 1.0%" in text
    assert "Not met: " in text, "two pairs are too few"


def test_a_pair_that_was_kept_is_read_again(tmp_path: Path) -> None:
    assert read(tmp_path / "1.json") is None
    (tmp_path / "1.json").write_text(json.dumps(asdict(pair(3, 0.98))))
    assert read(tmp_path / "1.json") == pair(3, 0.98)
