"""Exposition is Prometheus' text format: families of samples, each with its name, labels and value.

https://prometheus.io/docs/instrumenting/exposition_formats/
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

Labels = tuple[tuple[str, str], ...]
TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Each repetition is possessive, so that a line takes time in proportion to its length.
_NAME = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*+)\s*+(\{)?")
_LABEL = re.compile(r'\s*+([a-zA-Z_][a-zA-Z0-9_]*+)\s*+=\s*+"((?:[^"\\]|\\.)*+)"\s*+(?:,|(?=\}))')
_CLOSED = re.compile(r"\s*+\}")
_VALUE = re.compile(r"\s*+(\S++)(?:\s++-?[0-9]++)?\s*+$")
_ESCAPES = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}
_SUFFIXES = ("_total", "_created", "_bucket", "_count", "_sum")


@dataclass(frozen=True)
class Point:
    name: str
    labels: Labels
    value: float


@dataclass
class Family:
    name: str
    type: str = "untyped"
    help: str = ""
    points: list[Point] = field(default_factory=list)


def families(text: str) -> dict[str, Family]:
    """By name, in order; a line that is none is passed over."""
    found: dict[str, Family] = {}
    for line in text.splitlines():
        if line.startswith("#"):
            _described(found, line)
        elif point := _point(line):
            _family(found, point.name).points.append(point)
    return found


def _described(found: dict[str, Family], line: str) -> None:
    match line.split(None, 3):
        case ["#", "HELP", name, *rest]:
            found.setdefault(name, Family(name)).help = rest[0] if rest else ""
        case ["#", "TYPE", name, kind]:
            found.setdefault(name, Family(name)).type = kind.strip()
        case _:
            pass


def _family(found: dict[str, Family], name: str) -> Family:
    """The one that it is of: a histogram's has no suffix."""
    if name in found:
        return found[name]
    for suffix in _SUFFIXES:
        base = name.removesuffix(suffix)
        if base != name and base in found:
            return found[base]
    return found.setdefault(name, Family(name))


def _point(line: str) -> Point | None:
    name = _NAME.match(line)
    if not name:
        return None
    labels, at = [], name.end()
    if name[2]:
        while label := _LABEL.match(line, at):
            labels.append((label[1], _unescaped(label[2])))
            at = label.end()
        closed = _CLOSED.match(line, at)
        if not closed:
            return None
        at = closed.end()
    found = _VALUE.match(line, at)
    try:
        return Point(name[1], tuple(labels), float(found[1])) if found else None
    except ValueError:
        return None


def _unescaped(text: str) -> str:
    return re.sub(r"\\.", lambda found: _ESCAPES.get(found[0], found[0]), text)


def written(found: Iterable[Family]) -> str:
    """As a server answers it; families without samples are left out."""
    return "".join(f"{line}\n" for family in found if family.points for line in _lines(family))


def _lines(family: Family) -> Iterator[str]:
    if family.help:
        yield f"# HELP {family.name} {family.help}"
    yield f"# TYPE {family.name} {family.type}"
    for point in family.points:
        labels = ",".join(f'{key}="{_escaped(text)}"' for key, text in point.labels)
        yield (
            f"{point.name}{{{labels}}} {_number(point.value)}"
            if labels
            else f"{point.name} {_number(point.value)}"
        )


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if value != value:  # noqa: PLR0124 - what tells NaN
        return "NaN"
    if abs(value) == float("inf"):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1 << 63 else repr(value)
