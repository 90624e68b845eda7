import itertools
import json
import struct
from pathlib import Path

import pytest

from medley import config
from medley.model import demo
from medley.schema import DemoSpec
from tests.problems import raises_problem


@pytest.fixture
def made() -> DemoSpec:
    known = config.load_models()["demo"].made
    assert known is not None
    return known


def test_the_same_seed_makes_the_same_bytes(made: DemoSpec, tmp_path: Path) -> None:
    one, two = demo.make_model(made, tmp_path / "one"), demo.make_model(made, tmp_path / "two")
    other = demo.make_model(made.replace(seed=1), tmp_path / "other")
    weights = "model.safetensors"
    assert (one / weights).read_bytes() == (two / weights).read_bytes()
    assert (one / weights).read_bytes() != (other / weights).read_bytes()


def test_it_is_made_once_and_whole(made: DemoSpec, tmp_path: Path) -> None:
    folder = demo.make_model(made, tmp_path / "deep" / "demo")
    before = (folder / "config.json").stat().st_mtime_ns
    demo.make_model(made, folder)
    assert (folder / "config.json").stat().st_mtime_ns == before
    assert [path.name for path in folder.parent.iterdir()] == ["demo"]


def test_a_place_that_cannot_be_written_is_a_problem(made: DemoSpec, tmp_path: Path) -> None:
    (file := tmp_path / "file").touch()
    with raises_problem(str(file / "models"), fix=f"mv {file} {file}.old"):
        demo.make_model(made, tmp_path / "file" / "models" / "demo")


def test_safetensors_offsets_cover_the_file(made: DemoSpec, tmp_path: Path) -> None:
    raw = (demo.make_model(made, tmp_path / "demo") / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    assert length % 8 == 0
    header = json.loads(raw[8 : 8 + length])
    header.pop("__metadata__")
    spans = [tensor["data_offsets"] for tensor in header.values()]
    assert spans[0][0] == 0
    assert all(end == begin for (_, end), (begin, _) in itertools.pairwise(spans))
    assert spans[-1][1] == len(raw) - 8 - length
    assert {name: tuple(tensor["shape"]) for name, tensor in header.items()} == demo.list_tensor_shapes(made)


def test_weights_are_normal_noise_and_norms_are_one(made: DemoSpec, tmp_path: Path) -> None:
    raw = (demo.make_model(made, tmp_path / "demo") / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])

    def values(name: str) -> list[float]:
        begin, end = (8 + length + offset for offset in header[name]["data_offsets"])
        return [struct.unpack("<f", b"\0\0" + raw[at : at + 2])[0] for at in range(begin, end, 2)]

    assert set(values("model.norm.weight")) == {1.0}
    noise = values("model.layers.0.mlp.up_proj.weight")
    mean = sum(noise) / len(noise)
    deviation = (sum((value - mean) ** 2 for value in noise) / len(noise)) ** 0.5
    assert abs(mean) < 0.01
    assert deviation == pytest.approx(0.1, rel=0.05)


def test_the_tokenizer_is_large_enough_and_every_entry_can_be_reached(made: DemoSpec) -> None:
    table = demo.build_tokenizer(made.vocabulary)
    model = table["model"]
    assert isinstance(model, dict)
    vocabulary: dict[str, int] = model["vocab"]
    assert sorted(vocabulary.values()) == list(range(made.vocabulary))
    assert made.vocabulary >= 10_000, "vllm bench latency feeds ids up to 9999"
    for left, right in model["merges"]:
        assert {left, right, left + right} <= vocabulary.keys()
