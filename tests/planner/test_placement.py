"""Placements on imagined hosts, and on clusters whose Ray has an order of its own."""

import pytest

from medley.errors import Problem
from medley.host.facts import GIB
from medley.host.hypothetical import build_hosts
from medley.host.kind import SiteHost, find_kind
from medley.planner import count_parallel_sizes, describe_layout, format_layers, list_hosts, list_pipelines
from medley.planner.candidates import ForcedSizes
from medley.planner.memory import MIN_SPARE_BYTES
from medley.planner.placement import PlacementOptions, place_model
from medley.planner.report import format_reasons, format_summary
from medley.planner.site import Site
from medley.planner.unplanned import place_without_shape
from tests.network.networks import wired
from tests.planner.imagined import shape, site
from tests.problems import raises_problem


def test_a_pipeline_is_cut_for_the_order_that_ray_has() -> None:
    """Planned is the thor before the second spark; Ray gives the spark its ranks first."""
    big = shape("qwen3.5-122b-a10b")
    wanted = PlacementOptions(sizes=ForcedSizes(1, 3, 1))
    planned = place_model(big, site("spark:2,thor", "spark-1", "thor-1", "spark-2"), wanted)
    lain = place_model(big, site("spark:2,thor", "spark-1", "spark-2", "thor-1"), wanted)
    assert list_hosts(planned.layout) == ("spark-1", "thor-1", "spark-2")
    assert list_hosts(lain.layout) == ("spark-1", "spark-2", "thor-1")
    assert sum(stage.layers for stage in lain.layout.stages) == big.layers
    assert lain.fit.fits
    assert [rank.device.host for rank in lain.fit.ranks] == ["spark-1", "spark-2", "thor-1"]
    assert any("the running cluster gives" in line for line in lain.why)
    assert not any("the running cluster gives" in line for line in planned.why)


def test_the_first_rank_is_where_the_engine_starts() -> None:
    """An RTX PRO 6000 alone would be fastest, but the cluster's head is the Spark."""
    small = shape("qwen3-8b")
    free = place_model(small, site("spark,rtx"), PlacementOptions())
    headed = place_model(small, site("spark,rtx", "spark-1", "rtx-1"), PlacementOptions())
    assert list_hosts(free.layout) == ("rtx-1",)
    assert "spark-1" in list_hosts(headed.layout)
    because = [each.reason for each in headed.rejected if each.candidate == "rtx-1 alone"]
    assert because == ["the engine starts on spark-1 and needs a rank there; from that host: --hosts 1"]


def test_an_engine_that_cannot_split_a_model_has_no_pipeline_of_it() -> None:
    one = shape("qwen3.8-flash-next-nvfp4")
    assert count_parallel_sizes(place_model(one, site("spark:2"), PlacementOptions()).layout) == (2, 1, 1)
    piped = PlacementOptions(engine="sglang", sizes=ForcedSizes(1, 2, 1))
    assert count_parallel_sizes(place_model(one, site("spark:2"), piped).layout) == (1, 2, 1)
    with raises_problem("--pp 2 ", cause="vLLM ", fix="--pp 48"):
        place_model(one, site("spark:2"), PlacementOptions(sizes=ForcedSizes(1, 2, 1)))


def test_a_gpu_without_the_attention_of_a_model_takes_none_of_it() -> None:
    """A Thor has compute capability 11.0, and vLLM's sparse attention is for 9.x, 10.x and 12.x."""
    sparse = shape("glm-5.3-flash-nvfp4")
    mixed = place_model(sparse, site("spark:2,thor"), PlacementOptions())
    assert list_hosts(mixed.layout) == ("spark-1", "spark-2")
    assert any("for compute capability 11.0, only for" in each.reason for each in mixed.rejected)
    with raises_problem("thor-1, thor-2", cause="vLLM has no attention backend of this model"):
        place_model(sparse, site("thor:2"), PlacementOptions())
    other = place_model(sparse, site("thor:2"), PlacementOptions(engine="sglang"))
    assert list_hosts(other.layout) == ("thor-1", "thor-2"), "nothing is known of SGLang's"


def test_tables_stay_in_the_memory_of_a_host_with_its_own_gpu() -> None:
    """SGLang's cookbook has this model, with 47.7 GiB of n-grams, on one RTX PRO 6000 and on two Sparks."""
    model = shape("qwen3.8-flash-next-nvfp4")
    for engine in ("vllm", "sglang"):
        on = site("rtx", engine=engine)
        found = place_model(model, on, PlacementOptions(engine=engine))
        (rank,) = found.fit.ranks
        assert rank.weights_bytes == model.weights_bytes - model.host_table_bytes
        assert "rtx-1: 47.7 GiB of the model's tables are in its own memory, not on its GPUs" in found.why
    facts, kind = on.hosts["rtx-1"]
    full = facts.replace(memory=facts.memory.replace(available_bytes=40 * GIB))
    with raises_problem(cause=("rtx-1: its memory has 40.0 GiB available", "need 47.7 GiB")):
        place_model(
            model, on.replace(hosts={"rtx-1": SiteHost(full, kind)}), PlacementOptions(engine="sglang")
        )
    with raises_problem("does not fit", cause="spark-1 0: weights 121.0"):
        place_model(model, site("spark"), PlacementOptions())


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_so_many_hosts_as_asked_for(count: int) -> None:
    names = tuple(f"cpu-{nth}" for nth in range(1, 5))
    found = place_model(shape("demo"), site("cpu:4", *names), PlacementOptions(host_count=count))
    assert len(list_hosts(found.layout)) == count
    assert list_hosts(found.layout)[0] == "cpu-1"


def test_all_of_the_gpus_that_were_named() -> None:
    two = place_model(shape("qwen3-8b"), site("thor"), PlacementOptions(gpus="all"))
    assert count_parallel_sizes(two.layout) == (1, 1, 1)


def test_one_server_has_the_replicas_that_its_engine_can() -> None:
    many = PlacementOptions(goal="throughput", concurrency=256, context=2048)
    small = shape("qwen3-4b-instruct-2507")
    assert count_parallel_sizes(place_model(small, site("rtx:2"), many).layout)[2] == 2
    one = many.replace(needs_one_server=True)
    assert count_parallel_sizes(place_model(small, site("rtx:2"), one).layout)[2] == 2, (
        "vLLM has one address for both"
    )
    other = place_model(small, site("rtx:2"), one.replace(engine="sglang"))
    assert count_parallel_sizes(other.layout)[2] == 1
    assert any("SGLang's replicas are on one host" in each.reason for each in other.rejected)


def test_a_cluster_has_one_pipeline_over_several_hosts() -> None:
    names = tuple(f"spark-{nth}" for nth in range(1, 5))
    wanted = PlacementOptions(
        goal="throughput", concurrency=64, context=2048, sizes=ForcedSizes(tensor_parallel=2, replicas=2)
    )
    assert count_parallel_sizes(place_model(shape("qwen3-8b"), site("spark:4"), wanted).layout) == (2, 1, 2)
    with pytest.raises(Problem) as caught:
        place_model(shape("qwen3-8b"), site("spark:4", *names), wanted)
    assert "needs a cluster of its own" in caught.value.cause


def test_the_users_own_split_is_obeyed_and_priced() -> None:
    big, two = shape("qwen3-32b"), site("spark,thor", "spark-1", "thor-1")
    wanted = PlacementOptions(concurrency=8, sizes=ForcedSizes(stages=2))
    planned = place_model(big, two, wanted)
    forced = place_model(big, two, wanted.replace(partition="10,54"))
    assert format_layers(forced.layout) == "10,54" != format_layers(planned.layout)
    assert forced.prediction.tokens_per_s < planned.prediction.tokens_per_s
    assert any("; your VLLM_PP_LAYER_PARTITION=10,54 gives " in line for line in forced.why)
    assert not any("the running cluster" in line for line in forced.why)


@pytest.mark.parametrize(
    ("wanted", "what"),
    [
        pytest.param(
            PlacementOptions(partition="5,2", sizes=ForcedSizes(stages=2)),
            "does not cut",
            id="too many layers",
        ),
        pytest.param(
            PlacementOptions(partition="6", sizes=ForcedSizes(stages=2)), "does not cut", id="one stage"
        ),
        pytest.param(
            PlacementOptions(partition="x,y", sizes=ForcedSizes(stages=2)), "does not cut", id="no numbers"
        ),
        pytest.param(
            PlacementOptions(partition="6,0", sizes=ForcedSizes(stages=2)),
            "does not cut",
            id="an empty stage",
        ),
        pytest.param(PlacementOptions(context=4096), "more than vLLM serves", id="too long"),
        pytest.param(
            PlacementOptions(host_count=3), "no layout matches the options", id="more hosts than there are"
        ),
    ],
)
def test_problems(wanted: PlacementOptions, what: str) -> None:
    with pytest.raises(Problem) as caught:
        place_model(shape("demo"), site("cpu:2", "cpu-1", "cpu-2"), wanted)
    assert what in caught.value.what


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        pytest.param(PlacementOptions(), [["b"]], id="alone on the first"),
        pytest.param(
            PlacementOptions(sizes=ForcedSizes(tensor_parallel=2)), [["b", "a"]], id="tensor parallel"
        ),
        pytest.param(PlacementOptions(sizes=ForcedSizes(stages=2)), [["b"], ["a"]], id="stages"),
    ],
)
def test_a_model_of_which_nothing_is_known(wanted: PlacementOptions, expected: list[list[str]]) -> None:
    renamed = dict(zip("ab", build_hosts("spark:2").values(), strict=True))
    two = Site({name: SiteHost(facts, find_kind(facts)) for name, facts in renamed.items()})
    found = place_without_shape(two.replace(rank_order=("b", "a"), free_slots={"a": 1, "b": 1}), wanted)
    assert [[device.host for device in stage.devices] for stage in found.stages] == expected


def test_so_many_hosts_of_a_model_of_which_nothing_is_known() -> None:
    assert list_hosts(
        place_without_shape(site("spark:2"), PlacementOptions(host_count=2, sizes=ForcedSizes(stages=2)))
    ) == (
        "spark-1",
        "spark-2",
    )
    with raises_problem("1 ", "2 hosts", cause="spark-1"):
        place_without_shape(site("spark:2"), PlacementOptions(host_count=2))


def test_replicas_of_a_model_of_which_nothing_is_known() -> None:
    two_gpus = site("rtx")
    (facts, kind) = two_gpus.hosts["rtx-1"]
    gpus = (facts.gpus[0], facts.gpus[0].replace(index=1))
    two_gpus = two_gpus.replace(hosts={"rtx-1": SiteHost(facts.replace(gpus=gpus), kind)})
    found = place_without_shape(two_gpus, PlacementOptions(sizes=ForcedSizes(replicas=2)))
    assert count_parallel_sizes(found) == (1, 1, 2)
    assert count_parallel_sizes(
        place_without_shape(two_gpus, PlacementOptions(gpus="all", sizes=ForcedSizes(replicas=2)))
    ) == (1, 1, 2)
    with pytest.raises(Problem, match="--dp 2"):
        place_without_shape(site("spark:2"), PlacementOptions(sizes=ForcedSizes(replicas=2)))


def test_the_users_own_split_is_that_of_every_replica() -> None:
    wanted = PlacementOptions(sizes=ForcedSizes(1, 2, 2), partition="10,54")
    found = place_model(shape("qwen3-32b"), site("spark:4"), wanted).layout
    assert [[stage.layers for stage in stages] for stages in list_pipelines(found)] == [[10, 54], [10, 54]]


def changed(on: Site, memory_bytes: int | None, available_bytes: int) -> Site:
    """The same hosts with other memory; None: nobody says what the GPU has."""
    hosts = {}
    for name, (facts, kind) in on.hosts.items():
        gpus = tuple(gpu.replace(memory_bytes=memory_bytes, memory_free_bytes=None) for gpu in facts.gpus)
        memory = facts.memory.replace(available_bytes=available_bytes)
        hosts[name] = SiteHost(facts.replace(gpus=gpus, memory=memory), kind)
    return on.replace(hosts=hosts)


@pytest.mark.parametrize(
    ("on", "what"),
    [
        pytest.param(changed(site("spark"), None, 7 << 30), "too little memory free on spark-1 0", id="full"),
        pytest.param(
            changed(site("cpu"), None, 1 << 30), "too little memory free on cpu-1 0", id="a full CPU"
        ),
        pytest.param(changed(site("rtx"), None, 64 << 30), "the memory of rtx-1 0", id="not said"),
    ],
)
def test_memory_that_is_not_there(on: Site, what: str) -> None:
    with pytest.raises(Problem) as caught:
        place_model(shape("demo"), on, PlacementOptions())
    assert what in caught.value.what


def test_the_largest_gpu_takes_a_model_of_which_nothing_is_known() -> None:
    one = site("rtx")
    facts, kind = one.hosts["rtx-1"]
    small = facts.gpus[0].replace(memory_bytes=8 << 30, memory_free_bytes=8 << 30)
    two = Site({"rtx-1": SiteHost(facts.replace(gpus=(small, facts.gpus[0].replace(index=1))), kind)})
    assert place_without_shape(two, PlacementOptions()).stages[0].devices[0].index == 1


def test_what_is_said_of_a_split_is_said_of_it_as_it_lies() -> None:
    on = site("spark:2", "spark-1", "spark-2")
    forced = place_model(
        shape("gpt-oss-120b"), on, PlacementOptions(sizes=ForcedSizes(1, 2, 1), partition="30,6")
    )
    (tightest,) = [line for line in forced.why if line.startswith("tightest: ")]
    assert tightest == f"tightest: {forced.fit.worst}"
    (predicted,) = [line for line in forced.why if line.startswith("predicted ")]
    assert f"{forced.prediction.tokens_per_s:.1f} tok/s" in predicted


def test_more_ranks_than_there_are() -> None:
    with raises_problem("4 ", " 2 ", cause=("tensor parallel 2", "2 stages"), fix="medley ray-head"):
        place_without_shape(site("spark:2"), PlacementOptions(sizes=ForcedSizes(2, 2)))
    assert describe_layout(place_without_shape(site("spark:2"), PlacementOptions())) == "spark-1 alone"


def test_a_layout_that_leaves_shared_memory_free_beats_one_as_fast_that_fills_it() -> None:
    """Two cuts of one speed: one leaves a Thor half a GiB, the other ten."""
    found = place_model(
        shape("qwen3-235b-a22b-instruct-2507"), site("spark:2,thor:2,rtx:1"), PlacementOptions()
    )
    shared = [rank for rank in found.fit.ranks if rank.device.kind != "rtx"]
    assert min(rank.free_bytes for rank in shared) > MIN_SPARE_BYTES
    assert any("about as fast, leaves only 0." in each.reason for each in found.rejected)


@pytest.mark.parametrize(
    ("cables", "cabling", "rdma"),
    [
        pytest.param("1.0-2.1 2.0-3.1 3.0-1.1", "ring of 3: h1 – h2 – h3", True, id="ring"),
        pytest.param("1.0-2.0 1.1-3.0 2.1-3.1", "ring of 3: h1 – h2 – h3", False, id="mirrored ring"),
        pytest.param("1.0-2.1 2.0-3.1", "line of 3: h1 – h2 – h3", False, id="line"),
    ],
)
def test_a_plan_names_the_cabling_and_what_keeps_its_cables_idle(
    cables: str,
    cabling: str,
    rdma: bool,  # noqa: FBT001 - a table's cell
) -> None:
    (spark,) = build_hosts("spark:1").values()
    found = {name: spark.replace(net=each.net, rdma=each.rdma) for name, each in wired(3, cables).items()}
    hosts = Site({name: SiteHost(facts, find_kind(facts)) for name, facts in found.items()})
    wanted = PlacementOptions(sizes=ForcedSizes(1, 3, 1))
    chosen = place_model(shape("qwen3-8b"), hosts, wanted)
    assert chosen.layout.link is not None
    assert chosen.layout.link.rdma is rdma
    said = [line.plain.split() for line in format_summary("qwen3-8b", chosen, 100)]
    assert ["cabling", *cabling.partition(":")[0].split()] in said
    assert f"  cabling: {cabling}" in [line.plain for line in format_reasons(chosen)]
    warned = [each for each in chosen.warnings if "two ports of one number" in each or "is missing" in each]
    assert len(warned) == (not rdma)


@pytest.mark.parametrize("hosts", ["spark:2", "rtx:2"])
def test_a_width_that_config_gives_splits_a_hybrid(hosts: str) -> None:
    """Qwen3.8 27B in FP8 has 17,408 rows, 68 blocks a rank of two; by its bytes they would be 20,032."""
    found = place_model(
        shape("qwen3.8-27b-fp8"), site(hosts), PlacementOptions(sizes=ForcedSizes(tensor_parallel=2))
    )
    assert count_parallel_sizes(found.layout) == (2, 1, 1)
    assert not any("unchecked" in each for each in found.warnings)


def test_a_guess_warns_and_refuses_nothing() -> None:
    known = shape("qwen3.8-27b-fp8")
    gaps = {"feed_forward": None, "weights_source": "config"}
    wanted = PlacementOptions(sizes=ForcedSizes(tensor_parallel=2))
    guessed = place_model(known.replace(**gaps), site("spark:2"), wanted)
    estimate, width = guessed.warnings[-2:]
    assert "estimate from config.json" in estimate
    assert "blocks of 128 is unchecked" in width
    alone = place_model(known.replace(**gaps), site("spark"), PlacementOptions())
    assert not any("unchecked" in each for each in alone.warnings), "one rank has all blocks"
