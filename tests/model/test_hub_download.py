import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from medley import storage
from medley.errors import Problem
from medley.model import hub, hub_checksums, hub_download
from tests.model.hub_server import COMMIT, demo_repositories, serving
from tests.problems import assert_problem, raises_problem

pytestmark = pytest.mark.usefixtures("cache_layout")


def test_what_is_missing_is_fetched_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {**demo_repositories(tmp_path), "org/one/model.gguf": b"other form"}
    told: list[tuple[int, int]] = []
    said: list[str] = []
    sizes = {name: len(files[f"org/one/{name}"]) for name in ("config.json", "model.safetensors")}
    with serving(files, monkeypatch, tmp_path) as server:
        assert hub.list_snapshots("org/one") == []
        folder = hub_download.download_model("org/one", lambda *done: told.append(done), said.append)
        assert hub.list_snapshots("org/one") == [folder]
        assert {path.name for path in folder.iterdir()} == set(sizes)
        compared = told.index((sizes["model.safetensors"],) * 2)
        assert told[compared - 1] == (sum(sizes.values()),) * 2
        assert {total for _, total in told[:compared]} == {sum(sizes.values())}
        assert "1 of 1 large files" in said[-1]
        assert COMMIT[:12] in said[-1]
        asked = len(server.asked)
        hub_download.download_model("org/one")
        assert all(size == 0 for _, _, size in server.asked[asked:]), "what is there is kept"


def test_only_what_is_missing_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = demo_repositories(tmp_path)
    told: list[tuple[int, int]] = []
    with serving(files, monkeypatch, tmp_path):
        folder = hub_download.download_model("org/two")
        (folder / "2.safetensors").resolve().unlink()
        (folder / "2.safetensors").unlink()
        for left in (folder.parents[1] / "blobs").iterdir():
            if not left.exists():
                left.unlink()
        hub_download.download_model("org/two", lambda *done: told.append(done))
    assert told[0][1] == len(files["org/two/2.safetensors"])


def test_a_disk_without_room_is_a_problem_before_the_first_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = demo_repositories(tmp_path)
    sizes = [len(files[f"org/one/{name}"]) for name in ("config.json", "model.safetensors")]
    with serving(files, monkeypatch, tmp_path):
        monkeypatch.setattr(storage, "measure_free_bytes", lambda _: sum(sizes) - 1)
        with raises_problem("has no room", cause=[str(sum(sizes)), str(sum(sizes) - 1)]):
            hub_download.download_model("org/one")
        assert hub.list_snapshots("org/one") == []
        monkeypatch.setattr(storage, "measure_free_bytes", lambda _: sum(sizes))
        hub_download.download_model("org/one")


def test_what_cannot_be_fetched_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        serving(demo_repositories(tmp_path), monkeypatch, tmp_path),
        raises_problem("org/none", cause=("401", str(tmp_path))),
    ):
        hub_download.download_model("org/none")


def type_command(command: str) -> None:
    """Run it from this environment, whose bin may not be on PATH."""
    name, *words = command.split()
    subprocess.run([str(Path(sys.executable).with_name(name)), *words], check=True, timeout=60)


def test_weights_that_came_otherwise_are_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(demo_repositories(tmp_path), monkeypatch, tmp_path) as server:
        content = server.files["org/one/model.safetensors"]
        server.damaged = {content}
        with pytest.raises(Problem) as caught:
            hub_download.download_model("org/one")
        found = hashlib.sha256(content[:-1] + bytes([content[-1] ^ 1])).hexdigest()
        fix = f"hf download org/one model.safetensors --revision {COMMIT} --force-download"
        cause = ("model.safetensors", found, hashlib.sha256(content).hexdigest())
        assert_problem(caught.value, "org/one", cause=cause, fix=fix)
        assert not hub.is_cached("org/one"), "no engine loads it"
        with pytest.raises(Problem):
            hub_download.download_model("org/one")
        server.damaged = set()
        type_command(fix)
        hub_download.download_model("org/one")
        assert (hub.list_snapshots("org/one")[0] / "model.safetensors").read_bytes() == content


def test_the_fix_reaches_a_file_that_two_models_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = demo_repositories(tmp_path)
    files |= {name.replace("/one/", "/twin/"): content for name, content in files.items() if "/one/" in name}
    with serving(files, monkeypatch, tmp_path):
        first, second = hub_download.download_model("org/one"), hub_download.download_model("org/twin")
        content = files["org/one/model.safetensors"]
        file = (first / "model.safetensors").resolve()
        file.chmod(0o600)
        file.write_bytes(content[:-1] + b"?")
        with pytest.raises(Problem) as caught:
            hub_download.download_model("org/one")
        type_command(caught.value.fix)
        hub_download.download_model("org/one")
        hub_download.download_model("org/twin")
        assert (second / "model.safetensors").read_bytes() == content


@pytest.mark.parametrize("is_absolute", [True, False])
def test_a_hub_removes_no_file_of_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_absolute: bool
) -> None:
    """Its list of checksums may name a path out of the model's folder."""
    thesis = tmp_path / "thesis.txt"
    thesis.write_text("years of work")
    path = str(thesis) if is_absolute else "../" * 30 + str(thesis).lstrip("/")
    with serving(demo_repositories(tmp_path), monkeypatch, tmp_path):
        hub_download.download_model("org/one")
        monkeypatch.setattr(hub_checksums, "_list_checksums", lambda *_: [(path, "0" * 64)])
        hub_download.download_model("org/one")
    assert thesis.read_text() == "years of work"


def test_a_commit_that_is_a_command_is_quoted() -> None:
    difference = hub_checksums.ChecksumDifference("a b", "1", "2")
    comparison = hub_checksums.SnapshotComparison("org/one", "$(id)", 1, (difference,))
    assert comparison.fix == "hf download org/one 'a b' --revision '$(id)' --force-download"
