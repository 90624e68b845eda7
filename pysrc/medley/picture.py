"""A picture is made of blocks of SVG, each of a known height, whose text keeps to its room in any font."""

import unicodedata
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

FONT = "system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', Verdana, sans-serif"
INK, MUTED = "#1d2330", "#5b6475"
_LEADING = 1.4
"""Of a line's height to its letters'."""

# Advances in em, no less than of DejaVu Sans, the widest of the fonts named; beyond ASCII that of emoji.
_NARROW, _MIDDLE, _CAPITAL, _WIDE, _FOREIGN = 0.44, 0.65, 0.8, 1.02, 1.4
_THIN, _BROAD = frozenset("fijlrtI.,:;'|!()[]/\\- "), frozenset("mwMW%@+=<>~#&^")
_BOLD = 1.13


@dataclass(frozen=True)
class Block:
    element: ET.Element
    height: float


@dataclass(frozen=True)
class Style:
    size: float = 12
    fill: str = INK
    bold: bool = False

    @property
    def line(self) -> float:
        return self.size * _LEADING


def element(tag: str, **attributes: float | str) -> ET.Element:
    """`stroke_width` is written stroke-width, and numbers to a thousandth."""
    return ET.Element(tag, {name.replace("_", "-"): _number(value) for name, value in attributes.items()})


def titled(inner: ET.Element, title: str) -> ET.Element:
    """With a text that a reader is told, or shown when pointing there."""
    said = ET.Element("title")
    said.text = printable(title)
    inner.insert(0, said)
    return inner


def stacked(blocks: Iterable[Block], gap: float = 0) -> Block:
    """One under the other."""
    outer, y = element("g"), 0.0
    for block in blocks:
        outer.append(at(block.element, 0, y))
        y += block.height + gap
    return Block(outer, max(0.0, y - gap))


def at(inner: ET.Element, x: float, y: float) -> ET.Element:
    return _around(element("g", transform=f"translate({_number(x)} {_number(y)})"), inner)


def framed(inner: Block, width: float, *, padding: float, fill: str, stroke: str) -> Block:
    height = inner.height + 2 * padding
    outer = element("g")
    outer.append(element("rect", width=width, height=height, rx=6, fill=fill, stroke=stroke))
    outer.append(at(inner.element, padding, padding))
    return Block(outer, height)


def paragraph(words: str | Iterable[str], room: float, style: Style) -> Block:
    """As many lines as it takes; where there are several strings, each stays whole if it can."""
    return stacked(_line(line, style) for line in wrapped(words, room, style))


def label(words: str, room: float, style: Style) -> Block:
    """One line; what is left out of it stands in its title."""
    whole = printable(words)
    shown = shortened(whole, room, style)
    line = _line(shown, style)
    return line if shown == whole else Block(titled(line.element, whole), line.height)


def centred(words: str, room: float, style: Style) -> Block:
    shown = shortened(printable(words), room, style)
    return Block(_text(shown, style, x=room / 2, anchor="middle"), style.line)


def printable(words: str) -> str:
    """XML has no place for control characters, and those that turn the writing round would mislead."""
    return " ".join("".join(each if each.isprintable() or each.isspace() else "�" for each in words).split())


def width(words: str, style: Style) -> float:
    """No less than what the words take."""
    return sum(map(_advance, words)) * style.size * (_BOLD if style.bold else 1)


def wrapped(words: str | Iterable[str], room: float, style: Style) -> list[str]:
    """Lines no wider than the room; what is longer by itself is cut."""
    whole = printable(words).split() if isinstance(words, str) else map(printable, words)
    lines = [""]
    for word in (part for each in whole for part in _cut(each, room, style)):
        longer = f"{lines[-1]} {word}".strip()
        if width(longer, style) <= room:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def shortened(words: str, room: float, style: Style) -> str:
    """Its beginning and its end, for names of hosts differ at the end."""
    kept, short = len(words), words
    while width(short, style) > room and kept > 1:
        kept -= 1
        short = f"{words[: (kept + 1) // 2]}…{words[len(words) - kept // 2 :]}"
    return short


def _cut(word: str, room: float, style: Style) -> Iterator[str]:
    part = ""
    for letter in word:
        if part and width(part + letter, style) > room:
            yield part
            part = ""
        part += letter
    yield part


def _advance(letter: str) -> float:
    if not letter.isascii():
        return 0.0 if unicodedata.combining(letter) else _FOREIGN
    if letter in _THIN:
        return _NARROW
    if letter in _BROAD:
        return _WIDE
    return _CAPITAL if letter.isupper() else _MIDDLE


def _line(words: str, style: Style) -> Block:
    return Block(_text(words, style), style.line)


def _text(words: str, style: Style, x: float = 0, anchor: str = "start") -> ET.Element:
    found = element("text", x=x, y=style.size, font_size=style.size, fill=style.fill, text_anchor=anchor)
    if style.bold:
        found.set("font-weight", "bold")
    found.text = words
    return found


def _around(outer: ET.Element, inner: ET.Element) -> ET.Element:
    outer.append(inner)
    return outer


def _number(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.3f}".rstrip("0").rstrip(".")
