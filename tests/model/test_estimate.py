"""Estimates beside what the tables have, which come from the headers of the very weights."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from medley import config
from medley.errors import Problem
from medley.model.checkpoint import Checkpoint, read_checkpoint
from medley.model.resolve import Weights
from medley.model.shape import shape, shape_of_config
from medley.schema import Shape
from tests.model.checkpoints import checkpoint
from tests.model.published import PUBLISHED

FOUR_BITS = {name for name in PUBLISHED if "nvfp4" in name or "awq" in name}


def total_bytes(found: Shape) -> int:
    return found.layers * found.layer_bytes + found.embedding_bytes + found.head_bytes + found.draft_bytes


def known(name: str) -> Shape:
    found = config.models()[name].shape
    assert found is not None
    return found


def estimate(name: str, index: Mapping[str, Any] | None = None) -> Shape:
    return shape_of_config(Checkpoint("x", PUBLISHED[name].config, {}, index or {}))


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_sum_is_near_what_the_weights_have(name: str) -> None:
    """Not counted are drafts and towers; in 4 bits config.json does not say which layers stay wider."""
    found, exact = estimate(name), known(name)
    assert found.parameters == pytest.approx(exact.parameters, rel=0.03)
    assert found.active_parameters == pytest.approx(exact.active_parameters, rel=0.06)
    without = total_bytes(exact) - exact.draft_bytes
    assert total_bytes(found) == pytest.approx(without, rel=0.2 if name in FOUR_BITS else 0.04)


@pytest.mark.parametrize("name", ["qwen3-8b", "gpt-oss-20b", "glm-4.5-air-awq-fp16mix", "qwen3.8-27b"])
def test_an_index_says_the_total(name: str) -> None:
    model = PUBLISHED[name]
    whole = checkpoint(model.config, dense=model.dense, routed=model.routed)
    total = sum(tensor.size_bytes for tensor in whole.tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": dict.fromkeys(whole.tensors, "a.safetensors")}
    found = estimate(name, index)
    assert total_bytes(found) == pytest.approx(total, rel=1e-6)
    assert found.layer_bytes == pytest.approx(known(name).layer_bytes, rel=0.04)


@pytest.mark.parametrize(
    ("tied", "names", "head"),
    [
        pytest.param(True, ("lm_head.weight",), False, id="tied, though it is stored"),
        pytest.param(None, ("lm_head.weight",), True, id="stored"),
        pytest.param(None, ("model.embed_tokens.weight",), False, id="not stored"),
        pytest.param(None, (), True, id="nobody says"),
    ],
)
def test_a_head(tied: bool | None, names: tuple[str, ...], head: bool) -> None:  # noqa: FBT001
    told = {**PUBLISHED["qwen3-8b"].config, "tie_word_embeddings": tied}
    index = {"weight_map": dict.fromkeys(names, "1.safetensors")}
    assert (shape_of_config(Checkpoint("x", told, {}, index)).head_bytes > 0) == head


@pytest.mark.parametrize(
    ("changed", "entry"),
    [
        pytest.param({"intermediate_size": None}, "intermediate_size", id="no width"),
        pytest.param({"vocab_size": None}, "vocab_size", id="no vocabulary"),
        pytest.param({"layer_types": ["rwkv"] * 36}, "rwkv", id="layers that nobody knows"),
    ],
)
def test_what_cannot_be_estimated_names_the_entry(changed: dict[str, Any], entry: str) -> None:
    with pytest.raises(Problem) as caught:
        shape_of_config(Checkpoint("x", {**PUBLISHED["qwen3-8b"].config, **changed}, {}, {}))
    assert entry in str(caught.value)


def test_a_folder_of_two_small_files_has_a_shape(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(PUBLISHED["qwen3-8b"].config))
    index = {"metadata": {"total_size": 16_381_470_720}, "weight_map": {"lm_head.weight": "1.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert not read_checkpoint(tmp_path).tensors
    assert total_bytes(shape(Weights("x", str(tmp_path), None))) == pytest.approx(16_381_470_720, abs=99)
