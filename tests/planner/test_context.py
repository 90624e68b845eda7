"""What may be asked of a context: by config.json, by the maker, or by the user's own variable."""

import pytest

from medley.host_schema import ENGINE_TABLES
from medley.planner.context import (
    allows_longer_context,
    describe_limits,
    find_longest_context,
)
from medley.planner.placement import PlacementOptions, place_model
from medley.planner.plan import plan_engine
from medley.planner.remedies import NoLayout
from medley.schema import EngineName
from tests.planner.imagined import shape, site

NEMOTRON = "nemotron-3-super-120b-a12b-nvfp4"


def test_the_maker_serves_more_than_config_gives() -> None:
    """NVIDIA's guide for the DGX Spark serves 1,000,000 tokens of a model whose config.json has 262,144."""
    sparks = site("spark:2")
    found = place_model(shape(NEMOTRON), sparks, PlacementOptions(context=1_000_000))
    assert (found.fit.context, found.workload.is_beyond_config) == (1_000_000, True)
    assert any(
        "262,144" in each and ENGINE_TABLES["vllm"].context_variable in each for each in found.warnings
    )
    assert plan_engine(found, sparks.facts, context=1_000_000).is_beyond_config
    usual = place_model(shape(NEMOTRON), sparks, PlacementOptions(context=262_144))
    assert not usual.workload.is_beyond_config
    assert not any("262,144" in each for each in usual.warnings)


@pytest.mark.parametrize(
    ("model", "engine", "context", "said"),
    [
        pytest.param(NEMOTRON, "vllm", 2_000_000, ("262,144", "1,048,576"), id="more than the maker's"),
        pytest.param("qwen3.8-27b", "sglang", 900_000, ("262,144",), id="the maker names no way on SGLang"),
        pytest.param("qwen3-8b", "vllm", 80_000, ("40,960",), id="a maker that says nothing"),
    ],
)
def test_more_than_anybody_serves_is_a_problem_with_both_limits(
    model: str, engine: EngineName, context: int, said: tuple[str, ...]
) -> None:
    wanted = PlacementOptions(context=context, engine=engine)
    with pytest.raises(NoLayout) as caught:
        place_model(shape(model), site("spark:2"), wanted)
    assert all(each in caught.value.cause for each in said)
    assert str(find_longest_context(shape(model), engine)) in caught.value.fix


def test_the_users_own_variable_is_obeyed_and_warned_about() -> None:
    wanted = PlacementOptions(context=80_000, allows_longer_context=True)
    found = place_model(shape("qwen3-8b"), site("spark"), wanted)
    assert found.fit.context == 80_000
    assert any("only by your VLLM_ALLOW_LONG_MAX_MODEL_LEN" in each for each in found.warnings)


@pytest.mark.parametrize(("value", "allowed"), [("1", True), (" True ", True), ("0", False), ("", False)])
def test_what_engines_take_for_yes(value: str, allowed: bool) -> None:  # noqa: FBT001
    assert allows_longer_context({ENGINE_TABLES["vllm"].context_variable: value}, "vllm") is allowed
    assert not allows_longer_context({}, "sglang")


def test_limits_name_the_engine_that_serves_more() -> None:
    assert describe_limits(shape(NEMOTRON), "vllm").endswith("its maker serves 1,048,576 on vLLM")
    assert describe_limits(shape("qwen3.8-27b"), "sglang") == "config.json gives 262,144 tokens"
