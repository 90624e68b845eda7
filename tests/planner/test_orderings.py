"""Of published pairs the prediction, and the choice by it, puts the faster layout first."""

from dataclasses import replace

import pytest

from benchmarks import fitting, predictor, published
from benchmarks.models import bits, shape
from benchmarks.published import Case
from medley.planner import Device, Goal, HostLink, Layout, Load, Stage, count_parallel_sizes, list_hosts
from medley.planner.candidates import Request
from medley.planner.choose import Choice, choose_layout
from medley.planner.device_specs import SHIPPED_EFFICIENCY
from medley.planner.partition import Workload
from medley.planner.prediction import PredictedStageTimerFactory, predict_speed
from medley.schema import Shape
from tests.planner.layouts import GPT_OSS_120B, QWEN_30B, over, pro6000, spark

ROWS = [each for each in published.read(predictor.DATA) if isinstance(each, Case)]
ROCE = HostLink(200_000, 8.0, rdma=True)
KUBIS = "kubis.ai/blog/dgx_series/benchmarks/"
GPT, GEMMA, NEMOTRON = "gpt-oss-120b", "gemma-4-26B-A4B-it", "Nemotron-3-Super-120B-A12B"
FP8 = bits("fp8", "vllm")


def row(model: str, site: str, hw: str, *, nodes: int = 1, tp: int = 1, streams: int = 1) -> Case:
    """The one published row about decoding that this is."""
    wanted = {"model": model, "hw": hw, "nodes": str(nodes), "tp": str(tp), "concurrency": str(streams)}
    found = [
        case
        for case in ROWS
        if case.what == published.DECODE
        and case.row["unit"] == "tok/s"
        and case.row["source"].startswith(site)
        and wanted.items() <= case.row.items()
    ]
    assert len(found) == 1, found
    return found[0]


def said(case: Case) -> float:
    return fitting.figure(case, SHIPPED_EFFICIENCY)


def of_sparks(model: str, how: str, streams: int) -> Case:
    """Three models on one Spark, on two as tensor parallel, and as two engines behind a router."""
    nodes, tp = {"one": (1, 1), "tensor": (2, 2), "replicas": (2, 1)}[how]
    return row(model, KUBIS, "DGX Spark GB10", nodes=nodes, tp=tp, streams=streams)


MISSED = pytest.mark.xfail(
    strict=True, reason="pairs 6 and 7 % apart, which the prediction has the other way round"
)


@pytest.mark.parametrize(
    ("model", "streams", "better", "worse"),
    [
        *((GPT, streams, "tensor", "one") for streams in (1, 2, 4, 8, 16, 32, 64)),
        *((GEMMA, streams, "tensor", "one") for streams in (2, 16, 32, 64)),
        *((NEMOTRON, streams, "tensor", "one") for streams in (2, 4, 8, 16, 32)),
        *((GPT, streams, "tensor", "replicas") for streams in (1, 4, 8, 16, 32)),
        *((GEMMA, streams, "tensor", "replicas") for streams in (1, 2, 4, 8, 16, 32)),
        *((NEMOTRON, streams, "tensor", "replicas") for streams in (1, 2, 4, 8)),
        pytest.param(NEMOTRON, 16, "tensor", "replicas", marks=MISSED),
        (GPT, 64, "replicas", "tensor"),
        pytest.param(GEMMA, 64, "replicas", "tensor", marks=MISSED),
        *((GPT, streams, "replicas", "one") for streams in (2, 4, 8, 16, 32, 64)),
        *((GEMMA, streams, "replicas", "one") for streams in (2, 16, 32, 64)),
        *((NEMOTRON, streams, "replicas", "one") for streams in (2, 4, 8, 16, 32)),
    ],
)
def test_two_sparks(model: str, streams: int, better: str, worse: str) -> None:
    """As kubis.ai measured in 2026 with llama-benchy: pairs at least 4 % apart."""
    fast, slow = of_sparks(model, better, streams), of_sparks(model, worse, streams)
    assert fast.value > slow.value
    assert said(fast) > said(slow)


def test_a_slow_host_beside_a_fast_one_that_holds_the_model_loses() -> None:
    """679.9 tokens/s alone, 205.8 with the Spark: the heterogeneous distributed inference README."""
    model, site = "Qwen3-30B-A3B-Thinking-2507", "heterogeneous"
    alone = row(model, site, "RTX PRO 6000 Blackwell", streams=20)
    beside = row(model, site, "DGX Spark GB10 + RTX PRO 6000", nodes=2, tp=2, streams=20)
    other = row(model, site, "DGX Spark GB10", streams=20)
    assert alone.value > 3 * beside.value
    assert said(alone) > 2 * said(beside)
    # Each for itself they did 785 tokens/s with twice as many streams.
    assert alone.value + other.value > beside.value
    copies = replace(beside, layout=Layout(alone.layout.stages, None, (other.layout.stages,)))
    assert said(copies) > said(beside)


def test_tensor_parallel_over_roce_beats_one_host_for_one_stream() -> None:
    """58.8 to 76.0 tokens/s on one and two Sparks: Spark Arena, quoted by sectorhq.co."""
    one = row(GPT, "sectorhq.co", "DGX Spark GB10")
    two = row(GPT, "sectorhq.co", "DGX Spark GB10", nodes=2, tp=2)
    assert said(two) / said(one) == pytest.approx(two.value / one.value, rel=0.15)


def test_tensor_parallel_over_roce_beats_a_pipeline_for_one_stream() -> None:
    """2.09 times one Spark against 1.08 times, on two: unsloth pull request 10280, its model unnamed."""
    assert FP8 is not None
    model = shape("Llama-3.3-70B", 70.6, 70.6, FP8)
    first, second = spark(1), spark(2)
    half = model.layers // 2
    one, tensor, piped = (
        predict_speed(model, Layout(stages, ROCE), Load()).tokens_per_s
        for stages in (
            (Stage((first,), model.layers),),
            (Stage((first, second), model.layers),),
            (Stage((first,), half), Stage((second,), model.layers - half)),
        )
    )
    assert tensor / one == pytest.approx(2.09, rel=0.2)
    assert piped / one == pytest.approx(1.08, rel=0.2)


def test_a_pipeline_over_tcp_loses_little() -> None:
    """30.2 tokens/s over TCP, 32.2 over RoCE at 25 Gbit/s: llama.cpp pull request 20590."""
    over_tcp, over_roce = (
        case for case in ROWS if "#20590" in case.row["source"] and case.what == published.DECODE
    )
    assert 1 < over_roce.value / over_tcp.value < 1.1
    assert 1 < said(over_roce) / said(over_tcp) < 1.1


@pytest.mark.parametrize("model", ["DeepSeek-R1-Distill-Qwen-7B", "DeepSeek-R1-Distill-Llama-8B"])
def test_replicas_beat_tensor_parallel_over_pcie(model: str) -> None:
    """Two RTX 4090, 300 requests: databasemart.com; there tensor parallel did not even beat one card."""
    one, other, two = (
        case for case in ROWS if case.row["model"] == model and case.row["source"].startswith("databasemart")
    )
    assert one.value + other.value > two.value
    copies = replace(two, layout=Layout(one.layout.stages, None, (other.layout.stages,)))
    assert said(copies) > 1.2 * said(two)


def chosen(model: Shape, *devices: Device, goal: Goal = "throughput", streams: int = 1) -> Choice:
    load = Load(streams, 1024, 1088)
    work = Workload(model, 2048, load, goal, PredictedStageTimerFactory(model, load))
    return choose_layout(Request(work, devices, over(ROCE)), predict_speed)


MODELS = {
    GPT: GPT_OSS_120B,
    GEMMA: of_sparks(GEMMA, "one", 16).shape,
    NEMOTRON: of_sparks(NEMOTRON, "one", 16).shape,
}


@pytest.mark.parametrize(
    ("model", "streams", "expected"),
    [
        (GPT, 1, (2, 1, 1)),
        (GPT, 8, (2, 1, 1)),
        (GPT, 64, (1, 1, 2)),
        (GEMMA, 1, (2, 1, 1)),
        (GEMMA, 8, (2, 1, 1)),
        (GEMMA, 16, (2, 1, 1)),
        (GEMMA, 64, (1, 1, 2)),
        (NEMOTRON, 1, (2, 1, 1)),
    ],
)
def test_two_sparks_are_laid_as_was_best(model: str, streams: int, expected: tuple[int, int, int]) -> None:
    """Of one, tensor parallel and two engines behind a router: tensor, stages, replicas."""
    ways = {(2, 1, 1): "tensor", (1, 1, 2): "replicas"}
    tried = {way: of_sparks(model, name, streams).value for way, name in ways.items()} if streams > 1 else {}
    assert not tried or max(tried, key=tried.__getitem__) == expected
    found = chosen(MODELS[model], spark(1), spark(2), streams=streams)
    assert count_parallel_sizes(found.layout) == expected


@pytest.mark.parametrize("goal", ["latency", "throughput"])
def test_the_fast_host_is_chosen_alone(goal: Goal) -> None:
    found = chosen(QWEN_30B, pro6000(), spark(), goal=goal, streams=20)
    assert list_hosts(found.layout) == ("rtx-1",)
