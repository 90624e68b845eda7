import pytest

from medley.errors import Problem
from medley.host.facts import GIB
from medley.planner import Device, Goal, HostLink, Layout, Load, Stage, count_parallel_sizes, list_hosts
from medley.planner.candidates import ForcedSizes, Request
from medley.planner.choose import Choice, choose_layout
from medley.planner.prediction import Prediction
from medley.planner.remedies import NoLayout
from medley.schema import Shape
from tests.planner.layouts import (
    GPT_OSS_120B,
    ONE,
    QWEN_30B,
    QWEN_30B_FP8,
    QWEN_72B,
    ROCE,
    TEN,
    cpu,
    orin,
    over,
    predict,
    pro6000,
    rtx5090,
    spark,
    thor,
    timed,
    workload,
)

SPARKS = (spark(1), spark(2))
MIXED = (spark(1), pro6000())


def chosen(
    shape: Shape,
    *devices: Device,
    link: HostLink | None = ROCE,
    goal: Goal = "latency",
    concurrency: int = 1,
    context: int | None = None,
    forced: ForcedSizes | None = None,
) -> Choice:
    work = workload(shape, Load(concurrency), goal, timed(shape), context)
    return choose_layout(Request(work, devices, over(link), forced or ForcedSizes()), predict)


@pytest.mark.parametrize(
    ("shape", "devices", "link", "load", "expected"),
    [
        pytest.param(
            QWEN_30B, MIXED, ROCE, ("latency", 1), ((1, 1, 1), 1), id="a slow host would only delay"
        ),
        pytest.param(QWEN_72B, SPARKS, ROCE, ("latency", 1), ((2, 1, 1), 2), id="RoCE: tensor parallel"),
        pytest.param(QWEN_72B, SPARKS, ONE, ("latency", 1), ((1, 2, 1), 2), id="1GbE: a pipeline"),
        pytest.param(QWEN_30B, SPARKS, ONE, ("throughput", 64), ((1, 1, 2), 2), id="fits on each: replicas"),
        pytest.param(QWEN_72B, MIXED, ROCE, ("latency", 1), ((1, 2, 1), 2), id="fits on neither: a pipeline"),
        pytest.param(
            GPT_OSS_120B, (orin(1), orin(2)), TEN, ("latency", 1), ((2, 1, 1), 2), id="as in the guide"
        ),
        pytest.param(
            QWEN_72B,
            (*SPARKS, thor(1), thor(2)),
            TEN,
            ("context", 16),
            ((2, 2, 1), 4),
            id="for context: all the memory there is",
        ),
    ],
)
def test_choice(
    shape: Shape,
    devices: tuple[Device, ...],
    link: HostLink,
    load: tuple[Goal, int],
    expected: tuple[tuple[int, int, int], int],
) -> None:
    goal, concurrency = load
    found = chosen(shape, *devices, link=link, goal=goal, concurrency=concurrency)
    assert (count_parallel_sizes(found.layout), len(list_hosts(found.layout))) == expected


def test_about_as_good_takes_fewer_hosts() -> None:
    """Two replicas serve one stream no faster than one host does."""
    found = chosen(QWEN_30B, *SPARKS, link=ONE)
    assert list_hosts(found.layout) == ("spark-1",)
    assert any(
        "about as fast, 2 hosts and 2 ranks instead of 1 host and 1 rank" in each.reason
        for each in found.rejected
    )


def test_a_gain_below_the_predictions_error_is_not_worth_a_host() -> None:
    def told(shape: Shape, layout: Layout, load: Load) -> Prediction:
        """Two stages are 3 % faster than one."""
        alone = predict(shape, Layout((Stage((spark(1),), shape.layers),)), load)
        return alone.replace(per_stream=alone.per_stream * (1.03 if len(layout.stages) > 1 else 1))

    found = choose_layout(Request(workload(QWEN_30B, timed=timed(QWEN_30B)), SPARKS, over(ONE)), told)
    assert list_hosts(found.layout) == ("spark-1",)


def test_what_nearly_fits_comes_first() -> None:
    """Alone on the Spark 36.3 GiB are missing, on the RTX 52.8."""
    found = chosen(QWEN_72B, *MIXED)
    assert [each.candidate for each in found.rejected] == ["spark-1 alone", "rtx-1 alone"]


def test_reasons_have_numbers() -> None:
    """72B on a Spark and an RTX: neither holds it alone."""
    found = chosen(QWEN_72B, *MIXED)
    assert found.why[0].startswith(
        "2 stages of 49,31 layers on rtx-1, spark-1: the only layout that fits; 2 "
    )
    assert [each.reason for each in found.rejected if each.candidate == "spark-1 alone"] == [
        "does not fit: spark-1 0: weights 135.4 + KV cache 2.5 + engine 2.4 = 140.3 of 103.4 GiB, 36.9 short"
    ]
    assert any("88.0 GiB" in line for line in found.why)


def test_the_slower_are_rejected_with_their_speed() -> None:
    """Weights of 143 GB over 273 and 546 GB/s: 1.9 and 3.8 tokens/s."""
    found = chosen(QWEN_72B, *SPARKS)
    assert found.prediction.per_stream == pytest.approx(3.8, abs=0.1)
    because = next(each.reason for each in found.rejected if each.candidate.startswith("2 stages"))
    assert because == "1.9 tok/s per stream, the chosen layout 3.8: -50%"


def test_nothing_fits() -> None:
    with pytest.raises(NoLayout) as caught:
        chosen(QWEN_30B, rtx5090())
    assert "30.9 GiB short in the nearest of 1 layout" in caught.value.cause
    found = caught.value.remedies
    assert found
    small = next(each for each in found.variants if each.weights == "nvfp4")
    assert (round(small.size_bytes / GIB, 1), small.fits) == (16.8, True)
    assert (found.hosts, found.largest_host) == (3, "pc")
    assert caught.value.fix.startswith("medley models")


def test_a_smaller_context_is_offered() -> None:
    with pytest.raises(NoLayout) as caught:
        chosen(GPT_OSS_120B, spark(), context=131072, concurrency=16)
    found = caught.value.remedies
    assert found
    assert 8192 < found.context < 131072
    assert 0 < found.concurrency < 16


def test_without_a_device() -> None:
    with pytest.raises(Problem) as caught:
        chosen(QWEN_30B)
    assert "there is no device" in caught.value.cause


def test_forced_between_unlike_hosts_is_obeyed_with_its_price() -> None:
    """3.35 billion of 16 bits at 273 GB/s halved against 1792 alone: a fraction of the speed."""
    found = chosen(QWEN_30B, *MIXED, forced=ForcedSizes(tensor_parallel=2))
    assert count_parallel_sizes(found.layout) == (2, 1, 1)
    unwise, price = found.warnings
    assert unwise.startswith("tensor parallel between NVIDIA GB10 and RTX PRO 6000")
    assert price.startswith("--tp 2, as asked:")
    free = chosen(QWEN_30B, *MIXED)
    change = found.prediction.per_stream / free.prediction.per_stream - 1
    assert change < -0.3
    assert f"({change:+.0%})" in price


def test_forced_over_a_slow_link_is_obeyed() -> None:
    found = chosen(QWEN_72B, *SPARKS, link=ONE, forced=ForcedSizes(tensor_parallel=2))
    assert count_parallel_sizes(found.layout) == (2, 1, 1)
    assert any("1 Gbit/s TCP: each layer waits for the network twice" in line for line in found.warnings)


def test_forced_as_it_would_be_chosen_has_no_warning() -> None:
    found = chosen(QWEN_72B, *SPARKS, forced=ForcedSizes(tensor_parallel=2, stages=1))
    assert found.layout == chosen(QWEN_72B, *SPARKS).layout
    assert found.warnings == ()


def test_forced_pipeline_of_cpus() -> None:
    """One with 0.3 of the speed carries that much less."""
    slow = cpu(2).replace(bandwidth_gb_s=6, bf16_tflops=0.15)
    small = QWEN_30B.replace(layers=12)
    found = chosen(small, cpu(1), slow, link=TEN, concurrency=4, forced=ForcedSizes(stages=2))
    fast, behind = (stage.layers for stage in found.layout.stages)
    assert found.layout.stages[0].devices[0].host == "cpu-1"
    assert fast > 2 * behind


@pytest.mark.parametrize(
    ("shape", "devices", "forced", "said"),
    [
        pytest.param(
            QWEN_72B,
            tuple(spark(nth) for nth in range(1, 5)),
            ForcedSizes(tensor_parallel=3),
            ("--tp 3 cannot split this model", "64 attention heads are not a multiple of 3", "1, 2, 4"),
            id="heads",
        ),
        pytest.param(
            QWEN_72B,
            SPARKS,
            ForcedSizes(tensor_parallel=2, stages=2),
            ("needs 4 devices, and there are 2", "each rank takes one", "ray-worker"),
            id="too few",
        ),
        pytest.param(
            QWEN_72B,
            SPARKS,
            ForcedSizes(replicas=2),
            ("does not fit", "36.9 GiB short", "medley models"),
            id="each is too small",
        ),
        pytest.param(
            QWEN_30B.replace(layers=1),
            SPARKS,
            ForcedSizes(stages=2),
            ("--pp 2 cannot split this model", "2 stages are more than its 1 layers", "--pp 1"),
            id="layers",
        ),
        pytest.param(
            QWEN_30B_FP8,
            (spark(1), cpu(1)),
            ForcedSizes(tensor_parallel=2),
            ("no layout has --tp 2", "a CPU and a GPU", "remove"),
            id="CPU and GPU",
        ),
    ],
)
def test_forced_that_cannot_be(
    shape: Shape, devices: tuple[Device, ...], forced: ForcedSizes, said: tuple[str, str, str]
) -> None:
    with pytest.raises(Problem) as caught:
        chosen(shape, *devices, forced=forced)
    problem = caught.value
    for words, text in zip(said, (problem.what, problem.cause, problem.fix), strict=True):
        assert words in text


def test_of_two_cuts_about_as_fast_the_roomier_is_taken() -> None:
    """For one stream the faster host may carry all it can hold; a hundredth is not worth a full host."""
    fast, slow = thor(1).replace(bandwidth_gb_s=273.0), spark(1).replace(bandwidth_gb_s=265.0)
    found = chosen(QWEN_72B, fast, slow, forced=ForcedSizes(1, 2, 1))
    assert any("about as fast, fits " in each.reason for each in found.rejected)
    assert min(rank.free_bytes for rank in found.fit.ranks) > 20 * GIB
