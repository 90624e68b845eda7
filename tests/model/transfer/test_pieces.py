import threading
import time
from pathlib import Path

import pytest

from medley.model.transfer import Manifest, ManifestFile, ManifestLink
from medley.model.transfer.inventory import build_manifest
from medley.model.transfer.pieces import PieceStore
from tests.model.transfer.models import COUNT, PIECE, files, model
from tests.problems import raises_problem


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PieceStore:
    monkeypatch.setenv("MEDLEY_CACHE", str(tmp_path / "cache"))
    top = model(tmp_path / "from")
    return PieceStore(build_manifest(str(top), piece_bytes=PIECE), top, whole=True)


@pytest.fixture
def held(source: PieceStore, tmp_path: Path) -> PieceStore:
    return PieceStore(source.manifest, tmp_path / "to")


def piece(source: PieceStore, number: int) -> memoryview:
    about = source.manifest.pieces[number]
    with source.open_piece(number) as file:
        file.seek(about.offset)
        return memoryview(file.read(about.size_bytes))


def test_the_source_has_all(source: PieceStore) -> None:
    assert source.list_missing() == []
    assert source.missing_bytes == 0
    assert source.wait_for_piece(COUNT - 1, 0)


@pytest.mark.parametrize("order", [1, -1], ids=["in order", "backwards"])
def test_a_file_has_its_name_when_it_is_whole(source: PieceStore, held: PieceStore, order: int) -> None:
    assert len(held.list_missing()) == COUNT
    for number in range(COUNT)[::order]:
        there = set(files(held.root)) if held.root.exists() else set()
        assert "config.json" not in there
        for name in there:
            whole = files(held.root)[name] == files(source.root)[name.removesuffix(".medley-part")]
            assert name.endswith(".medley-part") or whole, name
        assert held.store_piece(number, piece(source, number))
        assert number not in held.list_missing()
    assert "config.json" not in files(held.root), "the others have no name before all is here"
    held.publish()
    assert files(held.root) == files(source.root)
    assert held.missing_bytes == 0


def test_a_wrong_piece_is_not_kept(source: PieceStore, held: PieceStore) -> None:
    assert not held.store_piece(1, piece(source, 0))
    assert not held.store_piece(1, piece(source, 1)[:-1])
    assert len(held.list_missing()) == COUNT
    assert not held.root.exists()


def test_what_is_kept_can_be_read_at_once(source: PieceStore, held: PieceStore) -> None:
    for number in (3, *range(COUNT)):
        held.store_piece(number, piece(source, number))
        assert piece(held, 3) == piece(source, 3)


def test_who_waits_hears_of_it(source: PieceStore, held: PieceStore) -> None:
    assert not held.wait_for_piece(2, 0.01)
    timer = threading.Timer(0.1, lambda: held.store_piece(2, piece(source, 2)))
    timer.start()
    assert held.wait_for_piece(2, 60)
    timer.join()


def test_who_waits_is_let_go_at_the_end(held: PieceStore) -> None:
    timer = threading.Timer(0.1, held.end)
    timer.start()
    begun = time.monotonic()
    assert not held.wait_for_piece(2, 60)
    assert time.monotonic() - begun < 50
    timer.join()


def test_links_are_made(source: PieceStore, held: PieceStore) -> None:
    held.manifest = Manifest(source.manifest.files, (ManifestLink("x/link", "../b/b.safetensors"),), PIECE)
    (held.root / "x").mkdir(parents=True)
    (held.root / "x" / "link").write_text("another thing")
    assert not held.has_link(held.manifest.links[0])
    for number in range(COUNT):
        held.store_piece(number, piece(source, number))
    held.publish()
    assert (held.root / "x" / "link").read_bytes() == (source.root / "b/b.safetensors").read_bytes()
    held.publish()
    assert held.has_link(held.manifest.links[0])


def test_nothing_is_written_through_a_link(source: PieceStore, held: PieceStore, tmp_path: Path) -> None:
    held.root.mkdir()
    (tmp_path / "mine").write_text("precious")
    (held.root / "a.safetensors.medley-part").symlink_to(tmp_path / "mine")
    with raises_problem("a.safetensors", fix=f"df -h {held.root}"):
        held.store_piece(0, piece(source, 0))
    assert (tmp_path / "mine").read_text() == "precious"


def test_a_disk_that_is_full_is_a_problem() -> None:
    """/dev/full says what a full disk does."""
    held = PieceStore(Manifest((ManifestFile("x", 0, ()),)), Path("/dev"))
    with (
        raises_problem("/dev/x", cause="No space left on device", fix="df -h /dev"),
        held.explain_write_errors(held.manifest.files[0]),
    ):
        Path("/dev/full").write_text("x")
