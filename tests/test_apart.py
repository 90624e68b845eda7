"""Which hosts cannot be in one cluster for where their engines come from, and what is said of it."""

from dataclasses import replace

import pytest

from medley import apart, config, origins
from medley.engine import Serving
from medley.instead import placed
from medley.layout.candidates import Sizes
from medley.layout.words import hosts
from medley.origin import Asked
from medley.placement import Wanted, placement
from medley.problem import Problem
from medley.recipe import Order
from medley.weights import Weights
from tests.test_placement import MODELS, shape, site

IMAGE = config.hosts()["orin"].container.image
ONE = Asked(image="maker/vllm:1")


def order(name: str, wanted: Wanted | None = None) -> Order:
    weights = Weights(name, str(MODELS[name].repository), MODELS[name])
    return Order(weights, Serving(weights.target, name), wanted or Wanted())


def test_an_orin_on_jetpack_6_is_in_no_cluster_with_the_lock_of_others() -> None:
    mixed = site("spark:2,orin:2")
    found = placement(shape("qwen2.5-72b-instruct"), mixed, Wanted())
    assert set(hosts(found.layout)) <= {"spark-1", "spark-2"}
    (warning,) = found.warnings
    assert warning.startswith(
        "orin-1, orin-2 and spark-1, spark-2 cannot be in one cluster: vLLM 0.12.0 and "
    )
    assert "JetPack 7.2 on orin-1, orin-2 or one image on all of them (--image NAME)" in warning
    apart = [each.because for each in found.rejected if "orin-1 and spark-1 cannot be" in each.because]
    assert apart


def test_a_model_that_an_image_is_too_old_for_is_placed_elsewhere() -> None:
    model = MODELS["nemotron-3-super-120b-a12b-nvfp4"]
    there = origins.chosen(site("spark,orin:2"), Wanted(), Asked(), model)
    found = placement(shape("nemotron-3-super-120b-a12b-nvfp4"), there, Wanted())
    assert hosts(found.layout) == ("spark-1",)
    assert any("0.17.1 is the first that does" in each.because for each in found.rejected)
    alone = origins.chosen(site("orin:2"), Wanted(), Asked(), model)
    with pytest.raises(Problem) as caught:
        placed(order("nemotron-3-super-120b-a12b-nvfp4"), shape("nemotron-3-super-120b-a12b-nvfp4"), alone)
    assert "on orin-1, orin-2: JetPack 7.2, or --image NAME of a newer one" in caught.value.fix
    own = origins.chosen(site("orin:2"), Wanted(), ONE, model)
    assert placement(shape("nemotron-3-super-120b-a12b-nvfp4"), own, Wanted()).layout


def test_who_asks_for_both_is_told_the_way() -> None:
    with pytest.raises(Problem) as caught:
        placed(order("qwen3-8b", Wanted(sizes=Sizes(1, 2, 1))), shape("qwen3-8b"), site("spark,orin"))
    assert "vLLM 0.12.0 and 0.32.0, Python 3.10 and 3.12" in caught.value.cause
    assert "orin-1 with spark-1: JetPack 7.2 on orin-1 or one image on all" in caught.value.fix


@pytest.mark.parametrize(
    ("kinds", "asked"),
    [
        pytest.param("spark,orin-r39", Asked(), id="JetPack 7.2, with Nix"),
        pytest.param("spark,orin", ONE, id="one image on all"),
        pytest.param("spark,orin", Asked(environment="VENV"), id="the user's own on all"),
        pytest.param("orin:2", Asked(), id="both out of their image"),
        pytest.param("spark,cpu", Asked(), id="a CPU takes no part with GPUs anyway"),
    ],
)
def test_they_come_together(kinds: str, asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEDLEY_FLAKE", "/flake")
    there = origins.chosen(site(kinds), Wanted(), asked)
    assert list(apart.warnings(there.origins)) == []
    if "cpu" not in kinds:
        found = placement(shape("qwen3-8b"), there, Wanted(sizes=Sizes(1, 2, 1)))
        assert len(hosts(found.layout)) == 2


def test_a_plan_says_who_knows_what_is_in_an_image() -> None:
    found = placement(shape("qwen3-8b"), site("orin"), Wanted())
    assert found.why[-1] == (
        f"orin-1: out of the image {IMAGE}: vLLM 0.12.0, Python 3.10, CUDA 12.6, by its tag; "
        "nobody says which Ray it has"
    )


def test_without_lock_and_image_it_is_the_users_own() -> None:
    wanted = Wanted(engine="sglang")
    found = placement(shape("qwen3-8b"), origins.chosen(site("orin-r39"), wanted, Asked()), wanted)
    assert "orin-r39-1: no lock has this engine" in found.why[-1]


def test_hosts_that_have_joined_agree() -> None:
    running = site("spark,orin", "spark-1", "orin-1")
    assert origins.chosen(running, Wanted(), Asked()).origins == {}
    found = placement(shape("qwen3-8b"), running, Wanted(sizes=Sizes(1, 2, 1)))
    assert not any("one cluster" in each for each in found.warnings)


def test_without_nix_the_nccl_of_an_orin_starts_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MEDLEY_FLAKE", raising=False)
    there = origins.chosen(site("orin-r39:2"), Wanted(), Asked())
    alone = placement(shape("qwen3-8b"), there, Wanted())
    assert len(hosts(alone.layout)) == 1
    assert any("cannot be in one cluster: the NCCL that PyPI has" in each for each in alone.warnings)
    order = Order(Weights("qwen3-8b", "Qwen/Qwen3-8B", None), Serving("Qwen/Qwen3-8B", "qwen3-8b"))
    order = replace(order, wanted=Wanted(sizes=Sizes(2)))
    with pytest.raises(Problem) as caught:
        placed(order, shape("qwen3-8b"), there)
    assert "nix run .#ray-head" in caught.value.fix
    assert "--nccl FILE" in caught.value.fix
    monkeypatch.setenv("VLLM_NCCL_SO_PATH", "/opt/nccl/libnccl.so.2")
    given = origins.chosen(there, Wanted(), Asked())
    assert len(hosts(placed(order, shape("qwen3-8b"), given).layout)) == 2
