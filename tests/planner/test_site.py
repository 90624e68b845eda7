"""Which hosts cannot be in one cluster for where their engines come from, and what is said of it."""

from pathlib import Path

import pytest

from medley import config, transcript
from medley.engine.launch import LaunchOrder
from medley.engine.server_spec import ServerSpec
from medley.environment.engine_source import EngineRequest
from medley.errors import Problem
from medley.host.facts import Facts, read_facts
from medley.host.kind import SiteHost, find_kind
from medley.model.resolve import Weights
from medley.planner import list_hosts
from medley.planner.candidates import ForcedSizes
from medley.planner.placement import PlacementOptions, place_model
from medley.planner.site import Site, list_incompatible_warnings
from medley.serving.alternatives import plan_order
from medley.serving.engine_sources import add_engine_sources
from tests.planner.imagined import MODELS, shape, site

IMAGE = config.load_hosts()["orin"].container.older[0].image
ONE = EngineRequest(image="maker/vllm:1")


def order(name: str, wanted: PlacementOptions | None = None) -> LaunchOrder:
    weights = Weights(name, str(MODELS[name].repository), MODELS[name])
    return LaunchOrder(weights, ServerSpec(weights.target, name), wanted or PlacementOptions())


def test_an_orin_on_jetpack_6_is_in_no_cluster_with_the_lock_of_others() -> None:
    mixed = site("spark:2,orin:2")
    found = place_model(shape("qwen2.5-72b-instruct"), mixed, PlacementOptions())
    assert set(list_hosts(found.layout)) <= {"spark-1", "spark-2"}
    (warning,) = found.warnings
    assert warning.startswith(
        "orin-1, orin-2 are not used: orin-1, orin-2 and spark-1, spark-2 cannot be in one cluster. "
        "Reason: vLLM 0.12.0 and "
    )
    assert "JetPack 7.2 on orin-1, orin-2 or one image on all of them (--image NAME)" in warning
    apart = [each.reason for each in found.rejected if "orin-1 and spark-1 cannot be" in each.reason]
    assert apart


def test_a_model_that_an_image_is_too_old_for_is_placed_elsewhere() -> None:
    model = MODELS["nemotron-3-super-120b-a12b-nvfp4"]
    there = add_engine_sources(site("spark,orin:2"), PlacementOptions(), EngineRequest(), model)
    found = place_model(shape("nemotron-3-super-120b-a12b-nvfp4"), there, PlacementOptions())
    assert list_hosts(found.layout) == ("spark-1",)
    assert any("0.17.1 is the first that does" in each.reason for each in found.rejected)
    alone = add_engine_sources(site("orin:2"), PlacementOptions(), EngineRequest(), model)
    with pytest.raises(Problem) as caught:
        plan_order(
            order("nemotron-3-super-120b-a12b-nvfp4"), shape("nemotron-3-super-120b-a12b-nvfp4"), alone
        )
    assert "on orin-1, orin-2: JetPack 7.2, or --image NAME of a newer one" in caught.value.fix
    own = add_engine_sources(site("orin:2"), PlacementOptions(), ONE, model)
    assert place_model(shape("nemotron-3-super-120b-a12b-nvfp4"), own, PlacementOptions()).layout


def test_who_asks_for_both_is_told_the_way() -> None:
    with pytest.raises(Problem) as caught:
        plan_order(
            order("qwen3-8b", PlacementOptions(sizes=ForcedSizes(1, 2, 1))),
            shape("qwen3-8b"),
            site("spark,orin"),
        )
    assert "vLLM 0.12.0 and 0.33.0, Python 3.10 and 3.12" in caught.value.cause
    assert "orin-1 with spark-1: JetPack 7.2 on orin-1 or one image on all" in caught.value.fix


@pytest.mark.parametrize(
    ("kinds", "asked"),
    [
        pytest.param("spark,orin-r39", EngineRequest(), id="JetPack 7.2, with Nix"),
        pytest.param("spark,orin", ONE, id="one image on all"),
        pytest.param("spark,orin", EngineRequest(environment="VENV"), id="the user's own on all"),
        pytest.param("orin:2", EngineRequest(), id="both out of their image"),
        pytest.param("spark,cpu", EngineRequest(), id="a CPU takes no part with GPUs anyway"),
    ],
)
def test_they_come_together(kinds: str, asked: EngineRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEDLEY_FLAKE", "/flake")
    there = add_engine_sources(site(kinds), PlacementOptions(), asked)
    assert list(list_incompatible_warnings(there.engine_sources, ())) == []
    if "cpu" not in kinds:
        found = place_model(shape("qwen3-8b"), there, PlacementOptions(sizes=ForcedSizes(1, 2, 1)))
        assert len(list_hosts(found.layout)) == 2


def test_a_plan_says_who_knows_what_is_in_an_image() -> None:
    found = place_model(shape("qwen3-8b"), site("orin"), PlacementOptions())
    assert found.why[-1] == (
        f"orin-1: container image {IMAGE}: vLLM 0.12.0, Python 3.10, CUDA 12.6, by its tag: read, not run; "
        "its Ray version is not documented"
    )


def test_hosts_that_have_joined_agree() -> None:
    running = site("spark,orin", "spark-1", "orin-1")
    assert add_engine_sources(running, PlacementOptions(), EngineRequest()).engine_sources == {}
    found = place_model(shape("qwen3-8b"), running, PlacementOptions(sizes=ForcedSizes(1, 2, 1)))
    assert not any("one cluster" in each for each in found.warnings)


def test_without_nix_the_nccl_of_an_orin_starts_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MEDLEY_FLAKE", raising=False)
    there = add_engine_sources(site("orin-r39:2"), PlacementOptions(), EngineRequest())
    alone = place_model(shape("qwen3-8b"), there, PlacementOptions())
    assert len(list_hosts(alone.layout)) == 1
    assert any("one cluster. Reason: the NCCL that PyPI has" in each for each in alone.warnings)
    order = LaunchOrder(Weights("qwen3-8b", "Qwen/Qwen3-8B", None), ServerSpec("Qwen/Qwen3-8B", "qwen3-8b"))
    order = order.replace(placement=PlacementOptions(sizes=ForcedSizes(2)))
    with pytest.raises(Problem) as caught:
        plan_order(order, shape("qwen3-8b"), there)
    assert "nix run .#ray-head" in caught.value.fix
    assert "--nccl FILE" in caught.value.fix
    monkeypatch.setenv("VLLM_NCCL_SO_PATH", "/opt/nccl/libnccl.so.2")
    given = add_engine_sources(there, PlacementOptions(), EngineRequest())
    assert len(list_hosts(plan_order(order, shape("qwen3-8b"), given).layout)) == 2


def recorded(name: str) -> Facts:
    return read_facts(
        transcript.parse_transcript(
            (Path(__file__).parents[1] / "host" / "recorded" / f"{name}.txt").read_text()
        )
    )


def recorded_site(*names: str) -> Site:
    found = {name: recorded(name) for name in names}
    return Site({name: SiteHost(each, find_kind(each)) for name, each in found.items()})


@pytest.mark.parametrize(
    ("asked", "indexes"),
    [
        pytest.param(None, [0, 1], id="all there are"),
        pytest.param("1", [1], id="the second"),
        pytest.param("1,0", [1, 0], id="both"),
        pytest.param("all", [0, 1], id="all"),
    ],
)
def test_gpus(asked: str | None, indexes: list[int]) -> None:
    assert [device.index for device in recorded_site("rtx-two").list_devices(asked)] == indexes


@pytest.mark.parametrize(
    ("hosts", "asked", "what"),
    [
        pytest.param(["rtx-two"], "2", "there is no GPU '2'", id="no such index"),
        pytest.param(["rtx-two"], "0,0", "names a GPU twice", id="twice"),
        pytest.param(["rtx-two"], "first", "there is no GPU 'first'", id="no number"),
        pytest.param(["debian-vm"], "0", "is not available", id="no GPU at all"),
        pytest.param(["spark", "rtx-two"], "0", "is for one host", id="two hosts"),
    ],
)
def test_gpus_that_cannot_be(hosts: list[str], asked: str, what: str) -> None:
    with pytest.raises(Problem) as caught:
        recorded_site(*hosts).list_devices(asked)
    assert what in caught.value.what


def test_a_cluster_has_the_slots_that_are_free() -> None:
    joined = recorded_site("rtx-two", "spark").replace(
        rank_order=("spark", "rtx-two"),
        free_slots={"spark": 0, "rtx-two": 1},
    )
    assert [(device.host, device.index) for device in joined.list_devices()] == [("rtx-two", 0)]
    assert joined.head == "spark"


def test_a_gpu_that_runs_a_model_is_not_given_again() -> None:
    joined = recorded_site("rtx-two").replace(
        rank_order=("rtx-two",),
        free_slots={"rtx-two": 1},
        busy_slots={"rtx-two": 1},
    )
    assert [device.index for device in joined.list_devices()] == [1]
    shared = recorded_site("debian-vm").replace(
        rank_order=("debian-vm",),
        free_slots={"debian-vm": 1},
        busy_slots={"debian-vm": 1},
    )
    assert len(shared.list_devices()) == 1, "a CPU has as many slots as it was given"
    assert joined.select_hosts(["rtx-two"]).busy_slots == {"rtx-two": 1}


def test_a_part_of_a_cluster() -> None:
    joined = recorded_site("rtx-two", "spark").replace(
        rank_order=("spark", "rtx-two"),
        free_slots={"spark": 1, "rtx-two": 2},
        addresses={"spark": "10.0.0.1", "rtx-two": "10.0.0.2"},
    )
    part = joined.select_hosts(["rtx-two"])
    assert (list(part.hosts), part.rank_order, part.free_slots) == (["rtx-two"], ("rtx-two",), {"rtx-two": 2})
    assert part.addresses == {"rtx-two": "10.0.0.2"}
