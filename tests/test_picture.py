"""Text that keeps to its room, and pictures that any XML reader reads."""

import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medley.picture import Style, at, framed, label, paragraph, printable, shortened, stacked, width, wrapped

# Thousandths of an em, from the space to the tilde: DejaVu Sans 2.37 and its bold.
REGULAR = """
318 401 460 838 637 951 780 275 391 391 500 838 318 361 318 337 637 637 637 637 637 637 637 637 637
637 337 337 838 838 838 531 1000 685 687 699 771 632 576 775 752 295 295 656 558 863 749 788 604 788
695 635 611 732 685 989 686 611 686 391 337 391 838 500 500 613 635 550 635 616 353 635 634 278 278
580 278 975 634 612 635 635 412 521 393 634 592 818 592 592 525 637 337 637 838
"""
BOLD = """
349 457 521 838 696 1002 873 307 458 458 523 838 380 416 380 366 696 696 696 696 696 696 696 696 696
696 400 400 838 838 838 581 1000 774 763 734 831 684 684 821 837 373 373 775 638 996 837 851 733 851
771 721 683 813 774 1104 771 725 726 458 366 458 838 500 500 675 716 593 716 679 436 716 712 343 343
666 343 1042 712 688 716 716 494 596 479 712 652 924 646 652 583 712 366 712 838
"""
STYLES = st.sampled_from([Style(11.5), Style(13, bold=True), Style(24, bold=True)])


@pytest.mark.parametrize(("advances", "bold"), [(REGULAR, False), (BOLD, True)], ids=["regular", "bold"])
def test_no_letter_is_wider_than_reckoned(advances: str, bold: bool) -> None:  # noqa: FBT001
    style = Style(1000, bold=bold)
    wider = {
        chr(code): (told, width(chr(code), style))
        for code, told in enumerate(map(int, advances.split()), start=32)
        if told > width(chr(code), style) + 1
    }
    assert wider == {}


@given(st.text(), st.floats(40, 500), STYLES)
def test_wrapped_lines_keep_to_the_room_and_lose_nothing(words: str, room: float, style: Style) -> None:
    lines = wrapped(words, room, style)
    assert all(width(line, style) <= room for line in lines)
    assert "".join("".join(lines).split()) == "".join(printable(words).split())


@given(st.text(), st.floats(80, 500), STYLES)
def test_shortened_keeps_to_the_room(words: str, room: float, style: Style) -> None:
    assert width(shortened(printable(words), room, style), style) <= room


def test_shortened_keeps_beginning_and_end() -> None:
    short = shortened("rack-4-" + "x" * 80 + "-node-17", 120, Style(12))
    assert short.startswith("rack-4")
    assert short.endswith("de-17")
    assert "…" in short


def test_pieces_stay_whole() -> None:
    room = width("weights 20.0,", Style())
    assert wrapped(["weights 20.0,", "KV cache 3.0"], room, Style()) == ["weights 20.0,", "KV cache 3.0"]


def test_a_label_that_is_shortened_has_the_whole_in_its_title() -> None:
    name = "spark-" + "7" * 90
    assert label(name, 100, Style()).element.findtext("title") == name
    assert label("spark-7", 100, Style()).element.find("title") is None


@given(st.text(alphabet=st.characters()))
def test_any_text_makes_xml(words: str) -> None:
    block = framed(paragraph(words, 200, Style()), 220, padding=5, fill="#fff", stroke="#000")
    read = ET.fromstring(ET.tostring(block.element, encoding="unicode"))
    assert (
        "".join(each.text or "" for each in read.iter("text")).split()
        == "".join(wrapped(words, 200, Style())).split()
    )


def test_what_turns_writing_round_is_not_drawn() -> None:
    assert printable("a\u202eb\x1b[0m\x00\ud800\n c") == "a�b�[0m�� c"


def test_blocks_are_stacked() -> None:
    line = Style(10).line
    both = stacked([paragraph("one", 100, Style(10)), paragraph("two", 100, Style(10))], 4)
    assert both.height == pytest.approx(2 * line + 4)
    assert [each.get("transform") for each in both.element] == [
        "translate(0 0)",
        f"translate(0 {line + 4:g})",
    ]
    assert at(both.element, 1.5, 2).get("transform") == "translate(1.5 2)"
