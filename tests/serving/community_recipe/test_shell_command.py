from typing import TYPE_CHECKING

import pytest

from medley.serving.community_recipe.shell_command import (
    EngineFlag,
    fill_placeholders,
    list_placeholders,
    parse_engine_command,
)
from tests.problems import raises_problem

if TYPE_CHECKING:
    from medley.serving.community_recipe.document import ScalarValue


def test_placeholders_take_the_recipe_s_values_also_nested_ones() -> None:
    text = "vllm serve {model} --port {port} --config '{\"a\": {b}}' {unset}"
    values: dict[str, ScalarValue] = {"model": "a/b", "port": 8000, "b": "{c}", "c": 1}
    assert (
        fill_placeholders(text, values, "r.yaml")
        == "vllm serve a/b --port 8000 --config '{\"a\": 1}' {unset}"
    )
    assert list_placeholders(text, values) == {"model", "port", "b", "c", "unset"}


def test_doubled_braces_are_one_each() -> None:
    text = """--x '{{"n":{n},"deep":{{"m":{m}}}}}' --y '{y}'"""
    found = fill_placeholders(text, {"n": 2, "m": 3, "y": '{"a": {"b": 1}}'}, "r.yaml")
    assert found == """--x '{"n":2,"deep":{"m":3}}' --y '{"a": {"b": 1}}'"""


@pytest.mark.parametrize("value", ["{a} {a}", "{b}" * 1000])
def test_placeholders_that_hold_themselves_are_refused(value: str) -> None:
    with raises_problem("r.yaml", cause=("8,", "128 KiB")):
        fill_placeholders("{a}", {"a": value, "b": "{a}" * 1000}, "r.yaml")


def test_flags_have_the_words_up_to_the_next_flag() -> None:
    found = parse_engine_command(
        "vllm serve a/b \\ \n  --port=1 \\\n  # a note\n  -tp 2 --enforce-eager --sizes 1 2 --seed -1\n",
        "r.yaml",
    )
    assert (found.engine, found.model, found.other_commands) == ("vllm", "a/b", ())
    assert found.flags == (
        EngineFlag("--port", ("1",)),
        EngineFlag("-tp", ("2",)),
        EngineFlag("--enforce-eager"),
        EngineFlag("--sizes", ("1", "2")),
        EngineFlag("--seed", ("-1",)),
    )


def test_quoted_json_is_one_word() -> None:
    found = parse_engine_command("""vllm serve a/b --x '{"method": "mtp",\n "n": 2}; |'""", "r.yaml")
    assert found.flags == (EngineFlag("--x", ('{"method": "mtp",\n "n": 2}; |',)),)


@pytest.mark.parametrize(
    ("text", "engine"),
    [
        ("vllm serve a/b", "vllm"),
        ("exec /opt/venv/bin/vllm serve a/b", "vllm"),
        ("python3 -m vllm.entrypoints.openai.api_server --model a/b", "vllm"),
        ("sglang serve --model-path a/b", "sglang"),
        ("python -m sglang.launch_server --model-path a/b", "sglang"),
    ],
)
def test_the_engine_is_the_one_that_is_started(text: str, engine: str) -> None:
    assert parse_engine_command(text, "r.yaml").engine == engine


def test_variables_and_other_commands_are_kept_apart() -> None:
    found = parse_engine_command("export A=1 B=two; pip install x && C=3 vllm serve a/b | tee log", "r.yaml")
    assert found.variables == {"A": "1", "B": "two", "C": "3"}
    assert found.other_commands == ("pip install x", "tee log")
    assert found.flags == ()


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("llama-server -hf a/b", id="another engine"),
        pytest.param("", id="nothing"),
        pytest.param("vllm bench serve", id="another verb"),
    ],
)
def test_no_engine_of_ours_is_a_problem(text: str) -> None:
    with raises_problem("r.yaml", cause=("vllm serve, sglang serve", "it begins"), fix="medley models"):
        parse_engine_command(text, "r.yaml")


def test_an_open_quote_is_a_problem() -> None:
    with raises_problem("r.yaml", cause="the last ' in line 1 of the command opens a quotation"):
        parse_engine_command("vllm serve 'a/b", "r.yaml")
