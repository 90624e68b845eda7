"""What an engine is told, from a placement."""

import pytest

from medley import config
from medley.engine import sglang, vllm
from medley.engine.server_spec import ServerSpec
from medley.errors import Problem
from medley.host.facts import GIB
from medley.host.kind import SiteHost
from medley.model.chat_format import ChatFormat, read_table_format
from medley.planner import Device
from medley.planner.candidates import ForcedSizes
from medley.planner.placement import PlacementOptions, place_model
from medley.planner.plan import (
    START_LIMIT_S,
    EngineOptions,
    Launcher,
    Plan,
    adapt_to_version,
    balance_experts,
    plan_engine,
    plan_without_shape,
)
from medley.planner.site import Site
from medley.planner.unplanned import place_without_shape
from tests.planner.imagined import MODELS, shape, site

KINDS = config.load_hosts()
NEMOTRON = "nemotron-3-super-120b-a12b-nvfp4"
SERVING = ServerSpec("x/y", "y")


def planned(
    model: str, on: Site, wanted: PlacementOptions | None = None, *, launcher: Launcher = "solo"
) -> Plan:
    asked = wanted or PlacementOptions()
    choice = place_model(shape(model), on, asked)
    return plan_engine(choice, on.facts, MODELS[model], context=asked.context, launcher=launcher)


def available(on: Site, gib: int) -> Site:
    """The same hosts with so much memory available."""
    hosts = {
        name: SiteHost(facts.replace(memory=facts.memory.replace(available_bytes=gib * GIB)), kind)
        for name, (facts, kind) in on.hosts.items()
    }
    return on.replace(hosts=hosts)


def test_unified_memory_keeps_its_limit() -> None:
    """vLLM's default of 0.92 is never free there."""
    found = planned("qwen3-8b", site("spark"))
    assert found.memory_utilization is not None
    assert 0.5 < found.memory_utilization <= 0.85
    assert found.gpus == (0,)
    assert (found.sequences, found.batch_tokens, found.context) == (64, 4096, None)


def test_unified_memory_keeps_its_limit_whatever_the_model() -> None:
    spark = site("spark")
    found = plan_without_shape(place_without_shape(spark, PlacementOptions()), spark.facts)
    assert found.memory_utilization == planned("qwen3-8b", spark).memory_utilization
    assert found.sequences is None, "the engine's own: nothing is known of the model"


def test_what_is_free_is_what_it_may_take() -> None:
    spark = site("spark")
    total = spark.facts["spark-1"].memory.total_bytes
    found = planned("qwen3-8b", available(spark, 48))
    assert found.memory_utilization == pytest.approx(40 * GIB / total, abs=0.011)


def test_unlike_hosts_are_told_one_cache_for_all() -> None:
    found = planned(
        "qwen2.5-72b-instruct",
        site("spark,thor"),
        PlacementOptions(sizes=ForcedSizes(1, 2, 1)),
        launcher="ray",
    )
    assert (found.stages, found.gpus) == (2, ())
    assert found.layer_partition is not None
    assert sum(map(int, found.layer_partition.split(","))) == 80
    told = f"{(found.kv_cache_bytes or 0) / GIB:.1f} GiB"
    assert found.kv_cache_bytes is None or any(told in line for line in found.why)


def test_states_leave_the_tokens_that_were_asked_for() -> None:
    """64 states are more than an RTX 5090 has left beside the model."""
    wanted = PlacementOptions(context=4096, concurrency=2, engine="sglang")
    found = planned("qwen3.8-27b-nvfp4", site("rtx-5090", engine="sglang"), wanted)
    assert found.kv_cache_tokens == 2 * 4096


def test_a_cpus_cache_is_what_can_be_of_use() -> None:
    """The demo: 4 streams of 2048 tokens, 6 layers of 2 KV heads of 32 in 32 bits."""
    found = planned("demo", available(site("cpu"), 20))
    assert found.kv_cache_bytes == 4 * 2048 * 6 * 2 * 2 * 32 * 4
    assert found.memory_utilization is None
    assert any("4 streams of 2048 tokens need no more" in line for line in found.why)
    more = planned("demo", available(site("cpu"), 20), PlacementOptions(concurrency=9))
    assert more.kv_cache_bytes == 9 * 2048 * 6 * 2 * 2 * 32 * 4


def test_a_cpus_cache_is_as_long_as_the_context_that_was_asked_for() -> None:
    found = planned("demo", available(site("cpu"), 20), PlacementOptions(context=512))
    assert found.kv_cache_bytes == 4 * 512 * 6 * 2 * 2 * 32 * 4
    assert any("4 streams of 512 tokens need no more" in line for line in found.why)


def test_a_cpu_leaves_the_host_its_memory() -> None:
    found = planned("qwen3-4b-instruct-2507", available(site("cpu"), 20))
    assert found.kv_cache_bytes == 5 * GIB
    assert any("a quarter of the 20.0 GiB available" in line for line in found.why)


def test_what_was_asked_for_is_held() -> None:
    """More than a quarter, where the user's context needs it."""
    wanted = PlacementOptions(context=40_960)
    found = planned("qwen3-4b-instruct-2507", available(site("cpu"), 20), wanted)
    assert found.context == 40_960
    assert (found.kv_cache_bytes or 0) >= 40_960 * 36 * 2 * 8 * 128 * 2
    assert any("what was asked for needs no less" in line for line in found.why)


def test_a_model_with_recurrent_layers_gets_larger_batches() -> None:
    assert planned("qwen3.5-122b-a10b-fp8", site("spark:2"), launcher="ray").batch_tokens == 8192


def test_a_gpus_host_needs_no_compiler_for_that() -> None:
    assert not planned("qwen3-8b", site("spark")).is_eager


def test_a_model_of_which_nothing_is_known_is_cut_as_the_user_says() -> None:
    two = site("spark:2")
    found = plan_without_shape(
        place_without_shape(two, PlacementOptions(sizes=ForcedSizes(stages=2))), two.facts, launcher="ray"
    )
    assert found == Plan(stages=2, launcher="ray", hosts=2, memory_utilization=0.85)


def test_what_was_asked_reaches_an_engine_without_a_plan() -> None:
    two = site("spark:2")
    layout = place_without_shape(two, PlacementOptions(sizes=ForcedSizes(tensor_parallel=2)))
    asked = EngineOptions(context=262_144, concurrency=100, kv_type="fp8", balances_experts=True)
    found = plan_without_shape(layout, two.facts, launcher="ray", options=asked)
    assert (found.context, found.sequences, found.kv_type) == (262_144, 100, "fp8")
    assert (found.expert_parallel, found.balances_experts) == (True, True)
    alone = place_without_shape(two, PlacementOptions())
    with pytest.raises(Problem, match="no experts"):
        plan_without_shape(alone, two.facts, options=EngineOptions(balances_experts=True))


def test_gpus_of_one_host() -> None:
    device = Device("rtx", 3, "rtx", 90 * GIB, 1792, 500)
    layout = place_without_shape(site("rtx"), PlacementOptions()).replace()
    stage = layout.stages[0].replace(devices=(device,))
    assert plan_without_shape(layout.replace(stages=(stage,)), site("rtx").facts).gpus == (3,)


def test_experts_are_balanced_where_there_are_some_to_balance() -> None:
    two = site("spark:2")
    moe = planned(
        "qwen3.5-122b-a10b-fp8", two, PlacementOptions(sizes=ForcedSizes(tensor_parallel=2)), launcher="ray"
    )
    found = balance_experts(moe, shape("qwen3.5-122b-a10b-fp8").experts)
    assert (found.expert_parallel, found.balances_experts) == (True, True)
    assert any("256 experts of a layer" in line for line in found.why)
    for model, plan_, why in (
        ("qwen3-32b", planned("qwen3-32b", two), "this model has none"),
        ("gpt-oss-20b", Plan(), "all of them are on one rank"),
    ):
        with pytest.raises(Problem) as caught:
            balance_experts(plan_, shape(model).experts)
        assert caught.value.cause == why


def test_a_cache_of_8_bits_holds_twice_as_much() -> None:
    spark, context = site("spark"), 32_768
    half = planned("qwen3-32b", spark, PlacementOptions(kv_type="fp8", context=context, concurrency=4))
    whole = planned("qwen3-32b", spark, PlacementOptions(context=context, concurrency=4))
    assert (half.kv_type, whole.kv_type) == ("fp8", "auto")
    asked = PlacementOptions(concurrency=1, context=context)
    more = place_model(shape("qwen3-32b"), spark, asked.replace(kv_type="fp8")).fit.concurrency
    assert more == pytest.approx(2 * place_model(shape("qwen3-32b"), spark, asked).fit.concurrency, abs=2)


@pytest.mark.parametrize(
    ("version", "finds"),
    [
        pytest.param("0.12.0", False, id="before the length could be left to vLLM"),
        pytest.param("0.14.0", True, id="since then"),
        pytest.param("0.32.0+cpu", True, id="a build of a later one"),
        pytest.param("1.0.0", True, id="any later"),
        pytest.param(None, True, id="as in the lock"),
        pytest.param("", True, id="not said"),
    ],
)
def test_an_older_vllm_is_told_the_longest_context(version: str | None, *, finds: bool) -> None:
    found = adapt_to_version(planned("qwen3-8b", site("orin")), "vllm", version, ChatFormat())
    assert found.finds_longest is finds
    assert found.longest_context == shape("qwen3-8b").context
    assert any("does not find the longest" in each for each in found.why) is not finds
    assert adapt_to_version(found, "sglang", "0.1.0", ChatFormat()) == found


def test_the_longest_context_leaves_room_where_memory_is_short() -> None:
    tight = planned("qwen3-8b", available(site("orin"), 28))
    assert tight.longest_context is not None
    assert tight.longest_context < shape("qwen3-8b").context
    asked = planned("qwen3-8b", site("orin"), PlacementOptions(context=2048))
    assert adapt_to_version(asked, "vllm", "0.12.0", ChatFormat()).finds_longest, (
        "what was asked for is told anyway"
    )


@pytest.mark.parametrize(
    ("model", "version", "unread"),
    [
        pytest.param("gpt-oss-20b", "0.10.1.1", ["openai"], id="before there was one for gpt-oss"),
        pytest.param("gpt-oss-20b", "0.10.2", [], id="since then"),
        pytest.param("gpt-oss-20b", None, [], id="as in the lock"),
        pytest.param("glm-4.5-air", "0.10.0", ["glm45"], id="calls and thoughts of one form"),
    ],
)
def test_an_older_vllm_is_not_told_of_parsers_it_lacks(
    model: str, version: str | None, unread: list[str]
) -> None:
    found = adapt_to_version(Plan(), "vllm", version, read_table_format(MODELS[model]))
    assert list(found.missing_parsers) == unread
    assert any("has no parser" in each for each in found.why) is bool(unread)
    flags = {flag.names[0] for flag in vllm.list_flags(SERVING, found, KINDS["spark"], MODELS[model])}
    assert ("--tool-call-parser" in flags) is not bool(unread)


@pytest.mark.parametrize(
    ("kinds", "gib", "jobs"),
    [
        pytest.param("spark", None, 4, id="3 GiB for each, beside all that the engine may take"),
        pytest.param("spark", 96, 2, id="8 GiB for each, beside the weights and 16 GiB"),
        pytest.param("spark", 84, 1, id="there is always one"),
        pytest.param("rtx", None, 12, id="a GPU with memory of its own leaves the host's alone"),
    ],
)
def test_compilers_are_bounded_by_the_memory_beside_the_weights(
    kinds: str, gib: int | None, jobs: int
) -> None:
    on = site(kinds)
    made = planned(
        "gpt-oss-120b", available(on, gib) if gib else on, PlacementOptions(sizes=ForcedSizes(len(on.hosts)))
    )
    assert made.compile_jobs == jobs
    assert made.start_limit_s == START_LIMIT_S + 85 * 140 // jobs, "the experts' kernels are compiled first"


@pytest.mark.parametrize(
    ("kinds", "streams", "sequences"),
    [
        pytest.param("spark:2", 1, 64, id="there is room for 64 requests"),
        pytest.param("rtx", 1, 10, id="half of what is left"),
        pytest.param("rtx", 12, 12, id="never fewer than were asked for"),
    ],
)
def test_sglang_gets_states_for_its_requests(kinds: str, streams: int, sequences: int) -> None:
    """Each request of Qwen3.8 Flash-Next has 5 states; with fewer SGLang runs fewer requests at once."""
    wanted = PlacementOptions(engine="sglang", concurrency=streams)
    found = planned("qwen3.8-flash-next-nvfp4", site(kinds, engine="sglang"), wanted)
    assert (found.sequences, found.state_count) == (sequences, 5 * sequences)
    flags = {each.names[0]: each.value for each in sglang.list_flags(SERVING, found, KINDS["rtx"], None)}
    assert flags["--max-mamba-cache-size"] == str(5 * sequences)
    assert planned("qwen3.8-flash-next-nvfp4", site(kinds), PlacementOptions()).state_count is None, "vLLM"


def test_a_cpu_bounds_no_compilers() -> None:
    assert planned("demo", site("cpu")).compile_jobs is None
    assert planned("demo", site("cpu")).start_limit_s == START_LIMIT_S
