import tomllib

import pytest

from medley import config
from medley.schema import Model
from medley.serving.community_recipe.model_table import build_model_table
from medley.serving.community_recipe.recipe import import_recipe
from tests.problems import raises_problem

RECIPE = """
model: a/b
runtime: vllm
container: c
env: {VLLM_LOGGING_LEVEL: "INFO", TORCH_LOGS: 'a "b" \\ c'}
command: |
  vllm serve {model} -tp 2 --max-num-seqs 10 --enforce-eager --cudagraph-capture-sizes 1 2 4 --seed -1 \\
    --speculative-config '{"method": "mtp"}'
"""


def test_a_table_has_the_engine_s_flags_and_variables() -> None:
    made = build_model_table(import_recipe(RECIPE.encode(), "r.yaml"), "mine", "r\n.yaml")
    model = config.build_table(tomllib.loads(made.text), Model, "mine.toml")
    assert (model.repository, model.title) == ("a/b", "a/b, as mine")
    assert model.args == {
        "vllm": ("--max-num-seqs", "10", "--enforce-eager", "--speculative-config", '{"method": "mtp"}')
    }
    assert model.env == {"vllm": {"VLLM_LOGGING_LEVEL": "INFO", "TORCH_LOGS": 'a "b" \\ c'}}


@pytest.mark.parametrize("name", ["LD_PRELOAD", "PATH", "PYTHONPATH", "HF_TOKEN", "vllm_a"])
def test_a_table_s_variables_load_no_other_code(name: str) -> None:
    with raises_problem("m.toml", f"'env.vllm.{name}'"):
        config.build_table({"title": "x", "repository": "a/b", "env": {"vllm": {name: "1"}}}, Model, "m.toml")


def test_the_command_keeps_what_no_table_has() -> None:
    made = build_model_table(import_recipe(RECIPE.encode(), "r.yaml"), "mine", "r.yaml")
    assert (
        str(made.remaining_recipe.command)
        == "medley serve mine --tp 2 -- --cudagraph-capture-sizes 1 2 4 --seed -1"
    )
    assert str(made.remaining_recipe.plan_command) == "medley plan mine --tp 2 --hosts spark:2"


def test_a_recipe_of_options_alone_is_a_short_table() -> None:
    text = "model: a/b\nruntime: sglang\ncontainer: c\ncommand: sglang serve --model-path a/b --tp 2\n"
    made = build_model_table(import_recipe(text.encode(), "r.yaml"), "mine", "r.yaml")
    assert set(tomllib.loads(made.text)) == {"title", "repository"}
    assert str(made.remaining_recipe.command) == "medley serve mine --engine sglang --tp 2"
