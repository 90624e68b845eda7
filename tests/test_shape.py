import json
from pathlib import Path

import pytest

from medley import config, demo
from medley.problem import Problem
from medley.safetensors import Tensor
from medley.shape import shape
from medley.tables import Made, Model
from medley.weights import Weights, weights
from tests.published import PUBLISHED

MADE = Made(
    layers=2,
    hidden=64,
    heads=2,
    kv_heads=1,
    head_dim=16,
    intermediate=64,
    vocabulary=2048,
    context=128,
    seed=0,
)


def test_the_table_comes_first(tmp_path: Path) -> None:
    known = PUBLISHED["qwen3-8b"]
    found = shape(weights("Qwen/Qwen3-8B", config.models(), tmp_path))
    assert found.layers == known.config["num_hidden_layers"]


def test_the_demo_has_the_shape_of_what_is_written(tmp_path: Path) -> None:
    model = config.models()["demo"]
    assert model.made is not None
    written = demo.make(model.made, tmp_path / "demo")
    found = shape(weights("demo", config.models(), tmp_path / "cache"))
    assert found == shape(weights(str(written), {}, tmp_path))
    assert not (tmp_path / "cache").exists()
    assert found.parameters == sum(tensor_size(size) for size in demo.shapes(model.made).values())


def tensor_size(size: tuple[int, ...]) -> int:
    return Tensor("U8", size, 0).elements


@pytest.mark.parametrize(
    ("broken", "what"),
    [
        pytest.param({"config.json": "{"}, "is not JSON", id="config is no JSON"),
        pytest.param({"config.json": "[" * 100_000}, "is not JSON", id="a deep config"),
        pytest.param({"config.json": "[]"}, "is not a table", id="config is a list"),
        pytest.param({"model.safetensors.index.json": "{}"}, "names no files", id="an empty index"),
        pytest.param(
            {"model.safetensors.index.json": json.dumps({"weight_map": {"a": "a.safetensors"}})},
            "does not hold the whole model",
            id="a file is missing",
        ),
        pytest.param({"config.json": None}, "cannot be read", id="no config"),
        pytest.param({"model.safetensors": None}, "does not hold the whole model", id="no weights"),
    ],
)
def test_a_broken_folder_is_a_problem(tmp_path: Path, broken: dict[str, str | None], what: str) -> None:
    demo.write(MADE, tmp_path)
    for name, text in broken.items():
        (tmp_path / name).write_text(text) if text is not None else (tmp_path / name).unlink()
    with pytest.raises(Problem, match=what):
        shape(Weights("x", str(tmp_path), None))


def test_several_files_are_one_model(tmp_path: Path) -> None:
    demo.write(MADE, tmp_path)
    whole = shape(Weights("x", str(tmp_path), Model(title="x", repository="a/b")))
    (tmp_path / "model.safetensors").rename(tmp_path / "part-1.safetensors")
    (tmp_path / "consolidated.safetensors").touch()  # would be a broken header
    assert shape(Weights("x", str(tmp_path), None)) == whole
    index = {"weight_map": dict.fromkeys(demo.shapes(MADE), "part-1.safetensors")}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    (tmp_path / "other.safetensors").touch()
    assert shape(Weights("x", str(tmp_path), None)) == whole
