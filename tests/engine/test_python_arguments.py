"""A server's flags as the arguments of the engine's class."""

import pytest

from medley import config
from medley.command import Flag
from medley.engine.launch import ENGINES
from medley.engine.python_arguments import (
    build_argument_table,
    convert_to_arguments,
    list_argument_reasons,
)
from medley.engine.server_spec import ServerSpec
from medley.planner.plan import Plan
from medley.schema import EngineName
from tests.engine.plans import KINDS, PLANS, offered


def of(engine: EngineName, *flags: tuple[str, str | None]) -> dict[str, object]:
    """Less the model."""
    found = build_argument_table(
        convert_to_arguments(engine, "/m", [Flag((name,), value, "why") for name, value in flags])
    )
    assert found.pop({"vllm": "model", "sglang": "model_path"}[engine]) == "/m"
    return found


@pytest.mark.parametrize(
    ("flag", "argument"),
    [
        pytest.param(("--tensor-parallel-size", "2"), {"tensor_parallel_size": 2}, id="a whole number"),
        pytest.param(("--gpu-memory-utilization", "0.40"), {"gpu_memory_utilization": 0.4}, id="a share"),
        pytest.param(("--enforce-eager", None), {"enforce_eager": True}, id="a flag alone"),
        pytest.param(
            ("--no-enable-prefix-caching", None), {"enable_prefix_caching": False}, id="its contrary"
        ),
        pytest.param(("--kv-cache-dtype", "fp8"), {"kv_cache_dtype": "fp8"}, id="a word"),
        pytest.param(
            ("--hf-overrides", '{"a": [1]}'), {"hf_overrides": {"a": [1]}}, id="a table written as JSON"
        ),
        pytest.param(("--revision", "1234567"), {"revision": "1234567"}, id="digits that are no number"),
        pytest.param(("--max-model-len", "auto"), {"max_model_len": -1}, id="the longest that fits"),
        pytest.param(("--max-model-len", "8192"), {"max_model_len": 8192}, id="a length"),
        pytest.param(("--port", "8000"), {}, id="where a server listens"),
        pytest.param(("--tool-call-parser", "hermes"), {}, id="how a server answers"),
    ],
)
def test_one(flag: tuple[str, str | None], argument: dict[str, object]) -> None:
    assert of("vllm", flag) == argument


def test_the_parts_of_one_table_come_together() -> None:
    parts = (("-cc.mode", "2"), ("--enforce-eager", None), ("-cc.backend", "eager"), ("-cc.a.b", "1"))
    assert of("vllm", *parts) == {
        "compilation_config": {"mode": 2, "backend": "eager", "a": {"b": 1}},
        "enforce_eager": True,
    }


def test_each_has_its_reason_as_python_writes_it() -> None:
    found = convert_to_arguments("vllm", "/m", [Flag(("--dtype",), "float32", "as asked")])
    assert list(list_argument_reasons(found)) == [
        ("model='/m'", "the model"),
        ("dtype='float32'", "as asked"),
    ]


@pytest.mark.parametrize("engine", ENGINES)
def test_no_server_is_left_in_those_of_any_model(engine: EngineName) -> None:
    every = {name for plan in PLANS for kind in KINDS for name in offered(engine, plan, kind)}
    assert every >= {"trust_remote_code", "revision", "chat_template"}
    assert ("code_revision" in every) is (engine == "vllm")
    assert not [name for name in every if "host" in name or "port" in name or "parser" in name]


def test_the_model_of_a_plan_without_wishes() -> None:
    flags = ENGINES["sglang"].list_flags(ServerSpec("/m", "m"), Plan(), config.load_hosts()["cuda"], None)
    assert build_argument_table(convert_to_arguments("sglang", "/m", flags)) == {
        "model_path": "/m",
        "sleep_on_idle": True,
    }
