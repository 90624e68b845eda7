from pathlib import Path

import pytest

from medley.model import hub, hub_download
from tests.model.hub_server import demo_repositories, serving
from tests.problems import raises_problem


def test_what_is_missing_is_fetched_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {**demo_repositories(tmp_path), "org/one/model.gguf": b"other form"}
    monkeypatch.setattr(hub_download, "_LOOK_EVERY_S", 0.01)
    told: list[tuple[int, int]] = []
    with serving(files, monkeypatch, tmp_path) as server:
        assert hub.snapshots("org/one") == []
        folder = hub_download.download("org/one", lambda done, total: told.append((done, total)))
        assert hub.snapshots("org/one") == [folder]
        assert {path.name for path in folder.iterdir()} == {"config.json", "model.safetensors"}
        size = sum(len(files[f"org/one/{name}"]) for name in ("config.json", "model.safetensors"))
        assert hub_download.size_bytes("org/one") == size
        assert {total for _, total in told} <= {size}
        asked = len(server.asked)
        hub_download.download("org/one")
        assert all(size == 0 for _, _, size in server.asked[asked:]), "what is there is kept"


def test_what_cannot_be_fetched_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        serving(demo_repositories(tmp_path), monkeypatch, tmp_path),
        raises_problem("org/none", cause=("401", str(tmp_path))),
    ):
        hub_download.download("org/none")
