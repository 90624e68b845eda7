"""Sizes and removal in caches that the hub's library made, in both of its layouts."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from medley.model import hub, hub_cache, hub_download
from tests.model.hub_server import Hub, disk_bytes, large_repositories, serving

GPT, RENAMED, BOTH = "openai/gpt-oss-20b", "org/renamed", "org/both"
FILES = large_repositories()
FIRST, SECOND = (len(FILES[f"{BOTH}/{number}.safetensors"]) for number in (1, 2))
BLOCK = 4096


@pytest.fixture(autouse=True)
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache_layout: bool) -> Iterator[Hub]:  # noqa: FBT001
    with serving(FILES, monkeypatch, tmp_path) as server:
        for repository in (GPT, RENAMED, BOTH):
            hub_download.download_model(repository)
        assert (hub.find_cache_folder() / "blobs").is_dir() is cache_layout
        yield server


def test_sizes_are_those_of_the_files() -> None:
    small = {name: len(FILES[f"{name}/config.json"]) for name in (GPT, RENAMED, BOTH)}
    expected = {GPT: FIRST, RENAMED: FIRST, BOTH: FIRST + SECOND}
    assert hub_cache.measure_models() == {name: size + small[name] for name, size in expected.items()}


def test_removal_frees_what_no_other_model_needs(cache_layout: bool) -> None:  # noqa: FBT001
    payload = (
        {GPT: 0, BOTH: SECOND, RENAMED: FIRST}
        if cache_layout
        else {GPT: FIRST, BOTH: FIRST + SECOND, RENAMED: FIRST}
    )
    for repository, size in payload.items():
        before, promised = disk_bytes(hub.find_cache_folder()), hub_cache.estimate_removable_bytes(repository)
        freed = hub_cache.remove_model(repository)
        assert before - disk_bytes(hub.find_cache_folder()) == freed
        assert size <= freed < size + 20 * BLOCK
        assert abs(promised - freed) <= 3 * BLOCK
        assert not hub.find_repository_folder(repository).exists()
        assert all(
            hub.is_cached(other) == (other not in list(payload)[: list(payload).index(repository) + 1])
            for other in payload
        )
    assert hub_cache.measure_models() == {}
    assert not [
        path for path in hub.find_cache_folder().rglob("*") if path.is_file() and path.stat().st_size > BLOCK
    ]


def test_a_model_that_the_library_leaves_out_is_measured_and_removed_whole() -> None:
    """A newer commit was cut off before its first file, and of another file only a part came."""
    folder = hub.find_repository_folder(BOTH)
    (folder / "refs" / "main").write_text("d" * 40)
    (folder / "blobs" / "x.1.incomplete").write_bytes(b"x" * 300_000)
    assert hub_cache.measure_models()[BOTH] >= 300_000
    hub_cache.remove_model(GPT)
    hub_cache.remove_model(RENAMED)
    before = disk_bytes(hub.find_cache_folder())
    assert before - hub_cache.remove_model(BOTH) == disk_bytes(hub.find_cache_folder()) < 20 * BLOCK


def test_nothing_outside_the_cache_is_removed(tmp_path: Path) -> None:
    blob = (hub.list_snapshots(GPT)[0] / "model.safetensors").parent / "more.safetensors"
    (tmp_path / "own").write_bytes(b"x" * 100_000)
    blob.symlink_to(tmp_path / "own")
    before = disk_bytes(hub.find_cache_folder())
    freed = hub_cache.remove_model(GPT)
    assert before - disk_bytes(hub.find_cache_folder()) == freed
    assert (tmp_path / "own").stat().st_size == 100_000


def test_an_empty_cache_has_no_sizes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "none"))
    assert hub_cache.measure_models() == {}
