"""Which keys a server takes from its folder; tests/engine/test_live_keys.py has them in a running Caddy."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from medley import credentials
from medley.serving.edge import Edge
from medley.serving.edge_process import EdgeProcess
from medley.serving.live_keys import LiveKeys


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: list[str]) -> LiveKeys:
    """The keys alice and bob, of an edge that is not started."""
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path / "state"))
    for name in ("alice", "bob"):
        credentials.add_key(name)
    folder = credentials.find_key_folder()
    edge = Edge("127.0.0.1", 8000, tmp_path / "e.sock", tmp_path, credentials.read_keys(folder))
    return LiveKeys(EdgeProcess(edge, Path("/bin/false"), said.append), folder, said.append)


def names(live: LiveKeys) -> list[str]:
    live.check()
    return list(live.edge.settings.keys or {})


def test_an_entry_that_is_no_file_is_left_out_alone(live: LiveKeys, said: list[str]) -> None:
    file = credentials.find_key_folder() / "alice"
    file.unlink()
    file.mkdir()
    assert names(live) == ["bob"]
    assert "the key alice is left out" in said[0]
    (credentials.find_key_folder() / "bob").unlink()
    assert names(live) == []


def test_a_key_that_the_disk_does_not_give_stays_alone(live: LiveKeys, said: list[str]) -> None:
    """The kernel answers a read of this file with EIO."""
    before = dict(live.edge.settings.keys or {})
    (credentials.find_key_folder() / "alice").unlink()
    (credentials.find_key_folder() / "alice").symlink_to("/proc/self/mem")
    (credentials.find_key_folder() / "bob").unlink()
    assert names(live) == ["alice"]
    assert live.edge.settings.keys == {"alice": before["alice"]}
    assert "the key alice cannot be read, and stays as it was" in said[0]


@contextmanager
def no_more_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_all_stay_where_the_host_has_no_open_files_left(live: LiveKeys, said: list[str]) -> None:
    with no_more_files():
        assert names(live) == ["alice", "bob"]
    assert "stay as they were" in said[0]
