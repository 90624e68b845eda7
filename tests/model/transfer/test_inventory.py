import ctypes
import hashlib
import mmap
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from medley.model.transfer import ManifestLink, inventory
from medley.model.transfer.inventory import build_manifest, find_root
from tests.model.transfer.models import PIECE, SIZES, flip, model
from tests.problems import raises_problem

CONTENT = bytes(range(256)) * 20


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MEDLEY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "x").write_bytes(CONTENT)
    return tmp_path / "x"


def expected(content: bytes) -> tuple[str, ...]:
    return tuple(hashlib.sha256(content[at : at + 2048]).hexdigest() for at in range(0, len(content), 2048))


def test_they_are_those_of_the_pieces(path: Path) -> None:
    sizes: list[int] = []
    assert inventory.hash_file_pieces(path, 2048, on_bytes=sizes.append) == expected(CONTENT)
    assert sizes == [2048, 2048, 1024]


def test_the_second_time_nothing_is_read(path: Path) -> None:
    inventory.hash_file_pieces(path, 2048)
    flip(path, 5000)
    sizes: list[int] = []
    assert inventory.hash_file_pieces(path, 2048, on_bytes=sizes.append) == expected(CONTENT)
    assert sizes == [len(CONTENT)]
    changed = expected(path.read_bytes())
    assert changed != expected(CONTENT)
    assert inventory.hash_file_pieces(path, 2048, fresh=True) == changed
    assert inventory.hash_file_pieces(path, 2048) == changed, "what was read afresh is what is known now"


def resident(path: Path) -> int:
    """Pages of the file in the page cache, as mincore(2) counts them."""
    size = path.stat().st_size
    with path.open("r+b") as file, mmap.mmap(file.fileno(), size) as mapped:
        pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
        address = ctypes.c_char.from_buffer(mapped)
        failed = ctypes.CDLL(None).mincore(ctypes.byref(address), ctypes.c_size_t(size), pages)
        del address
    assert failed == 0
    return sum(page & 1 for page in pages)


PIECE_PAGES = (1 << 18) // mmap.PAGESIZE


@pytest.mark.parametrize(
    "read", [lambda path: inventory.hash_pieces(path, 1 << 18), inventory.hash_whole_file]
)
def test_hashing_leaves_the_page_cache_as_it_was(tmp_path: Path, read: Callable[[Path], object]) -> None:
    path = tmp_path / "weights"
    path.write_bytes(os.urandom(1 << 20))
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if resident(path):
        pytest.skip("this file system keeps its files in memory")
    read(path)
    assert resident(path) <= PIECE_PAGES, "the kernel may still hold the last that was read"
    path.read_bytes()
    read(path)
    assert resident(path) == (1 << 20) // mmap.PAGESIZE, "an engine that runs keeps what it has read"


def test_another_file_is_read(path: Path) -> None:
    inventory.hash_file_pieces(path, 2048)
    assert inventory.hash_file_pieces(path, 1024) != expected(CONTENT), "other pieces"
    inventory.hash_file_pieces(path, 2048)
    about = path.stat()
    other = bytes(len(CONTENT))
    path.with_name("other").write_bytes(other)
    os.utime(path.with_name("other"), ns=(about.st_atime_ns, about.st_mtime_ns))
    path.with_name("other").replace(path)
    assert inventory.hash_file_pieces(path, 2048) == expected(other), "a copy with the old one's time"
    path.write_bytes(CONTENT)
    os.utime(path, ns=(1, 1))
    assert inventory.hash_file_pieces(path, 2048) == expected(CONTENT), "written again"


def test_a_damaged_note_is_none(path: Path, cache: Path) -> None:
    inventory.hash_file_pieces(path, 2048)
    (note,) = (cache / "hashes").iterdir()
    note.write_text('{"of": ')
    assert inventory.hash_file_pieces(path, 2048) == expected(CONTENT)


def test_a_cache_that_cannot_be_written_is_no_problem(path: Path, cache: Path) -> None:
    cache.write_text("in the way")
    assert inventory.hash_file_pieces(path, 2048) == expected(CONTENT)


def test_a_file_that_is_being_written_is_a_problem(path: Path) -> None:
    def write(_: int) -> None:
        with path.open("ab") as file:
            file.write(b"x")

    with raises_problem(str(path)):
        inventory.hash_file_pieces(path, 2048, on_bytes=write)


def test_what_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    with raises_problem(str(tmp_path), fix=f"ls -l {tmp_path}"):
        inventory.hash_pieces(tmp_path, 2048)
    with raises_problem(f"{tmp_path}/none", fix=f"ls -l {tmp_path}/none"):
        inventory.hash_file_pieces(tmp_path / "none", 2048)


COMMIT = "c" * 40


@pytest.fixture(autouse=True)
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MEDLEY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def snapshot(hub: Path, commit: str, files: dict[str, str]) -> Path:
    """As the hub's client lays it out."""
    top = hub / "models--org--name"
    for name, blob in files.items():
        path = top / "snapshots" / commit / name
        path.parent.mkdir(parents=True, exist_ok=True)
        (top / "blobs").mkdir(exist_ok=True)
        (top / "blobs" / blob).write_text(f"{blob} of {name}")
        path.symlink_to(os.path.relpath(top / "blobs" / blob, path.parent))
    (top / "refs").mkdir(exist_ok=True)
    return top


def test_where_a_model_lies(hub: Path) -> None:
    assert find_root("/models/x") == Path("/models/x")
    assert find_root("org/name") == hub / "models--org--name"


def test_a_folder_is_offered_as_it_is(tmp_path: Path) -> None:
    top = model(tmp_path / "m")
    for name in (".git/config", ".cache/huggingface/x.metadata", "y.medley-part"):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text("not the model")
    (top / ".hidden").write_text("{}")
    (top / "again.safetensors").symlink_to("b/b.safetensors")
    found = build_manifest(str(top), piece_bytes=PIECE)
    paths = [file.path for file in found.files]
    assert sorted(paths) == sorted({*SIZES, ".hidden"})
    assert paths[-1] == "config.json", "by it an engine knows a model"
    assert {file.path: file.size_bytes for file in found.files} == {**SIZES, ".hidden": 2}
    assert found.links == (ManifestLink("again.safetensors", "b/b.safetensors"),)


def test_a_link_out_of_the_folder_is_a_file(tmp_path: Path) -> None:
    top = model(tmp_path / "m")
    (tmp_path / "elsewhere").write_text("weights")
    (top / "c.safetensors").symlink_to(tmp_path / "elsewhere")
    found = build_manifest(str(top))
    assert not found.links
    assert next(file for file in found.files if file.path == "c.safetensors").size_bytes == 7


@pytest.mark.parametrize("target", ["/nowhere", "..", "none", "c.safetensors"])
def test_a_link_to_no_file_is_a_problem(tmp_path: Path, target: str) -> None:
    top = model(tmp_path / "m")
    (top / "c.safetensors").symlink_to(target)
    with raises_problem("c.safetensors", cause=f" {target}", fix=f"cp -rL {top}/c.safetensors COPY"):
        build_manifest(str(top))


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with raises_problem(f"{tmp_path}/none", fix=f"ls {tmp_path}"):
        build_manifest(str(tmp_path / "none"))


def test_progress_goes_to_the_end(tmp_path: Path) -> None:
    said: list[tuple[int, int]] = []
    found = build_manifest(
        str(model(tmp_path / "m")), piece_bytes=PIECE, on_progress=lambda *each: said.append(each)
    )
    assert said[-1] == (found.size_bytes, found.size_bytes)
    assert said == sorted(said)


def test_a_repository_is_one_snapshot_and_its_blobs(hub: Path) -> None:
    top = snapshot(hub, "old", {"config.json": "1", "model.safetensors": "2", "gone.txt": "3"})
    snapshot(hub, COMMIT, {"config.json": "4", "model.safetensors": "5", "tokenizer/vocab.json": "6"})
    for name, commit in (("main", COMMIT), ("pr/1", COMMIT), ("v1", "old")):
        (top / "refs" / name).parent.mkdir(exist_ok=True)
        (top / "refs" / name).write_text(commit)
    (top / "blobs" / "7.incomplete").write_text("half")
    found = build_manifest("org/name")
    assert [file.path for file in found.files] == [
        *("blobs/4", "blobs/5", "blobs/6", "refs/main", "refs/pr/1"),
    ]
    assert found.links == (
        ManifestLink(f"snapshots/{COMMIT}/model.safetensors", "../../blobs/5"),
        ManifestLink(f"snapshots/{COMMIT}/tokenizer/vocab.json", "../../../blobs/6"),
        ManifestLink(f"snapshots/{COMMIT}/config.json", "../../blobs/4"),
    )


def test_the_newest_whole_snapshot_where_main_is_not(hub: Path) -> None:
    top = snapshot(hub, "older", {"config.json": "1", "model.safetensors": "2"})
    os.utime(top / "snapshots" / "older", (1, 1))
    snapshot(hub, "whole", {"config.json": "1", "model.safetensors": "2"})
    snapshot(hub, "half", {"config.json": "1"})
    (top / "refs" / "main").write_text("half")
    assert [link.path.split("/")[1] for link in build_manifest("org/name").links] == ["whole", "whole"]


def test_a_cache_without_links(hub: Path) -> None:
    """As the client lays it out on a file system that has none."""
    folder = hub / "models--org--name" / "snapshots" / COMMIT
    folder.mkdir(parents=True)
    for name in ("config.json", "model.safetensors"):
        (folder / name).write_text(name)
    found = build_manifest("org/name")
    inside = f"snapshots/{COMMIT}"
    assert [file.path for file in found.files] == [f"{inside}/model.safetensors", f"{inside}/config.json"]


def test_a_repository_that_is_not_here() -> None:
    with raises_problem("org/name", cause="models--org--name", fix="hf download org/name"):
        build_manifest("org/name")


def test_blobs_elsewhere_are_a_problem(hub: Path, tmp_path: Path) -> None:
    top = snapshot(hub, COMMIT, {"config.json": "1", "model.safetensors": "2"})
    (top / "blobs").rename(tmp_path / "blobs")
    (top / "blobs").symlink_to(tmp_path / "blobs")
    inside = f"{top}/snapshots/{COMMIT}"
    with raises_problem(f"{inside}/model.safetensors", cause=f"{tmp_path}/blobs/2", fix=inside):
        build_manifest("org/name")
