"""What is true of the layout of any model over any hosts."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from medley.errors import Problem
from medley.host.facts import GIB
from medley.planner import Device, Goal, HostLink, Load, Stage, describe_layout, list_devices, list_pipelines
from medley.planner.candidates import Request
from medley.planner.choose import Choice, choose_layout
from medley.planner.host_order import place_in_rank_order
from medley.planner.prediction import PredictedStageTimerFactory, predict_speed
from medley.schema import Shape
from medley.values import Value
from tests.planner.layouts import (
    MODELS,
    ONE,
    ROCE,
    TEN,
    cpu,
    orin,
    over,
    pro6000,
    rtx5090,
    spark,
    thor,
    workload,
)

MOST = (
    spark(1),
    spark(2),
    thor(1),
    thor(2),
    orin(1),
    orin(2),
    pro6000(1, 0),
    pro6000(1, 1),
    rtx5090(),
    cpu(1),
    cpu(2),
)
links = st.sampled_from((ROCE, TEN, ONE, None))
loads = st.builds(Load, st.sampled_from((1, 4, 64)))
goals: st.SearchStrategy[Goal] = st.sampled_from(("latency", "throughput", "context"))
shapes = st.sampled_from(tuple(MODELS.values()))


class Case(Value):
    shape: Shape
    devices: list[Device]
    link: HostLink | None
    goal: Goal
    load: Load


@st.composite
def clusters(draw: st.DrawFn) -> list[Device]:
    found = draw(st.lists(st.sampled_from(MOST), min_size=1, max_size=4, unique=True))
    return [
        each.replace(memory_bytes=int(each.memory_bytes * draw(st.sampled_from((1, 1, 0.9, 0.5, 1.7)))))
        for each in found
    ]


cases = st.builds(Case, shapes, clusters(), links, goals, loads)


def chosen(case: Case) -> Choice | Problem:
    try:
        work = workload(case.shape, case.load, case.goal, PredictedStageTimerFactory(case.shape, case.load))
        return choose_layout(Request(work, tuple(case.devices), over(case.link)), predict_speed)
    except Problem as problem:
        return problem


@given(cases)
@settings(max_examples=15, deadline=None)
def test_a_choice_can_be_run(case: Case) -> None:
    found = chosen(case)
    if isinstance(found, Problem):
        assert "GiB short" in found.cause
        assert found.fix
        return
    ranks = list_devices(found.layout)
    assert len(set(ranks)) == len(ranks) == len(found.fit.ranks)
    assert set(ranks) <= set(case.devices)
    for stages in list_pipelines(found.layout):
        assert sum(stage.layers for stage in stages) == case.shape.layers
        assert len({len(stage.devices) for stage in stages}) == 1
    _never_over(found)
    for each in found.rejected:
        if each.reason.startswith("does not fit"):
            assert each.reason.endswith(" short")
        assert each.candidate != describe_layout(found.layout)


def _never_over(found: Choice) -> None:
    """Also not when each takes its part of the bytes that all are told."""
    told = found.fit.kv_cache_bytes
    assert told is not None
    largest = max(rank.kv_bytes for rank in found.fit.ranks)
    for rank in found.fit.ranks:
        assert rank.total_bytes <= rank.device.memory_bytes
        cache = told * rank.kv_bytes // largest
        assert cache >= rank.kv_bytes
        assert rank.weights_bytes + rank.overhead_bytes + cache <= rank.device.memory_bytes
        assert (found.fit.utilization or 0) * (rank.device.total_bytes or 0) <= rank.device.memory_bytes + 1e4


@given(cases, st.randoms(use_true_random=False))
@settings(max_examples=8, deadline=None)
def test_the_order_of_hosts_changes_nothing(case: Case, random: Random) -> None:
    shuffled = case.replace(devices=random.sample(case.devices, len(case.devices)))
    one, other = chosen(case), chosen(shuffled)
    if isinstance(one, Problem):
        assert str(one) == str(other)
    else:
        assert one == other


@given(cases, st.integers(0, 3), st.integers(1, 40))
@settings(max_examples=8, deadline=None)
def test_more_memory_never_takes_a_fit_away(case: Case, which: int, gib: int) -> None:
    if isinstance(chosen(case), Problem):
        return
    nth = which % len(case.devices)
    more = case.devices[nth].replace(memory_bytes=case.devices[nth].memory_bytes + gib * GIB)
    larger = case.replace(devices=[*case.devices[:nth], more, *case.devices[nth + 1 :]])
    assert not isinstance(chosen(larger), Problem)


@given(cases, st.integers(0, 3), st.integers(1, 40))
@settings(max_examples=8, deadline=None)
def test_more_memory_is_never_slower(case: Case, which: int, gib: int) -> None:
    """By more than what counts as equal: then a plainer layout may be taken."""
    before = chosen(case.replace(goal="throughput"))
    if isinstance(before, Problem):
        return
    nth = which % len(case.devices)
    more = case.devices[nth].replace(memory_bytes=case.devices[nth].memory_bytes + gib * GIB)
    devices = [*case.devices[:nth], more, *case.devices[nth + 1 :]]
    after = chosen(case.replace(devices=devices, goal="throughput"))
    assert isinstance(after, Choice)
    assert after.prediction.tokens_per_s >= 0.95 * before.prediction.tokens_per_s


@given(cases, st.integers(0, 7), st.floats(1, 4), st.floats(1, 4))
@settings(max_examples=15, deadline=None)
def test_a_faster_device_never_slows_what_was_chosen(
    case: Case, which: int, bandwidth: float, tflops: float
) -> None:
    found = chosen(case)
    if isinstance(found, Problem):
        return
    ranks = list_devices(found.layout)
    slow = ranks[which % len(ranks)]
    fast = slow.replace(bandwidth_gb_s=slow.bandwidth_gb_s * bandwidth, bf16_tflops=slow.bf16_tflops * tflops)

    def faster(stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
        return tuple(
            stage.replace(devices=tuple(fast if each == slow else each for each in stage.devices))
            for stage in stages
        )

    first, *others = map(faster, list_pipelines(found.layout))
    laid = found.layout.replace(stages=first, other_pipelines=tuple(others))
    before = found.prediction.tokens_per_s
    assert predict_speed(case.shape, laid, case.load).tokens_per_s >= before * (1 - 1e-9)


@given(cases, st.floats(1, 4))
@settings(max_examples=8, deadline=None)
def test_faster_devices_are_never_slower(case: Case, times: float) -> None:
    before = chosen(case.replace(goal="throughput"))
    if isinstance(before, Problem):
        return
    devices = [
        each.replace(bandwidth_gb_s=each.bandwidth_gb_s * times, bf16_tflops=each.bf16_tflops * times)
        for each in case.devices
    ]
    after = chosen(case.replace(devices=devices, goal="throughput"))
    assert isinstance(after, Choice)
    assert after.prediction.tokens_per_s >= 0.95 * before.prediction.tokens_per_s


HOSTS = tuple(dict.fromkeys(device.host for device in MOST))


@given(cases, st.permutations(HOSTS))
@settings(max_examples=10, deadline=None)
def test_every_rank_lands_once(case: Case, order: list[str]) -> None:
    found = chosen(case.replace(goal="context"))
    if isinstance(found, Problem):
        return
    planned = [device for stage in found.layout.stages for device in stage.devices]
    torn = len(found.layout.stages[0].devices) > 1 and len({device.kind for device in planned}) > 1
    try:
        landed, _ = place_in_rank_order(found.layout, order)
    except Problem:
        assert torn
        return
    assert sorted(list_devices(landed), key=str) == sorted(planned, key=str)
    assert sum(stage.layers for stage in landed.stages) == case.shape.layers
