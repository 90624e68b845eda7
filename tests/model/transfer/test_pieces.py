import threading
import time
from pathlib import Path

import pytest

from medley.model.transfer import Manifest, ManifestFile, ManifestLink
from medley.model.transfer.inventory import offered
from medley.model.transfer.pieces import Held
from tests.model.transfer.models import COUNT, PIECE, files, model
from tests.problems import raises_problem


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Held:
    monkeypatch.setenv("MEDLEY_CACHE", str(tmp_path / "cache"))
    top = model(tmp_path / "from")
    return Held(offered(str(top), piece_bytes=PIECE), top, whole=True)


@pytest.fixture
def held(source: Held, tmp_path: Path) -> Held:
    return Held(source.manifest, tmp_path / "to")


def piece(source: Held, number: int) -> memoryview:
    about = source.manifest.pieces[number]
    with source.opened(number) as file:
        file.seek(about.offset)
        return memoryview(file.read(about.size_bytes))


def test_the_source_has_all(source: Held) -> None:
    assert source.missing() == []
    assert source.missing_bytes == 0
    assert source.wait(COUNT - 1, 0)


@pytest.mark.parametrize("order", [1, -1], ids=["in order", "backwards"])
def test_a_file_has_its_name_when_it_is_whole(source: Held, held: Held, order: int) -> None:
    assert len(held.missing()) == COUNT
    for number in range(COUNT)[::order]:
        there = set(files(held.root)) if held.root.exists() else set()
        assert "config.json" not in there
        for name in there:
            whole = files(held.root)[name] == files(source.root)[name.removesuffix(".medley-part")]
            assert name.endswith(".medley-part") or whole, name
        assert held.keep(number, piece(source, number))
        assert number not in held.missing()
    assert "config.json" not in files(held.root), "the others have no name before all is here"
    held.complete()
    assert files(held.root) == files(source.root)
    assert held.missing_bytes == 0


def test_a_wrong_piece_is_not_kept(source: Held, held: Held) -> None:
    assert not held.keep(1, piece(source, 0))
    assert not held.keep(1, piece(source, 1)[:-1])
    assert len(held.missing()) == COUNT
    assert not held.root.exists()


def test_what_is_kept_can_be_read_at_once(source: Held, held: Held) -> None:
    for number in (3, *range(COUNT)):
        held.keep(number, piece(source, number))
        assert piece(held, 3) == piece(source, 3)


def test_who_waits_hears_of_it(source: Held, held: Held) -> None:
    assert not held.wait(2, 0.01)
    timer = threading.Timer(0.1, lambda: held.keep(2, piece(source, 2)))
    timer.start()
    assert held.wait(2, 60)
    timer.join()


def test_who_waits_is_let_go_at_the_end(held: Held) -> None:
    timer = threading.Timer(0.1, held.end)
    timer.start()
    begun = time.monotonic()
    assert not held.wait(2, 60)
    assert time.monotonic() - begun < 50
    timer.join()


def test_links_are_made(source: Held, held: Held) -> None:
    held.manifest = Manifest(source.manifest.files, (ManifestLink("x/link", "../b/b.safetensors"),), PIECE)
    (held.root / "x").mkdir(parents=True)
    (held.root / "x" / "link").write_text("another thing")
    assert not held.linked(held.manifest.links[0])
    for number in range(COUNT):
        held.keep(number, piece(source, number))
    held.complete()
    assert (held.root / "x" / "link").read_bytes() == (source.root / "b/b.safetensors").read_bytes()
    held.complete()
    assert held.linked(held.manifest.links[0])


def test_nothing_is_written_through_a_link(source: Held, held: Held, tmp_path: Path) -> None:
    held.root.mkdir()
    (tmp_path / "mine").write_text("precious")
    (held.root / "a.safetensors.medley-part").symlink_to(tmp_path / "mine")
    with raises_problem("a.safetensors", fix=f"df -h {held.root}"):
        held.keep(0, piece(source, 0))
    assert (tmp_path / "mine").read_text() == "precious"


def test_a_disk_that_is_full_is_a_problem() -> None:
    """/dev/full says what a full disk does."""
    held = Held(Manifest((ManifestFile("x", 0, ()),)), Path("/dev"))
    with (
        raises_problem("/dev/x", cause="No space left on device", fix="df -h /dev"),
        held.writing(held.manifest.files[0]),
    ):
        Path("/dev/full").write_text("x")
