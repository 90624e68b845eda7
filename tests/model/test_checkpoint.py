import json
import struct
from pathlib import Path
from typing import Any

import pytest

from medley.errors import Problem
from medley.model import checkpoint
from medley.model.checkpoint import Tensor
from tests.problems import raises_problem

WHOLE: dict[str, Any] = {
    "__metadata__": {"format": "pt"},
    "a.weight": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]},
    "b": {"dtype": "F32", "shape": [], "data_offsets": [12, 16]},
}


def write(path: Path, header: Any, *, data: int = 16) -> Path:
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(data))
    return path


def test_the_tensors_of_a_file(tmp_path: Path) -> None:
    found = checkpoint.read_tensors(write(tmp_path / "x.safetensors", WHOLE))
    assert found == {"a.weight": Tensor("BF16", (2, 3), 12), "b": Tensor("F32", (), 4)}
    assert [tensor.elements for tensor in found.values()] == [6, 1]


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        pytest.param(b"", "it has 0 bytes", id="empty"),
        pytest.param(b"\1\0", "it has 2 bytes", id="cut in the length"),
        pytest.param(struct.pack("<Q", 50) + b"{}", "of 50 bytes ends after 2", id="cut in the header"),
        pytest.param(struct.pack("<Q", 0), "would be 0 bytes", id="no header"),
        pytest.param(struct.pack("<Q", 2**63), "would be 9223372036854775808 bytes", id="a huge header"),
        pytest.param(struct.pack("<Q", 2) + b"[]", "is not a table", id="a list"),
        pytest.param(struct.pack("<Q", 2) + b"{x", "is not JSON", id="no JSON"),
        pytest.param(struct.pack("<Q", 2) + b"\xff\xff", "is not JSON", id="no text"),
        pytest.param(b"version https://git-lfs.github.com/spec/v1", "Git LFS pointer", id="a pointer"),
    ],
)
def test_what_is_no_safetensors_is_a_problem(tmp_path: Path, content: bytes, cause: str) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    with pytest.raises(Problem) as caught:
        checkpoint.read_tensors(path)
    assert cause in caught.value.cause


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(3, id="a number"),
        pytest.param({"dtype": "BF16", "shape": [2]}, id="no offsets"),
        pytest.param({"dtype": "BF16", "shape": [-2], "data_offsets": [0, 4]}, id="less than nothing"),
        pytest.param({"dtype": "BF16", "shape": [2], "data_offsets": [4, 0]}, id="backwards"),
        pytest.param({"dtype": 16, "shape": [2], "data_offsets": [0, 4]}, id="a number for a dtype"),
    ],
)
def test_a_wrong_entry_is_a_problem_that_names_it(tmp_path: Path, entry: Any) -> None:
    with pytest.raises(Problem) as caught:
        checkpoint.read_tensors(write(tmp_path / "x.safetensors", {"odd one": entry}))
    assert "odd one" in caught.value.cause


def test_a_download_that_broke_off_is_a_problem(tmp_path: Path) -> None:
    path = write(tmp_path / "x.safetensors", WHOLE, data=7)
    size_bytes = path.stat().st_size
    with raises_problem(str(path), cause=(f"{size_bytes} ", f"{size_bytes + 9} ")):
        checkpoint.read_tensors(path)


@pytest.mark.parametrize(
    "names", [None, {}, [], {"a": 3}, {"a": "../b"}, {"a": ".."}, {"a": ""}, {"a": "\0"}]
)
def test_an_index_that_names_no_files_beside_it(names: Any) -> None:
    with raises_problem("x ", cause="'weight_map'"):
        checkpoint.list_weight_files({"weight_map": names}, "x")


def test_the_files_of_an_index() -> None:
    index = {"weight_map": {"a": "2.safetensors", "b": "1.safetensors", "c": "2.safetensors"}}
    assert checkpoint.list_weight_files(index, "x") == ("1.safetensors", "2.safetensors")
