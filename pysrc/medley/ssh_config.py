"""An ssh config is where a user gives hosts their short names; here it is read for those names alone."""

import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from medley.mention import SSH_PORT, Mention, is_near

BY = "ssh config"
_DEEPEST = 16
_LONGEST = 16_384
"""Characters of a line that is worth reading."""
"""As ssh itself has it."""
_PATTERN = set("*?!")
Included = Callable[[str], Iterable[tuple[str, str]]]
"""From the pattern of an Include to the names and texts of the files that fit it."""


@dataclass(frozen=True)
class Line:
    file: str
    number: int
    keyword: str
    """In small letters."""
    words: tuple[str, ...]

    @property
    def where(self) -> str:
        return f"{self.file}:{self.number}"


@dataclass
class _Block:
    """From one Host line to the next."""

    where: str
    aliases: tuple[str, ...]
    values: dict[str, str] = field(default_factory=dict)


def mentions(text: str, file: str, included: Included) -> tuple[Mention, ...]:
    """Every alias that is no pattern, once; also those that are no plain names."""
    found: dict[str, _Block] = {}
    for block in _blocks(lines(text, file, included)):
        for alias in block.aliases:
            if alias and not _PATTERN & set(alias):
                known = found.setdefault(alias, _Block(block.where, (alias,)))
                known.values = block.values | known.values  # the first value of a keyword holds
    return tuple(mention for block in found.values() if (mention := _mention(block)))


def lines(text: str, file: str, included: Included, depth: int = 0) -> Iterator[Line]:
    """Its lines, and in the place of an Include those of the files that it names."""
    for number, raw in enumerate(text.splitlines(), 1):
        line = _line(raw, file, number)
        if line is None:
            continue
        if line.keyword != "include":
            yield line
        elif depth < _DEEPEST:
            for pattern in line.words:
                for name, more in included(pattern):
                    yield from lines(more, name, included, depth + 1)


def _line(raw: str, file: str, number: int) -> Line | None:
    text = raw.strip()
    if not text or text.startswith("#") or len(text) > _LONGEST:
        return None
    keyword, rest = _split(text)
    try:
        words = tuple(shlex.split(rest, comments=True))
    except ValueError:  # a quote without its end: ssh refuses it, and so does whoever takes the name
        words = (rest,)
    return Line(file, number, keyword.lower(), words)


def _split(text: str) -> tuple[str, str]:
    """`Keyword value`, `Keyword=value` or `Keyword = value`."""
    end = next((n for n, letter in enumerate(text) if letter in " \t="), len(text))
    rest = text[end:].lstrip()
    return text[:end], rest[1:].lstrip() if rest.startswith("=") else rest


def _blocks(every: Iterable[Line]) -> Iterator[_Block]:
    block: _Block | None = None
    for line in every:
        if line.keyword in {"host", "match"}:
            if block:
                yield block
            block = _Block(line.where, line.words if line.keyword == "host" else ())
        elif block and line.words:
            block.values.setdefault(line.keyword, line.words[0])
    if block:
        yield block


def _mention(block: _Block) -> Mention | None:
    values, (alias,) = block.values, block.aliases
    if values.get("user") == "git":
        return None  # a server of repositories
    address = values.get("hostname", "").replace("%h", alias)
    port = int(values["port"]) if values.get("port", "").isdecimal() else SSH_PORT
    # Two hosts behind one address have ports of their own: then the address alone says nothing.
    also = () if not address else (address,) if port == SSH_PORT else (f"{address}:{port}",)
    near = is_near(address or alias) and not {"proxyjump", "proxycommand"} & set(values)
    return Mention(alias, BY, block.where, also, likely=near)
