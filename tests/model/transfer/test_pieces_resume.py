import os
from pathlib import Path

import pytest

from medley.model.transfer import Manifest, ManifestLink
from medley.model.transfer.inventory import build_manifest
from medley.model.transfer.pieces import PieceStore, find_damage, recover_pieces
from tests.model.transfer.models import COUNT, PIECE, SIZES, files, flip, model

A, B = "a.safetensors", "b/b.safetensors"


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MEDLEY_CACHE", str(tmp_path / "cache"))
    return model(tmp_path / "from")


@pytest.fixture
def manifest(source: Path) -> Manifest:
    return build_manifest(str(source), piece_bytes=PIECE)


@pytest.fixture
def there(source: Path, tmp_path: Path) -> Path:
    """A whole copy, which each test then spoils."""
    del source
    return model(tmp_path / "to")


def missing(manifest: Manifest, there: Path) -> list[str]:
    held = PieceStore(manifest, there)
    recover_pieces(held)
    return [
        f"{manifest.pieces[number].file.path} {manifest.pieces[number].number}"
        for number in held.list_missing()
    ]


def test_nothing_lies_there(manifest: Manifest, tmp_path: Path) -> None:
    assert len(missing(manifest, tmp_path / "none")) == COUNT


def test_all_lies_there(manifest: Manifest, there: Path) -> None:
    before = {name: (there / name).stat().st_ino for name in SIZES}
    held = PieceStore(manifest, there)
    recover_pieces(held)
    assert held.list_missing() == []
    held.publish()
    assert {name: (there / name).stat().st_ino for name in SIZES} == before
    assert find_damage(manifest, there) == ()


def test_a_flipped_bit_is_found_and_costs_one_piece(manifest: Manifest, there: Path) -> None:
    assert missing(manifest, there) == [], "and now its hashes are known"
    flip(there / A, 5 * PIECE + 7)
    assert missing(manifest, there) == [], "by its size and time it is the same"
    assert find_damage(manifest, there) == (f"piece 6 of 11 of {A} is damaged",)
    assert missing(manifest, there) == [f"{A} 5"]
    assert sorted(files(there)) == sorted([f"{A}.medley-part", B, "config.json.medley-part", "empty"])


@pytest.mark.parametrize(
    ("size", "left", "said"),
    [
        pytest.param(4 * PIECE, [4, 5, 6, 7, 8, 9, 10], "piece 5 of 11 of", id="cut between pieces"),
        pytest.param(9 * PIECE + 8, [9, 10], "piece 10 of 11 of", id="cut within one"),
        pytest.param(10 * PIECE + 6, [10], "piece 11 of 11 of", id="a byte too long"),
        pytest.param(11 * PIECE, [10], "piece 11 of 11 of", id="too long by zeros"),
        pytest.param(13 * PIECE, [10], "piece 11 of 11 of", id="too long by pieces"),
    ],
)
def test_a_file_of_another_length(
    manifest: Manifest, there: Path, size: int, left: list[int], said: str
) -> None:
    os.truncate(there / A, size)
    assert said in find_damage(manifest, there)[0]
    assert missing(manifest, there) == [f"{A} {number}" for number in left]


def test_a_file_that_goes_on_after_its_last_piece(manifest: Manifest, there: Path) -> None:
    with (there / B).open("ab") as file:
        file.write(b"more")
    assert find_damage(manifest, there) == (f"{B} is longer than it should be",)
    held = PieceStore(manifest, there)
    recover_pieces(held)
    assert held.list_missing() == []
    assert B not in files(there)
    held.publish()
    assert find_damage(manifest, there) == ()


def test_an_unfinished_file_is_hashed_whatever_its_time(manifest: Manifest, there: Path) -> None:
    missing(manifest, there)
    (there / A).rename(there / f"{A}.medley-part")
    flip(there / f"{A}.medley-part", 3)
    assert missing(manifest, there) == [f"{A} 0"]
    assert "config.json" not in files(there)


def test_another_version_is_no_model_while_it_is_replaced(source: Path, there: Path) -> None:
    model(source, seed=1)
    manifest = build_manifest(str(source), piece_bytes=PIECE)
    assert len(missing(manifest, there)) == COUNT
    assert "config.json" not in files(there)


def test_a_link_by_which_it_is_known_is_taken_back(manifest: Manifest, there: Path) -> None:
    linked = Manifest(manifest.files[:-1], (ManifestLink("snapshots/c/config.json", "../../x"),), PIECE)
    link = there / "snapshots" / "c" / "config.json"
    link.parent.mkdir(parents=True)
    link.symlink_to("../../x")
    assert find_damage(linked, there) == ()
    missing(linked, there)
    assert link.is_symlink(), "all is whole"
    (there / A).unlink()
    assert find_damage(linked, there) == (f"{A} is missing",)
    missing(linked, there)
    assert not link.is_symlink()
    assert find_damage(linked, there)[-1] == "the link snapshots/c/config.json is missing or another"


@pytest.mark.parametrize("name", [A, "config.json"])
def test_what_lies_behind_a_users_link_is_not_written_to(
    manifest: Manifest, there: Path, tmp_path: Path, name: str
) -> None:
    elsewhere = tmp_path / "elsewhere"
    (there / name).rename(elsewhere)
    (there / name).symlink_to(elsewhere)
    assert missing(manifest, there) == [], "what it leads to is right"
    (there / B).unlink()
    flip(elsewhere, 3)
    content = elsewhere.read_bytes()
    find_damage(manifest, there)
    held = PieceStore(manifest, there)
    recover_pieces(held)
    assert not (there / name).is_symlink()
    lost = [file for file in manifest.files if file.path in {name, B}]
    assert len(held.list_missing()) == sum(len(file.hashes) for file in lost), "nothing of it is counted on"
    assert elsewhere.read_bytes() == content


def test_progress_goes_to_the_end(manifest: Manifest, there: Path) -> None:
    said: list[tuple[int, int]] = []
    recover_pieces(PieceStore(manifest, there), lambda *each: said.append(each))
    assert said == sorted(said)
    assert said[-1] == (manifest.size_bytes, manifest.size_bytes)
