"""What a terminal shows of what a program wrote, and pictures that fetch nothing and name no machine."""

import os
from pathlib import Path

import pytest

from tools.screenshots import PICTURES, picture, public, screen
from tools.site import faults


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        ("one\r\ntwo\r\n", "one\ntwo"),
        ("10 %\r50 %\r100 %\r\ndone", "100 %\ndone"),
        ("\x1b[1mbold\x1b[0m", "\x1b[1mbold\x1b[0m"),
        ("a\r\nb\r\n\x1b[1A\x1b[2Kc\r\n", "a\nc"),
        ("\x1b[?25lhidden cursor\x1b[?25h", "hidden cursor"),
        ("\x1b]0;a title\x07text", "text"),
    ],
)
def test_what_a_terminal_shows_at_last(written: str, seen: str) -> None:
    assert screen(written) == seen


def test_a_picture_has_the_text_its_color_and_no_font_from_elsewhere(tmp_path: Path) -> None:
    made = picture("medley", "\x1b[31mwrong\x1b[0m")
    assert "wrong" in made
    assert made != picture("medley", "wrong")
    (tmp_path / "a.svg").write_text(made)
    assert list(faults(tmp_path / "a.svg")) == []


def test_no_picture_names_a_machine(tmp_path: Path) -> None:
    assert public(f"in {tmp_path}/x", tmp_path) == "in ~/x"
    with pytest.raises(SystemExit, match="would show"):
        public(f"on {os.uname().nodename}: ok", tmp_path)


@pytest.mark.parametrize("path", sorted(PICTURES.glob("*.svg")), ids=lambda path: path.stem)
def test_the_pictures_fetch_nothing(path: Path) -> None:
    assert list(faults(path)) == []
    assert "/root/" not in path.read_text(encoding="utf-8")
