"""The prediction is near what is published, never rewards a slower part, and says what bounds it."""

from itertools import product
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import fitting, held_out, predictor, published
from benchmarks.models import bits, guessed, shape
from benchmarks.published import Case
from medley.planner import Device, HostLink, Layout, Load, Stage
from medley.planner.device_specs import (
    MANY_STREAMS_RANGE,
    ONE_STREAM_RANGE,
    PROMPTS_RANGE,
    SHIPPED_EFFICIENCY,
    HeldOutRange,
    compute_reached_speed,
)
from medley.planner.prediction import (
    PassConditions,
    PredictedStageTimerFactory,
    TokenBatch,
    compute_collectives_s,
    compute_stage_pass,
    predict_speed,
)
from medley.schema import Shape
from tests.planner.layouts import QWEN_30B

AFTER_THE_FIT = Path("benchmarks/published_2026_11.csv")
ROWS = [each for each in published.read(predictor.DATA) if isinstance(each, Case)]
ROCE, TCP = HostLink(200_000, 2.0, rdma=True), HostLink(10_000, 30.0)
BF16, MXFP4 = bits("bf16", "vllm"), bits("mxfp4", "vllm")
assert BF16 is not None
assert MXFP4 is not None
DENSE = shape("Llama-3.1-8B", 8.03, 8.03, BF16)
EXPERTS = shape("gpt-oss-120b", 116.8, 5.1, MXFP4)
SPARK = Device("spark-1", 0, "spark", 1 << 37, 273, 125)
SPARK2 = SPARK.replace(host="spark-2")


def said(case: Case) -> float:
    return fitting.figure(case, SHIPPED_EFFICIENCY)


@pytest.mark.parametrize("model", [DENSE, EXPERTS], ids=["dense", "experts"])
@pytest.mark.parametrize("link", [ROCE, TCP], ids=["RoCE", "TCP"])
@pytest.mark.parametrize("streams", [128, 192, 256])
def test_two_sparks_serve_many_streams_best_as_replicas(model: Shape, link: HostLink, streams: int) -> None:
    """At 64 streams gpt-oss was a fifth faster so (kubis.ai); predicted, both are 2 % apart there."""
    load = Load(concurrency=streams)
    stage = Stage((SPARK,), model.layers)
    copies = Layout((stage,), link, ((Stage((SPARK2,), model.layers),),))
    together = Layout((Stage((SPARK, SPARK2), model.layers),), link)
    assert predict_speed(model, copies, load).tokens_per_s > predict_speed(model, together, load).tokens_per_s
    alone = predict_speed(model, Layout((stage,)), load).tokens_per_s
    assert predict_speed(model, copies, load).tokens_per_s > 1.2 * alone


@pytest.mark.parametrize(("streams", "least", "most"), [(1, 0.49, 0.51), (16, 0.8, 0.95), (10_000, 0.98, 1)])
def test_streams_fall_on_replicas_by_chance(streams: int, least: float, most: float) -> None:
    """Of what two copies would do with half of them each; of one stream one does all."""
    one = Stage((SPARK,), EXPERTS.layers)
    copies = Layout((one,), ROCE, ((one.replace(devices=(SPARK2,)),),))
    even = 2 * predict_speed(EXPERTS, Layout((one,)), Load(max(1, streams // 2))).tokens_per_s
    assert least < predict_speed(EXPERTS, copies, Load(streams)).tokens_per_s / even < most


def test_a_pipeline_gains_from_many_streams_alone() -> None:
    half = DENSE.layers // 2
    piped = Layout((Stage((SPARK,), half), Stage((SPARK2,), half)), ROCE)
    one = Layout((Stage((SPARK,), DENSE.layers),))
    assert predict_speed(DENSE, piped, Load(1)).tokens_per_s < predict_speed(DENSE, one, Load(1)).tokens_per_s
    # Each half is read once for either group of streams, so weights cost as before; all else is shared.
    assert (
        predict_speed(DENSE, piped, Load(32)).tokens_per_s
        > 1.15 * predict_speed(DENSE, one, Load(32)).tokens_per_s
    )
    assert (
        predict_speed(DENSE, piped, Load(256)).tokens_per_s
        > 1.5 * predict_speed(DENSE, one, Load(256)).tokens_per_s
    )


def test_a_pipeline_is_as_fast_as_its_slowest_stage() -> None:
    slow = SPARK2.replace(bandwidth_gb_s=90, bf16_tflops=40)
    even = Layout((Stage((SPARK,), 16), Stage((slow,), 16)), ROCE)
    cut = Layout((Stage((SPARK,), 24), Stage((slow,), 8)), ROCE)
    assert (
        predict_speed(DENSE, cut, Load(8)).tokens_per_s
        > 1.2 * predict_speed(DENSE, even, Load(8)).tokens_per_s
    )
    assert "stage 2 of 2 is always busy" in predict_speed(DENSE, even, Load(8)).bottleneck


@pytest.mark.parametrize(
    ("layout", "load", "words"),
    [
        pytest.param(Layout((Stage((SPARK,), 32),)), Load(), "GB of weights at 273 GB/s", id="weights"),
        pytest.param(Layout((Stage((SPARK,), 32),)), Load(32, context_tokens=32768), "KV cache", id="cache"),
        pytest.param(Layout((Stage((SPARK, SPARK2), 32),), TCP), Load(), "all-reduces", id="wire"),
        pytest.param(Layout((Stage((SPARK,), 32),)), Load(512, 64, 64), "multiplying", id="operations"),
    ],
)
def test_bound(layout: Layout, load: Load, words: str) -> None:
    found = predict_speed(DENSE, layout, load)
    assert words in found.bottleneck
    assert " ms a step" in found.bottleneck
    assert found.low < found.tokens_per_s < found.high
    assert found.per_stream * load.concurrency == pytest.approx(found.tokens_per_s)


def test_of_what_was_measured_all_is_reached() -> None:
    """Llama 3.1 8B reads 15.0 GB at 50 GB/s: 300 ms; kernels and a step are 5 ms."""
    cpu = Device("a", 0, "cpu", 1 << 36, 50, 1)
    load = Load(context_tokens=1)
    there = Layout((Stage((cpu.replace(measured=True),), 32),))
    found = predict_speed(DENSE, there, load)
    read = 32 * DENSE.layer_bytes + (DENSE.head_bytes or DENSE.embedding_bytes)
    assert read == pytest.approx(15.0e9, rel=0.01)
    besides = (32 * SHIPPED_EFFICIENCY.layer_us + SHIPPED_EFFICIENCY.step_us) * 1e-6
    reading = 1 / found.tokens_per_s - besides - 2 * 7.0e9 / 1e12
    assert reading == pytest.approx(read / 50e9, rel=0.01)
    assert "at 50 GB/s measured" in found.bottleneck
    stated = predict_speed(DENSE, Layout((Stage((cpu,), 32),)), load)
    assert found.tokens_per_s > 1.1 * stated.tokens_per_s
    assert found.prefill_tokens_per_s > 2 * stated.prefill_tokens_per_s


def test_a_measured_wire_costs_what_it_was_measured_at() -> None:
    """Two stages: the hop is 500 us and 2 tensors of 4096 in 16 bits at 1 Gbit/s, 131 us; nothing besides."""
    cpu = Device("a", 0, "cpu", 1 << 36, 50, 1, measured=True)
    stages = (Stage((cpu,), 16), Stage((cpu.replace(host="b"),), 16))
    step = {
        link: 1 / predict_speed(DENSE, Layout(stages, link), Load()).tokens_per_s
        for link in (
            HostLink(1000, 500.0, measured=True),
            HostLink(1000, 500.0),
            HostLink(1000, 0.0, measured=True),
        )
    }
    wire, stated, free = step.values()
    assert wire - free == pytest.approx(500e-6)
    assert stated - wire == pytest.approx(SHIPPED_EFFICIENCY.tcp_us * 1e-6 + 131e-6 * (1 / 0.9 - 1), rel=0.01)


def test_the_shipped_constants_are_near_what_is_published() -> None:
    errors = [
        abs(said(case) / case.value - 1) for case in ROWS if case.scored and case.what == published.DECODE
    ]
    found = predictor.quantiles(errors)
    assert found["rows"] == 248
    assert (found["median"] or 1) < 0.20
    assert (found["p90"] or 1) < 0.50


def test_the_pages_state_the_errors_of_rows_that_came_after_the_fit() -> None:
    rows = [each for each in published.read(AFTER_THE_FIT) if isinstance(each, Case) and each.scored]
    decode = predictor.quantiles(
        abs(said(case) / case.value - 1) for case in rows if case.what == published.DECODE
    )
    words = (str(decode["rows"]), f"{decode['median']:.1%}", f"{decode['p90']:.1%}")
    for page in (Path("README.md"), Path("docs/explanation/prediction.md")):
        text = page.read_text(encoding="utf-8").replace(" %", "%")
        assert all(word in text for word in words), (page, words)


@pytest.mark.parametrize(
    ("metric", "shipped"),
    list(zip(held_out.METRICS, (ONE_STREAM_RANGE, MANY_STREAMS_RANGE, PROMPTS_RANGE), strict=True)),
    ids=held_out.METRICS,
)
def test_a_range_holds_the_share_of_measurements_that_a_plan_says(metric: str, shipped: HeldOutRange) -> None:
    """Each row is predicted with the constants that were fitted without its source."""
    found = [ratio for each, _, ratio in held_out.ratios(ROWS, held_out.read()) if each == metric]
    assert held_out.held_out(found) == shipped
    assert shipped.inside == sum(shipped.low <= ratio <= shipped.high for ratio in found)
    assert shipped.inside / shipped.rows == pytest.approx(0.8, abs=0.05)


def test_a_range_is_that_of_its_metric() -> None:
    alone = Layout((Stage((SPARK,), 32),))
    one, many = predict_speed(DENSE, alone, Load()), predict_speed(DENSE, alone, Load(8))
    assert (one.held_out, many.held_out) == (ONE_STREAM_RANGE, MANY_STREAMS_RANGE)
    assert one.low == one.tokens_per_s * ONE_STREAM_RANGE.low
    assert many.high == many.tokens_per_s * MANY_STREAMS_RANGE.high
    soonest, latest = one.ttft_range_s
    assert soonest < one.ttft_s < latest
    assert one.ttft_s / soonest == pytest.approx(PROMPTS_RANGE.high)


@pytest.mark.slow
def test_the_constants_held_out_are_those_that_fit_without_each_source() -> None:
    fits = held_out.without(ROWS)
    assert fits.keys() == held_out.read().keys()
    for source, kept in held_out.read().items():
        for name in fitting.GUESSES:
            assert getattr(kept, name) == pytest.approx(getattr(fits[source], name), rel=0.03), source


@pytest.mark.slow
def test_the_shipped_constants_are_those_that_fit() -> None:
    best = fitting.fit(ROWS)
    for name in fitting.GUESSES:
        assert getattr(SHIPPED_EFFICIENCY, name) == pytest.approx(getattr(best, name), rel=0.03), name
    assert len(fitting.GUESSES) <= sum(case.scored for case in ROWS) / 8


@pytest.mark.parametrize("billions", [(0.5, 0.5), (8, 8), (405, 405), (30, 3), (1000, 32)], ids=str)
def test_an_unknown_model_is_guessed_whole(billions: tuple[float, float]) -> None:
    total, active = billions
    assert BF16 is not None
    made = shape("Never-Heard-Of", total, active, BF16)
    stored = made.layers * made.layer_bytes + made.embedding_bytes + made.head_bytes
    assert stored == pytest.approx(2e9 * total, rel=0.15)
    read = made.layers * made.active_layer_bytes + (made.head_bytes or made.embedding_bytes)
    assert read == pytest.approx(2e9 * active, rel=0.25)
    assert guessed(total, active).layers == made.layers


# --- properties

devices = st.builds(
    Device,
    host=st.sampled_from(["a", "b", "c"]),
    index=st.integers(0, 3),
    kind=st.sampled_from(["spark", "orin", "thor", "rtx", "cuda", "cpu"]),
    memory_bytes=st.just(1 << 36),
    bandwidth_gb_s=st.floats(5, 8000),
    bf16_tflops=st.floats(0.1, 2000),
)
groups = st.lists(devices, min_size=1, max_size=4)
links = st.builds(
    HostLink, mbit=st.integers(100, 400_000), latency_us=st.floats(0.5, 500), rdma=st.booleans()
)
loads = st.builds(
    Load,
    concurrency=st.integers(1, 300),
    prompt_tokens=st.integers(1, 100_000),
    context_tokens=st.integers(1, 200_000),
)
shapes = st.sampled_from([DENSE, EXPERTS, ROWS[2].shape])


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    def pipeline() -> tuple[Stage, ...]:
        return tuple(Stage(tuple(each), 8) for each in draw(st.lists(groups, min_size=1, max_size=3)))

    return Layout(pipeline(), draw(links), tuple(pipeline() for _ in range(draw(st.integers(0, 2)))))


def faster(layout: Layout, times: float, wire: float) -> Layout:
    def stages(of: tuple[Stage, ...]) -> tuple[Stage, ...]:
        return tuple(
            Stage(
                tuple(d.replace(bandwidth_gb_s=d.bandwidth_gb_s * times) for d in each.devices), each.layers
            )
            for each in of
        )

    link = layout.link and layout.link.replace(mbit=int(layout.link.mbit * wire))
    return Layout(stages(layout.stages), link, tuple(stages(copy) for copy in layout.other_pipelines))


bounded = settings(max_examples=25, deadline=None, derandomize=True)


@bounded
@given(shapes, layouts(), loads)
def test_a_prediction_is_positive_and_finite(model: Shape, layout: Layout, load: Load) -> None:
    found = predict_speed(model, layout, load)
    for each in (found.ttft_s, found.low, found.high, found.prefill_tokens_per_s, *found.stage_s):
        assert 0 < each < float("inf")
    assert len(found.stage_s) == len(layout.stages)


@bounded
@given(shapes, layouts(), loads, st.floats(1, 10), st.floats(1, 10))
def test_more_bandwidth_is_never_slower(
    model: Shape, layout: Layout, load: Load, times: float, wire: float
) -> None:
    before, after = (
        predict_speed(model, layout, load),
        predict_speed(model, faster(layout, times, wire), load),
    )
    assert after.tokens_per_s >= before.tokens_per_s * (1 - 1e-12)
    assert after.ttft_s <= before.ttft_s * (1 + 1e-12)


@bounded
@given(shapes, layouts(), loads, st.randoms(use_true_random=False))
def test_the_order_of_a_stages_devices_says_nothing(
    model: Shape, layout: Layout, load: Load, random: Random
) -> None:
    mixed = layout.replace(
        stages=tuple(
            Stage(tuple(random.sample(each.devices, len(each.devices))), each.layers)
            for each in layout.stages
        ),
    )
    assert predict_speed(model, mixed, load).tokens_per_s == predict_speed(model, layout, load).tokens_per_s


@bounded
@given(shapes, groups, links, loads)
def test_layers_are_cut_by_the_predictions_own_time(
    model: Shape, devices: list[Device], link: HostLink, load: Load
) -> None:
    """Also of hosts of the same sorts, and of another number of layers, that were never worked out."""
    sequences = load.concurrency
    seconds = PredictedStageTimerFactory(model, load)(sequences, link)
    given_, batch = (
        PassConditions(model, link, SHIPPED_EFFICIENCY),
        TokenBatch(sequences, sequences, load.context_tokens),
    )
    moved = [each.replace(host=f"{each.host}-2", memory_bytes=1) for each in devices]
    for laid in (devices, moved):
        for layers, last in product((1, 3, model.layers), (False, True)):
            stage = Stage(tuple(laid), layers)
            whole = compute_stage_pass(given_, stage, batch, last=last).seconds
            assert seconds(stage, is_last_stage=last) == pytest.approx(whole)


@pytest.mark.parametrize("weights", ["bf16", "fp8", "nvfp4"])
@pytest.mark.parametrize("kind", ["orin", "spark", "rtx", "cpu"])
def test_no_share_of_what_was_measured_is_taken(kind: str, weights: str) -> None:
    device = Device("a", 0, kind, 1 << 36, 100, 2, "RTX 5090", measured=True)
    found = compute_reached_speed(device, weights, SHIPPED_EFFICIENCY)
    assert (found.weight_bytes_per_s, found.cache_bytes_per_s, found.operations_per_s) == (100e9, 100e9, 2e12)


@pytest.mark.parametrize(
    ("kind", "hosts", "slow", "fast"),
    [("rtx", ("pc", "pc"), "RTX 4090", "RTX 6000 Ada"), ("cpu", ("a", "b"), "", "")],
    ids=["GeForce on one host", "CPUs of two hosts"],
)
def test_who_reaches_the_others_data_stages_nothing(
    kind: str, hosts: tuple[str, str], slow: str, fast: str
) -> None:
    """A GeForce does not reach another's memory on its own host; a CPU's data lies where it is sent from."""

    def pair(kind: str, name: str) -> float:
        ranks = tuple(Device(host, nth, kind, 1 << 35, 1008, 165, name) for nth, host in enumerate(hosts))
        return compute_collectives_s(
            PassConditions(QWEN_30B, ROCE, SHIPPED_EFFICIENCY),
            Stage(ranks, 48),
            TokenBatch(64, 64, 1),
            last=False,
        )

    staged = 97 * 64 * 2048 * 2 / (SHIPPED_EFFICIENCY.staged_gb_s * 1e9)
    other = "thor" if kind == "cpu" else kind
    assert pair(other, slow) - pair(kind, fast) == pytest.approx(staged)
