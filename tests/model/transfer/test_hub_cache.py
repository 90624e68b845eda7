"""A model of the hub from one host's cache to another's, in both layouts of the hub's library."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from medley.errors import Problem
from medley.model import hub, hub_cache, hub_download
from medley.model.transfer import Manifest, connection
from medley.model.transfer.download import ModelFetch, Source
from medley.model.transfer.inventory import build_manifest, find_root
from medley.model.transfer.pieces import PieceStore, find_damage
from tests.model.hub_server import Hub, disk_bytes, large_repositories, serving
from tests.model.transfer.models import SECRET, flip
from tests.problems import assert_problem

BOTH, GPT = "org/both", "openai/gpt-oss-20b"
FILES = large_repositories()


@pytest.fixture(autouse=True)
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache_layout: bool) -> Iterator[Hub]:  # noqa: FBT001
    with serving(FILES, monkeypatch, tmp_path) as server:
        hub_download.download_model(BOTH)
        assert (hub.find_cache_folder() / "blobs").is_dir() is cache_layout
        yield server


def pull(found: Manifest, source: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> int:
    """Send it into another host's cache; return the bytes that went over."""
    held = PieceStore(found, source, whole=True)
    with connection.serve_pieces(held, "127.0.0.1", SECRET) as port:
        monkeypatch.setenv("HF_HUB_CACHE", str(cache))
        run = ModelFetch(PieceStore(found, find_root(BOTH)), [Source("one", "127.0.0.1", port)], SECRET)
        run.run()
    return run.received_bytes


def contents(folder: Path) -> dict[str, bytes]:
    return {f"{BOTH}/{path.name}": path.read_bytes() for path in folder.iterdir()}


def test_another_host_gets_what_the_library_reads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    expected = {name: content for name, content in FILES.items() if name.startswith(BOTH)}
    sizes = hub_cache.measure_models()
    found, source = build_manifest(BOTH), find_root(BOTH)
    assert pull(found, source, monkeypatch, tmp_path / "other") == found.size_bytes
    assert hub.find_cache_folder() == tmp_path / "other"
    (snapshot,) = hub.list_snapshots(BOTH)
    assert contents(snapshot) == expected
    assert hub_cache.measure_models() == sizes
    assert find_damage(found, find_root(BOTH)) == ()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    from huggingface_hub import snapshot_download

    assert snapshot_download(BOTH, cache_dir=hub.find_cache_folder()) == str(snapshot)
    before = disk_bytes(hub.find_cache_folder())
    assert before - hub_cache.remove_model(BOTH) == disk_bytes(hub.find_cache_folder())
    assert hub_cache.measure_models() == {}


def test_a_host_that_has_it_in_its_own_layout_gets_nothing(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    cache_layout: bool,  # noqa: FBT001
) -> None:
    found, source = build_manifest(BOTH), find_root(BOTH)
    monkeypatch.setenv("HF_HUB_DISABLE_SHARED_BLOBS", str(int(cache_layout)))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "other"))
    hub_download.download_model(BOTH)
    assert pull(found, source, monkeypatch, tmp_path / "other") == 0
    assert find_damage(found, find_root(BOTH)) == ()


def test_a_damaged_file_is_replaced_and_not_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found, source = build_manifest(BOTH), find_root(BOTH)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "other"))
    folder = hub_download.download_model(BOTH)
    before = disk_bytes(hub.find_cache_folder())
    file = (folder / "1.safetensors").resolve()
    file.chmod(0o600)
    flip(file, 1000)
    (wrong,) = find_damage(found, find_root(BOTH))
    assert "piece 1 of 1" in wrong
    assert len(FILES[f"{BOTH}/1.safetensors"]) <= pull(found, source, monkeypatch, tmp_path / "other")
    assert contents(folder)[f"{BOTH}/1.safetensors"] == FILES[f"{BOTH}/1.safetensors"]
    assert disk_bytes(hub.find_cache_folder()) <= before, "the damaged file is gone"
    hub_cache.remove_model(BOTH)
    again = hub_download.download_model(BOTH)
    assert contents(again)[f"{BOTH}/1.safetensors"] == FILES[f"{BOTH}/1.safetensors"]


def test_what_is_outside_the_cache_is_not_offered(tmp_path: Path) -> None:
    snapshot = hub.list_snapshots(BOTH)[0]
    (tmp_path / "secret").write_text("not the model")
    blob = find_root(BOTH) / "blobs" / "5"
    blob.symlink_to(tmp_path / "secret")
    for target in ("../../blobs/5", str(tmp_path / "secret")):
        (snapshot / "x.safetensors").unlink(missing_ok=True)
        (snapshot / "x.safetensors").symlink_to(target)
        with pytest.raises(Problem) as caught:
            build_manifest(BOTH)
        assert_problem(caught.value, "x.safetensors", cause=str(tmp_path / "secret"))
