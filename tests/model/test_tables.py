import pytest

from medley import config
from medley.engine.interface import Engine
from medley.engine.launch import ENGINES
from medley.engine.server_spec import ServerSpec
from medley.model.shape import compute_shape
from medley.planner.plan import Plan
from medley.schema import Shape
from tests.model.checkpoints import checkpoint
from tests.model.measured import MEASURED
from tests.model.published import PUBLISHED

HOST = config.load_hosts()["spark"]


def _total_bytes(shape: Shape) -> int:
    return shape.layers * shape.layer_bytes + shape.embedding_bytes + shape.head_bytes + shape.draft_bytes


def test_every_known_model_is_published_or_measured() -> None:
    named = {name for name, model in config.load_models().items() if model.shape}
    assert named == {*PUBLISHED, *MEASURED}


@pytest.mark.parametrize("name", MEASURED)
def test_the_parts_come_to_what_was_counted(name: str) -> None:
    shape, known = config.load_models()[name].shape, MEASURED[name]
    assert shape is not None
    assert _total_bytes(shape) == pytest.approx(known.total_bytes, abs=shape.layers)
    assert shape.parameters / 1e9 == pytest.approx(known.parameters_b, rel=0.01)
    assert shape.active_parameters / 1e9 == pytest.approx(known.active_b, rel=0.12)


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_table_is_what_the_checkpoint_gives(name: str) -> None:
    """The sizes are those of config.json; every sum in the table follows from them."""
    model = PUBLISHED[name]
    found = compute_shape(checkpoint(model.config, dense=model.dense, routed=model.routed))
    assert config.load_models()[name].shape == found.replace(**model.otherwise)


@pytest.mark.parametrize("name", [name for name, model in PUBLISHED.items() if model.total_bytes])
def test_the_bytes_come_to_what_was_published(name: str) -> None:
    model, shape = PUBLISHED[name], config.load_models()[name].shape
    assert shape is not None
    assert _total_bytes(shape) == pytest.approx(model.total_bytes, rel=0.02)


@pytest.mark.parametrize("name", [*PUBLISHED, *MEASURED])
def test_a_layer_is_what_a_token_reads_and_the_idle_experts(name: str) -> None:
    shape = config.load_models()[name].shape
    assert shape is not None
    idle = (shape.experts - shape.experts_per_token) * shape.expert_bytes
    assert shape.active_layer_bytes + idle == shape.layer_bytes
    assert 0 < shape.active_layer_bytes <= shape.layer_bytes
    assert shape.active_parameters <= shape.parameters


@pytest.mark.parametrize(
    ("name", "parameters_b", "active_b"),
    [
        ("qwen3-30b-a3b-thinking-2507", 30.5, 3.3),
        ("qwen3-235b-a22b-instruct-2507", 235, 22),
        ("glm-4.5-air", 106, 12),
        ("nemotron-3-super-120b-a12b-nvfp4", 120, 12),
        ("qwen3.5-122b-a10b-fp8", 122, 10),
        ("gpt-oss-120b", 116.8, 5.7),
        ("gpt-oss-20b", 20.9, 4.2),
        ("deepseek-v3", 671, 37),
        ("qwen3.8-27b", 27.4, 27.4),
        ("qwen3-coder-next-fp8", 79.7, 3.6),
        ("minimax-m2.7", 228.7, 10),
        ("minimax-m3", 427, 26),
        ("minimax-m3-nvfp4", 427, 26),
        ("mimo-v2-flash", 309, 15),
        ("nemotron-3-nano-30b-a3b-nvfp4", 31.5, 3.5),
    ],
)
def test_parameters_are_as_the_model_card_says(name: str, parameters_b: float, active_b: float) -> None:
    """OpenAI's 5.1 and 3.6 B leave the embedding out; it is 0.58 B here, and counted as everywhere else."""
    shape = config.load_models()[name].shape
    assert shape is not None
    assert shape.parameters / 1e9 == pytest.approx(parameters_b, rel=0.01)
    assert shape.active_parameters / 1e9 == pytest.approx(active_b, rel=0.12)


@pytest.mark.parametrize("engine", ENGINES.values(), ids=list(ENGINES))
@pytest.mark.parametrize("name", [*PUBLISHED, *MEASURED])
def test_each_flag_is_given_once(name: str, engine: Engine) -> None:
    model, plan = config.load_models()[name], Plan(sequences=64, batch_tokens=4096, kv_type="fp8")
    names = [flag.names[0] for flag in engine.list_flags(ServerSpec("/m", "m"), plan, HOST, model)]
    assert len(names) == len(set(names))
    assert ("--tool-call-parser" in names) == (model.tool_parser is not None)
