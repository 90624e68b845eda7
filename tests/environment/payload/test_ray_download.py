"""The program that downloads on hosts of a Ray cluster has the same rules as medley."""

import hashlib
import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from medley.environment.payload import ray_download
from medley.model import hub, hub_download
from tests.model.hub_server import COMMIT, demo_repositories, serving

INDEX = "model.safetensors.index.json"


def index(*names: object) -> str:
    return json.dumps({"weight_map": dict(enumerate(names))})


@pytest.mark.parametrize(
    ("files", "whole"),
    [
        pytest.param({}, False, id="empty"),
        pytest.param({"config.json": "{}"}, False, id="no weights"),
        pytest.param({"model.safetensors": ""}, False, id="no config.json"),
        pytest.param({"config.json": "{}", "model.safetensors": ""}, True, id="one file"),
        pytest.param({"config.json": "{}", "consolidated.safetensors": ""}, True, id="Mistral's"),
        pytest.param({"config.json": "{}", "pytorch_model.bin": ""}, True, id="PyTorch's"),
        pytest.param(
            {"config.json": "{}", "a-1.safetensors": "", "a-2.safetensors": ""}, True, id="no index"
        ),
        pytest.param({"config.json": "{}", INDEX: index("a", "b"), "a": "", "b": ""}, True, id="shards"),
        pytest.param({"config.json": "{}", INDEX: index("a", "b"), "a": ""}, False, id="a shard is missing"),
        pytest.param({"config.json": "{}", INDEX: index("../a"), "a": ""}, False, id="a path"),
        pytest.param({"config.json": "{}", INDEX: index(1), "a": ""}, False, id="a number"),
        pytest.param({"config.json": "{}", INDEX: index(), "model.safetensors": ""}, False, id="no names"),
        pytest.param({"config.json": "{}", INDEX: "{}", "model.safetensors": ""}, False, id="no table"),
        pytest.param({"config.json": "{}", INDEX: "[", "model.safetensors": ""}, False, id="no JSON"),
        pytest.param({"config.json": "{}", INDEX: "[]", "model.safetensors": ""}, False, id="a list"),
    ],
)
def test_both_take_the_same_folders_for_whole(
    files: Mapping[str, str], *, whole: bool, tmp_path: Path
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert (hub.is_complete(tmp_path), ray_download.is_complete(tmp_path)) == (whole, whole)


@pytest.mark.parametrize(
    ("revision", "here"), [(None, True), ("abc", True), ("v1", True), ("main", False), ("def", False)]
)
def test_a_revision_is_here_by_its_commit_or_its_name(
    revision: str | None, *, here: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "models--org--one"
    for name, text in {
        "snapshots/abc/config.json": "{}",
        "snapshots/abc/model.safetensors": "",
        "snapshots/def/config.json": "{}",
        "refs/v1": "abc",
        "refs/main": "def",
    }.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(ray_download, "get_folder", lambda _: place)
    assert (hub.is_cached("org/one", revision), ray_download.is_downloaded("org/one", revision)) == (
        here,
        here,
    )


def test_weights_that_came_otherwise_are_not_loaded(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cache_layout: bool,  # noqa: FBT001
) -> None:
    with serving(demo_repositories(tmp_path), monkeypatch, tmp_path) as server:
        content = server.files["org/one/model.safetensors"]
        server.damaged = {content}
        why = ray_download.download("org/one", None, list(hub_download.IGNORED_PATTERNS), {})
        assert why is not None
        found = hashlib.sha256(content[:-1] + bytes([content[-1] ^ 1])).hexdigest()
        expected = hashlib.sha256(content).hexdigest()
        assert f"model.safetensors has sha256 {found}, the hub's has {expected}\n" in why
        assert f"hf download org/one model.safetensors --revision {COMMIT} --force-download" in why
        assert not ray_download.is_downloaded("org/one", None)
        assert ray_download.download("org/two", None, list(hub_download.IGNORED_PATTERNS), {}) is None
        assert ray_download.is_downloaded("org/two", None)
        assert (hub.find_cache_folder() / "blobs").is_dir() is cache_layout


def test_a_path_of_the_hub_stays_in_its_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = "x\n$(id).safetensors"
    (tmp_path / path).write_text("")
    entry = {"path": path, "algorithm": "sha256", "actual": "1", "expected": "2"}
    comparison = SimpleNamespace(mismatches=[entry])
    monkeypatch.setattr("huggingface_hub.HfApi.verify_repo_checksums", lambda *_, **__: comparison)
    why = ray_download.remove_damaged("org/one", tmp_path)
    assert why is not None
    line, fix = why.split("\n", 1)
    assert line == "x$(id).safetensors has sha256 1, the hub's has 2"
    assert shlex.split(fix)[6] == path
