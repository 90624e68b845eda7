import pytest

from medley import config
from medley.engine.launch import LaunchOrder
from medley.engine.server_spec import ServerSpec
from medley.environment.engine_source import EngineRequest
from medley.host.hypothetical import build_hosts
from medley.host.kind import SiteHost, find_kind
from medley.model.resolve import Weights
from medley.planner.choose import Choice
from medley.planner.loading import compute_load_time, list_loader_arguments
from medley.planner.placement import PlacementOptions
from medley.planner.site import Site
from medley.serving import alternatives
from medley.serving.engine_sources import add_engine_sources

MODELS = config.load_models()


def planned(model: str, hosts: str, request: EngineRequest | None = None) -> tuple[Choice, Site]:
    found = MODELS[model]
    assert found.shape
    site = Site({name: SiteHost(facts, find_kind(facts)) for name, facts in build_hosts(hosts).items()})
    wanted = PlacementOptions()
    order = LaunchOrder(Weights(model, found.repository or model, found), ServerSpec(model, model), wanted)
    site = add_engine_sources(site, wanted, request or EngineRequest(), found)
    return alternatives.plan_order(order, found.shape, site), site


def test_the_time_is_that_of_the_slowest_rank() -> None:
    choice, site = planned("gpt-oss-120b", "spark:2")
    found = compute_load_time(choice, site)
    assert found
    most = max(rank.weights_bytes for rank in choice.fit.ranks)
    assert found.seconds == pytest.approx(most / 0.38e9)
    assert "0.38 GB/s" in str(found)
    assert "MiaAI-Lab" in str(found)


def test_a_kind_without_a_published_rate_has_none() -> None:
    assert compute_load_time(*planned("gpt-oss-20b", "thor")) is None


@pytest.mark.parametrize(
    ("model", "hosts", "engine", "loads"),
    [
        pytest.param("gpt-oss-120b", "spark", "vllm", True, id="one Spark"),
        pytest.param("gpt-oss-120b", "spark", "sglang", False, id="another engine"),
        pytest.param("gpt-oss-120b", "spark:2", "vllm", False, id="ranks would send it to each other"),
        pytest.param("gpt-oss-20b", "thor", "vllm", False, id="a kind that has none"),
    ],
)
def test_the_loader_is_for_one_rank_of_a_kind_that_has_it(
    model: str, hosts: str, engine: str, *, loads: bool
) -> None:
    choice, site = planned(model, hosts)
    found = list_loader_arguments(choice, site, "vllm" if engine == "vllm" else "sglang")
    assert [flags for flags, _ in found] == [("--load-format", "fastsafetensors")] * loads


def test_its_buffer_must_fit_beside_the_weights() -> None:
    choice, site = planned("gpt-oss-120b", "spark")
    rank = choice.fit.ranks[0]
    full = rank.replace(device=rank.device.replace(memory_bytes=rank.weights_bytes + (5 << 30)))
    assert list_loader_arguments(choice.replace(fit=choice.fit.replace(ranks=(full,))), site, "vllm") == ()


def test_an_image_may_lack_the_loader() -> None:
    choice, site = planned("gpt-oss-20b", "spark", EngineRequest(image="mine"))
    assert list_loader_arguments(choice, site, "vllm") == ()


@pytest.mark.parametrize(
    ("request_", "loads"),
    [
        pytest.param(EngineRequest(environment="vllm-cuda"), True, id="a lock"),
        pytest.param(EngineRequest(environment="/a/virtualenv"), False, id="a virtualenv"),
        pytest.param(EngineRequest(image="default"), False, id="the default image"),
    ],
)
def test_only_a_lock_is_known_to_have_the_loader(request_: EngineRequest, *, loads: bool) -> None:
    choice, site = planned("gpt-oss-20b", "spark", request_)
    assert bool(list_loader_arguments(choice, site, "vllm")) == loads


@pytest.mark.parametrize("own", [False, True])
def test_a_host_whose_engine_is_chosen_already_says_whether_it_is_its_own(*, own: bool) -> None:
    choice, site = planned("gpt-oss-20b", "spark")
    assert (
        bool(list_loader_arguments(choice, site.replace(engine_sources={}, has_user_engine=own), "vllm"))
        != own
    )
