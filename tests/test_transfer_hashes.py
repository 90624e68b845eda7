import hashlib
import os
from pathlib import Path

import pytest

from medley.problem import Problem
from medley.transfer import hashes
from tests.transferring import flip

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
    assert hashes.of_file(path, 2048, on_bytes=sizes.append) == expected(CONTENT)
    assert sizes == [2048, 2048, 1024]


def test_the_second_time_nothing_is_read(path: Path) -> None:
    hashes.of_file(path, 2048)
    flip(path, 5000)
    sizes: list[int] = []
    assert hashes.of_file(path, 2048, on_bytes=sizes.append) == expected(CONTENT)
    assert sizes == [len(CONTENT)]
    changed = expected(path.read_bytes())
    assert changed != expected(CONTENT)
    assert hashes.of_file(path, 2048, fresh=True) == changed
    assert hashes.of_file(path, 2048) == changed, "what was read afresh is what is known now"


def test_another_file_is_read(path: Path) -> None:
    hashes.of_file(path, 2048)
    assert hashes.of_file(path, 1024) != expected(CONTENT), "other pieces"
    hashes.of_file(path, 2048)
    about = path.stat()
    other = bytes(len(CONTENT))
    path.with_name("other").write_bytes(other)
    os.utime(path.with_name("other"), ns=(about.st_atime_ns, about.st_mtime_ns))
    path.with_name("other").replace(path)
    assert hashes.of_file(path, 2048) == expected(other), "a copy with the old one's time"
    path.write_bytes(CONTENT)
    os.utime(path, ns=(1, 1))
    assert hashes.of_file(path, 2048) == expected(CONTENT), "written again"


def test_a_damaged_note_is_none(path: Path, cache: Path) -> None:
    hashes.of_file(path, 2048)
    (note,) = (cache / "hashes").iterdir()
    note.write_text('{"of": ')
    assert hashes.of_file(path, 2048) == expected(CONTENT)


def test_a_cache_that_cannot_be_written_is_no_problem(path: Path, cache: Path) -> None:
    cache.write_text("in the way")
    assert hashes.of_file(path, 2048) == expected(CONTENT)


def test_a_file_that_is_being_written_is_a_problem(path: Path) -> None:
    def write(_: int) -> None:
        with path.open("ab") as file:
            file.write(b"x")

    with pytest.raises(Problem, match="changes while it is read"):
        hashes.of_file(path, 2048, on_bytes=write)


def test_what_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    with pytest.raises(Problem, match="cannot be read"):
        hashes.read(tmp_path, 2048)
    with pytest.raises(Problem, match="cannot be read"):
        hashes.of_file(tmp_path / "none", 2048)
