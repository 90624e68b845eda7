import pytest

from medley.host.facts import GIB
from medley.planner import Layout, Load
from medley.planner.fit import compute_fit
from medley.planner.memory import compute_usable_bytes
from medley.planner.partition import Workload
from medley.planner.remedies import find_remedies
from medley.schema import Shape
from tests.planner.layouts import (
    GPT_OSS_120B,
    QWEN_30B,
    QWEN_72B,
    orin,
    pipeline,
    pro6000,
    rtx5090,
    spark,
    with_memory,
)


@pytest.mark.parametrize(
    ("shape", "layout", "context", "concurrency", "fits"),
    [
        # What users run, from the guides: these do fit.
        pytest.param(QWEN_72B, pipeline((80, (spark(), pro6000()))), 2048, 8, True, id="72B, Spark + RTX"),
        pytest.param(GPT_OSS_120B, pipeline((36, (orin(1), orin(2)))), 2048, 10, True, id="120B, two Orins"),
        pytest.param(GPT_OSS_120B, pipeline((36, (spark(),))), 32768, 1, True, id="120B, one Spark"),
        # 135.4 GiB of weights: on neither alone.
        pytest.param(QWEN_72B, pipeline((80, (spark(),))), 2048, 1, False, id="72B, one Spark"),
        pytest.param(QWEN_72B, pipeline((80, (pro6000(),))), 2048, 1, False, id="72B, one RTX"),
        # 60.8 GiB of weights in 49.0
        pytest.param(GPT_OSS_120B, pipeline((36, (orin(),))), 2048, 1, False, id="120B, one Orin"),
        # 40 layers are 65.4 GiB and the embedding 2.3: either half fits, 60 of them do not fit the RTX.
        pytest.param(QWEN_72B, pipeline((40, (pro6000(),)), (40, (spark(),))), 2048, 1, True, id="72B, PP 2"),
        pytest.param(
            QWEN_72B, pipeline((60, (pro6000(),)), (20, (spark(),))), 2048, 1, False, id="72B, cut badly"
        ),
    ],
)
def test_fits(shape: Shape, layout: Layout, context: int, concurrency: int, *, fits: bool) -> None:
    found = compute_fit(Workload(shape, context, Load(concurrency)), layout)
    assert found.fits == fits
    assert (found.context >= context) == fits
    assert (found.concurrency >= concurrency) == fits
    assert (found.kv_cache_bytes is not None) == fits


def test_by_how_much_it_does_not_fit() -> None:
    """135.4 weights, 2.5 for 8192 tokens, 1.0 engine, 1.2 activations, 0.2 sampler: 140.3 of 103.4."""
    found = compute_fit(Workload(QWEN_72B, 8192), pipeline((80, (spark(),))))
    assert found.short_bytes == pytest.approx(36.9 * GIB, rel=0.01)
    assert str(found.worst) == (
        "spark-1 0: weights 135.4 + KV cache 2.5 + engine 2.4 = 140.3 of 103.4 GiB, 36.9 short"
    )


def test_the_largest_context() -> None:
    """Of 103.4 GiB less 60.8 weights and 1.5 engine: 41 GiB for 10 of 36 864 bytes a token and a window."""
    found = compute_fit(Workload(GPT_OSS_120B, 8192, Load(10)), pipeline((36, (spark(),))))
    free = found.ranks[0].device.memory_bytes - found.ranks[0].weights_bytes - found.ranks[0].overhead_bytes
    assert found.context == int((free / 10 / 36_864 - 4240) // 16 * 16)
    assert compute_fit(Workload(GPT_OSS_120B, found.context, Load(10)), pipeline((36, (spark(),)))).fits
    assert not compute_fit(
        Workload(GPT_OSS_120B, found.context + 16, Load(10)), pipeline((36, (spark(),)))
    ).fits


def test_the_most_sequences_at_once() -> None:
    layout = pipeline((36, (spark(),)))
    found = compute_fit(Workload(GPT_OSS_120B, 8192), layout)
    assert compute_fit(Workload(GPT_OSS_120B, 8192, Load(found.concurrency)), layout).fits
    assert not compute_fit(Workload(GPT_OSS_120B, 8192, Load(found.concurrency + 1)), layout).fits


def test_one_number_of_bytes_for_all_ranks() -> None:
    """60 layers beside 20: told the need of 60, the other could have three times the blocks."""
    layout = pipeline((60, (with_memory(spark(), 150 * GIB),)), (20, (spark(2),)))
    found = compute_fit(Workload(QWEN_72B, 4096, Load(2)), layout)
    assert found.kv_cache_bytes is not None
    first, second = found.ranks
    assert first.kv_bytes == 3 * second.kv_bytes
    room = first.device.memory_bytes - first.weights_bytes - first.overhead_bytes
    assert room - (1 << 20) < found.kv_cache_bytes <= room


@pytest.mark.parametrize(
    ("layout", "share", "does"),
    [
        pytest.param(pipeline((36, (spark(),))), 0.85, True, id="a Spark"),
        # 26 layers are 43.8 GiB, of 95.6: well below 0.85 of it.
        pytest.param(pipeline((26, (pro6000(),)), (10, (spark(),))), 0.85, True, id="both have enough"),
        pytest.param(pipeline((35, (rtx5090(),)), (1, (spark(),))), None, False, id="no fit"),
    ],
)
def test_utilization(layout: Layout, share: float | None, *, does: bool) -> None:
    found = compute_fit(Workload(GPT_OSS_120B, 4096), layout)
    assert (found.utilization, found.utilization_does) == (share, does)


def test_utilization_alone_may_starve_the_fuller_host() -> None:
    """49 layers take 86.6 of the RTX's 95.6 GiB = 0.91, a Spark may give 0.85: the bytes must be told."""
    found = compute_fit(Workload(QWEN_72B, 8192), pipeline((49, (pro6000(),)), (31, (spark(),))))
    assert found.fits
    assert (found.utilization, found.utilization_does) == (0.85, False)


def test_replicas_share_the_sequences() -> None:
    one, two = pipeline((36, (spark(1),))), pipeline((36, (spark(2),)))
    both = Layout(one.stages, None, (two.stages,))
    ranks = compute_fit(Workload(GPT_OSS_120B, 8192, Load(7)), both).ranks
    assert [rank.replica for rank in ranks] == [0, 1]
    assert compute_fit(Workload(GPT_OSS_120B, 8192, Load(199)), both).sequences == 100
    assert (
        compute_fit(Workload(GPT_OSS_120B, 8192, Load(2)), both).concurrency
        == 2 * compute_fit(Workload(GPT_OSS_120B, 8192), one).concurrency
    )
    assert {rank.kv_bytes for rank in ranks} == {
        compute_fit(Workload(GPT_OSS_120B, 8192, Load(4)), one).ranks[0].kv_bytes
    }


def test_remedies() -> None:
    """In 8 bits 70 GiB + 4.6 in 16: one Spark holds it. In 16, two do: 67.7 + 1.2 + 1.6 each."""
    found = find_remedies(Workload(QWEN_72B, 8192), pipeline((80, (spark(),))))
    assert [(each.weights, each.fits) for each in found.variants] == [("fp8", True), ("nvfp4", True)]
    assert found.variants[0].size_bytes == pytest.approx(70.0 * GIB, rel=0.01)
    assert (found.context, found.concurrency, found.hosts) == (0, 0, 2)
    assert (found.hosts, found.largest_host) == (2, "spark-1")


def test_a_smaller_context_is_a_remedy() -> None:
    found = find_remedies(Workload(QWEN_30B, 262144), pipeline((48, (with_memory(spark(), 62 * GIB),))))
    assert 0 < found.context < 262144
    assert compute_fit(
        Workload(QWEN_30B, found.context), pipeline((48, (with_memory(spark(), 62 * GIB),)))
    ).fits


@pytest.mark.parametrize(
    ("kind", "total", "available", "usable"),
    [
        pytest.param("spark", 121.7, 118.0, 103.4, id="a Spark: 85 %"),
        pytest.param("spark", 121.7, 60.0, 52.0, id="a busy Spark: less 8 GiB"),
        pytest.param("orin", 7.4, 6.0, 4.0, id="the smallest Orin: less 2 GiB"),
        pytest.param("orin", 30.0, 27.0, 23.25, id="an Orin of 32 GB: less an eighth"),
        pytest.param("spark", 121.7, 6.0, 0.0, id="a full Spark"),
        pytest.param("rtx", 95.6, 95.0, 87.95, id="a card: 92 %"),
        pytest.param("cpu", 24.0, 23.0, 20.4, id="a CPU: 85 %"),
    ],
)
def test_what_the_system_keeps(kind: str, total: float, available: float, usable: float) -> None:
    assert compute_usable_bytes(kind, int(total * GIB), int(available * GIB)) / GIB == pytest.approx(
        usable, abs=0.05
    )
