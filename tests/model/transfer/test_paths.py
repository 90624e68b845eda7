"""A path from elsewhere stays below its folder, whatever lies there already."""

import hashlib
import os
from pathlib import Path

import pytest

from medley.model.transfer import Manifest, ManifestFile, ManifestLink
from medley.model.transfer.paths import has_folders, open_below
from medley.model.transfer.pieces import PieceStore, find_damage, recover_pieces
from tests.model.transfer.models import PIECE
from tests.problems import raises_problem


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MEDLEY_CACHE", str(tmp_path / "cache"))


def pulled(root: Path, files: dict[str, bytes], links: dict[str, str]) -> None:
    """What a pull does with what a source sends."""
    entries = tuple(
        ManifestFile(path, len(data), (hashlib.sha256(data).hexdigest(),)) for path, data in files.items()
    )
    manifest = Manifest(entries, tuple(ManifestLink(*each) for each in links.items()), PIECE)
    held = PieceStore(manifest, root)
    recover_pieces(held)
    for number, data in enumerate(files.values()):
        held.store_piece(number, memoryview(data))
    held.publish()


def test_three_manifests_in_a_row_do_not_write_outside(tmp_path: Path) -> None:
    """The first makes a folder and a link to it deeper down; the second a link below that link, which climbs
    as far as its own path is long, and so out of the model; the third a file below that."""
    home, root = tmp_path / "home", tmp_path / "home" / "models" / "m"
    (home / ".ssh").mkdir(parents=True)
    pulled(root, {"z/f": b"x", "a/b/f": b"x"}, {"a/b/c": "../../z"})
    with raises_problem(f"{root}/a/b/c ", fix=f"ls -l {root}/a/b/c"):
        pulled(root, {"z/f": b"x"}, {"a/b/c/l": "../../../.ssh"})
    with raises_problem(f"{root}/a/b/c ", fix=f"ls -l {root}/a/b/c"):
        pulled(root, {"a/b/c/authorized_keys": b"ssh-ed25519 AAAA"}, {})
    (root / "z" / "l").symlink_to("../../../.ssh")  # as if the second had come through
    with raises_problem(f"{root}/z/l ", fix=f"ls -l {root}/z/l"):
        pulled(root, {"z/l/authorized_keys": b"ssh-ed25519 AAAA"}, {})
    with raises_problem(f"{root}/z/l ", fix=f"ls -l {root}/z/l"):
        find_damage(Manifest((ManifestFile("z/l/authorized_keys", 0, ()),)), root)
    assert not any((home / ".ssh").iterdir())
    assert sorted(path.name for path in home.iterdir()) == [".ssh", "models"]


def test_links_that_are_the_hub_s_own_are_made_and_read(tmp_path: Path) -> None:
    root = tmp_path / "disk"
    root.mkdir()
    (tmp_path / "cache-of-the-hub").symlink_to(root)  # the user's own link above it
    at = tmp_path / "cache-of-the-hub" / "models--o--n"
    pulled(at, {"blobs/1": b"{}"}, {"snapshots/c/config.json": "../../blobs/1"})
    pulled(at, {"blobs/1": b"{}"}, {"snapshots/c/config.json": "../../blobs/1"})
    assert (root / "models--o--n/snapshots/c/config.json").read_bytes() == b"{}"


def test_the_mode_is_the_user_s_wish(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        pulled(tmp_path / "m", {"f": b"x"}, {})
    finally:
        os.umask(before)
    assert (tmp_path / "m" / "f").stat().st_mode & 0o777 == 0o600


def test_the_way_is_looked_at_and_not_made_unless_asked(tmp_path: Path) -> None:
    assert not has_folders(tmp_path / "none", "a/b")
    assert not has_folders(tmp_path, "a/b")
    with open_below(tmp_path, "a/b", create=True) as name:
        os.close(name.open(os.O_WRONLY | os.O_CREAT))
    assert has_folders(tmp_path, "a/b")
    assert not has_folders(tmp_path, "a/b/c"), "a file is no folder"
    with pytest.raises(NotADirectoryError), open_below(tmp_path, "a/b/c", create=True):
        pass
    for path in ("../x", "a//b", "a/./b", "/etc/x"):
        with pytest.raises(AssertionError), open_below(tmp_path, path):
            pass
