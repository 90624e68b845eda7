import pytest

from medley.host.facts import GIB
from medley.planner import Device, HostLink, count_parallel_sizes, describe_layout, list_hosts
from medley.planner.candidates import Request, list_candidates
from medley.planner.fit import compute_fit
from medley.planner.host_order import group_hosts, order_by_link
from medley.planner.partition import StageTimerFactory, Workload, list_refusals
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
    over,
    pro6000,
    rtx5090,
    spark,
    thor,
    timed,
    with_memory,
)


def found(
    shape: Shape, *devices: Device, link: HostLink | None = ROCE, timed: StageTimerFactory | None = None
) -> list[str]:
    request = Request(Workload(shape, 4096, stage_timer_factory=timed), devices, over(link))
    return [describe_layout(each) for each in list_candidates(request).layouts]


@pytest.mark.parametrize(
    ("shape", "tensor", "way", "because"),
    [
        pytest.param(QWEN_72B, 8, False, (), id="8 heads each"),
        pytest.param(QWEN_72B, 16, False, (), id="KV heads copied"),
        # 152 064 = 64 · 2376 = 3 · 50 688: only the heads are in the way
        pytest.param(
            QWEN_72B,
            3,
            False,
            ("64 attention heads are not a multiple of 3", "8 KV heads neither divide by 3 nor divide it"),
            id="thirds",
        ),
        # 768 rows over 4 are 192, which is not a multiple of 128; whole experts are not cut
        pytest.param(
            QWEN_30B_FP8,
            4,
            False,
            ("an expert's 768 rows over 4 are not a multiple of fp8's block of 128",),
            id="fp8 blocks",
        ),
        pytest.param(QWEN_30B_FP8, 4, True, (), id="fp8 blocks, whole experts"),
        pytest.param(QWEN_30B_FP8.replace(feed_forward=None), 4, False, (), id="a width that is a guess"),
        pytest.param(
            QWEN_72B.replace(heads=1, kv_heads=1, attention_layers=0),
            2,
            False,
            (),
            id="no attention",
        ),
        pytest.param(QWEN_30B_FP8.replace(block=None), 4, False, (), id="fp8 with scales for channels"),
        pytest.param(QWEN_30B_FP8, 2, False, (), id="384 = 3 blocks"),
        pytest.param(GPT_OSS_120B, 4, False, (), id="the engine pads mxfp4"),
        # 128 000 + 1 words are padded to 128 064 = 64 · 2001, an odd number of times 64
        pytest.param(
            QWEN_72B.replace(vocabulary=128_001, heads=128, kv_heads=128),
            128,
            False,
            ("a vocabulary of 128064 (padded to 64) is not a multiple of 128",),
            id="vocabulary",
        ),
        pytest.param(
            QWEN_30B.replace(experts=60),
            8,
            True,
            ("60 experts are not a multiple of 8",),
            id="experts",
        ),
    ],
)
def test_limits(shape: Shape, tensor: int, *, way: bool, because: tuple[str, ...]) -> None:
    assert list_refusals(shape, tensor, expert_parallel=way) == because


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        pytest.param((spark(2), thor(1), spark(1)), [["thor-1"], ["spark-1", "spark-2"]], id="by kind"),
        pytest.param(
            (pro6000(1, 0), rtx5090(), pro6000(1, 1), pro6000(2)),
            [["rtx-1"], ["rtx-2"], ["pc"]],
            id="by count",
        ),
    ],
)
def test_host_groups(devices: tuple[Device, ...], expected: list[list[str]]) -> None:
    assert [[host[0].host for host in one.hosts] for one in group_hosts(devices)] == expected


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        pytest.param(None, ["spark-1", "spark-3", "spark-2", "spark-4"], id="no head"),
        pytest.param("spark-4", ["spark-4", "spark-2", "spark-1", "spark-3"], id="a head among them"),
        pytest.param("thor-1", ["spark-2", "spark-4", "spark-1", "spark-3"], id="a head of another kind"),
    ],
)
def test_hosts_with_a_cable_of_their_own_are_next_to_each_other(
    head: str | None, expected: list[str]
) -> None:
    cables = {
        frozenset(("spark-1", "spark-3")),
        frozenset(("spark-2", "spark-4")),
        frozenset(("thor-1", "spark-2")),
    }

    def link_of(one: str, other: str) -> HostLink:
        return HostLink(200_000 if {one, other} in cables else 1_000, 20)

    (group,) = group_hosts([spark(number) for number in (1, 2, 3, 4)])
    assert [host[0].host for host in order_by_link(group, head, link_of).hosts] == expected


def test_the_largest_of_equal_hosts_is_tried_alone() -> None:
    more = with_memory(spark(2), spark().memory_bytes + 1)
    assert "spark-2 alone" in found(QWEN_72B, spark(1), more)


def test_replicas_are_cut_for_the_smaller() -> None:
    """The second card has 10 GiB less, and holds 43 layers where the first holds 49."""
    less = with_memory(pro6000(2), pro6000().memory_bytes - 10 * GIB)
    made = list_candidates(
        Request(Workload(QWEN_72B, 4096), (pro6000(1), less, spark(1), spark(2)), over(ROCE))
    ).layouts
    twice = next(
        each for each in made if count_parallel_sizes(each) == (1, 2, 2) and len(list_hosts(each)) == 4
    )
    assert compute_fit(Workload(QWEN_72B, 4096), twice).fits


def test_the_slowest_pair_decides() -> None:
    slow = HostLink(mbit=25_000, latency_us=50)

    def link_of(one: str, other: str) -> HostLink:
        return slow if {one, other} == {"spark-1", "spark-3"} else ROCE

    made = list_candidates(
        Request(Workload(QWEN_72B, 4096), tuple(spark(nth) for nth in (1, 2, 3)), link_of)
    ).layouts
    assert {each.link for each in made if len(each.stages) == 3} == {slow}


def test_one_spark() -> None:
    assert found(QWEN_72B, spark()) == ["spark-1 alone"]


def test_two_equal_hosts() -> None:
    assert found(QWEN_72B, spark(2), spark(1), timed=timed(QWEN_72B)) == [
        "spark-1 alone",
        "2 replicas on spark-1, spark-2",
        "2 stages of 41,39 layers on spark-1, spark-2",
        "tensor parallel 2 on spark-1, spark-2",
    ]


def test_all_gpus_of_a_host() -> None:
    assert "tensor parallel 4 on rtx-1 (0, 1, 2, 3)" in found(
        QWEN_72B, *(pro6000(1, index) for index in range(4)), link=None
    )


def test_experts_may_stay_whole() -> None:
    made = found(GPT_OSS_120B, spark(1), spark(2))
    assert "tensor parallel 2, expert parallel on spark-1, spark-2" in made
    assert "tensor parallel 2 on spark-1, spark-2" in made


def test_tensor_parallel_in_a_pipeline_of_unlike_pairs() -> None:
    """Each pair by itself, and the two pairs one after the other."""
    made = list_candidates(
        Request(Workload(QWEN_72B, 4096), (spark(1), spark(2), thor(1), thor(2)), over(TEN))
    ).layouts
    wide = [
        (count_parallel_sizes(each), sorted(list_hosts(each)))
        for each in made
        if count_parallel_sizes(each)[0] == 2
    ]
    assert (((2, 2, 1)), ["spark-1", "spark-2", "thor-1", "thor-2"]) in wide
    assert (((2, 1, 1)), ["thor-1", "thor-2"]) in wide
    assert all({"spark-1", "thor-1"} - set(where) for (_, deep, _), where in wide if deep == 1)


def test_a_slow_link_is_for_pipelines() -> None:
    made = list_candidates(Request(Workload(QWEN_72B, 4096), (spark(1), spark(2)), over(ONE)))
    assert {count_parallel_sizes(each)[0] for each in made.layouts} == {1}
    assert [each.reason for each in made.ruled_out] == [
        "the link carries 1 Gbit/s, below 10, and it is used twice for each layer"
    ]


def test_hosts_that_cannot_talk_are_replicas_at_most() -> None:
    made = list_candidates(Request(Workload(QWEN_30B, 4096), (spark(1), spark(2)), over(None)))
    assert {count_parallel_sizes(each) for each in made.layouts} == {(1, 1, 1), (1, 1, 2)}
    assert {each.reason for each in made.ruled_out} == {"spark-1 and spark-2 have no link"}


def test_a_cpu_and_a_gpu_never_share_a_model() -> None:
    made = list_candidates(Request(Workload(QWEN_30B, 4096), (spark(1), cpu(1), cpu(2)), over(ROCE))).layouts
    assert all(len({device.kind for stage in each.stages for device in stage.devices}) == 1 for each in made)


def test_more_hosts_than_layers() -> None:
    few = QWEN_30B.replace(layers=3)
    made = list_candidates(Request(Workload(few, 4096), tuple(cpu(nth) for nth in range(4)), over(TEN)))
    assert max(count_parallel_sizes(each)[1] for each in made.layouts) == 3
    assert "4 stages are more than its 3 layers" in {each.reason for each in made.ruled_out}


def test_the_heads_stage_is_first() -> None:
    made = list_candidates(
        Request(Workload(QWEN_72B, 4096), (pro6000(), spark(1), spark(2)), over(ROCE), head="spark-2")
    ).layouts
    first = {
        each.stages[0].devices[0].host
        for each in made
        if "spark-2" in list_hosts(each) and not each.other_pipelines
    }
    assert first == {"spark-2"}


def test_of_an_odd_number_the_head_is_not_left_over() -> None:
    """It may have the least memory free: the command line runs there."""
    head = with_memory(spark(3), 100 * GIB)
    made = list_candidates(
        Request(Workload(QWEN_72B, 4096), (spark(1), spark(2), head), over(ROCE), head="spark-3")
    ).layouts
    pairs = [list_hosts(each) for each in made if count_parallel_sizes(each) == (2, 1, 1)]
    assert pairs
    assert all("spark-3" in pair for pair in pairs)


def test_64_hosts_stay_few() -> None:
    """7 widths, at most 11 depths of each, alone or with replicas, experts cut or whole."""
    small = QWEN_30B.replace(layers=4)
    made = list_candidates(
        Request(Workload(small, 4096), tuple(spark(nth) for nth in range(64)), over(ROCE))
    ).layouts
    assert 20 < len(made) <= 7 * 11 * 2 * 2
