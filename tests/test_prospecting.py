from pathlib import Path

import pytest

from medley.prospecting import named_by_ssh


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh" / "conf.d").mkdir(parents=True)
    return tmp_path / ".ssh"


def test_without_files_nobody_is_named(folder: Path) -> None:
    folder.rename(folder.with_name("gone"))
    assert list(named_by_ssh()) == []


def test_includes_are_relative_to_the_folder_or_whole(folder: Path) -> None:
    (folder / "conf.d" / "b").write_text("Host b\n")
    (folder / "conf.d" / "a").write_text("Host a\n")
    (folder / "home").write_text("Host of-home\n")
    whole = folder / "whole"
    whole.write_text("Host whole\n")
    (folder / "config").write_text(f"Include conf.d/*\nInclude {whole} ~/.ssh/home nowhere/*\nHost last\n")
    (folder / "known_hosts").write_text("nas ssh-ed25519 AAAA\n")
    found = list(named_by_ssh())
    assert [each.name for each in found] == ["a", "b", "whole", "of-home", "last", "nas"]
    assert found[0].where == f"{folder}/conf.d/a:1"
    assert found[-1].where == "~/.ssh/known_hosts:1"


def test_bytes_that_are_no_text_harm_nobody(folder: Path) -> None:
    (folder / "config").write_bytes(b"# B\xfcro\nHost a\n")
    (folder / "conf.d" / "folder").mkdir()
    (folder / "known_hosts").write_bytes(b"\xff\xfe\n")
    assert [each.name for each in named_by_ssh()] == ["a"]
