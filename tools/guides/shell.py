"""Read the commands of a shell block, as far as a guide's settings stand in them.

It splits words and commands, keeps here-documents, and fills in variables that the block sets itself.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

# A guide writes what the reader fills in as <IP for Node 1>, {{ set IP here }} or ...
_FILL_IN = re.compile(r"\{\{\s*(.*?)\s*\}\}|<([A-Za-z][^<>\n]*)>")
_PROMPT = re.compile(r"^\S+@\S+[:~]\S*\$ (.*)$", re.MULTILINE)
_HEREDOC = re.compile(
    r"^(?P<head>.*?)<<-?\s*(['\"]?)(?P<end>\w+)\2(?P<rest>[^\n]*)\n(?P<body>.*?)^\s*(?P=end)\s*$",
    re.MULTILINE | re.DOTALL,
)
_ARRAY = re.compile(r"^\s*(\w+)\+?=\(([^)]*)\)\s*$", re.MULTILINE)
_COMMENT = re.compile(r"(?:^|(?<=\s))#[^\n]*")
_TOKEN = re.compile(
    r"""(?P<space>[ \t]+|\\\n)
    |(?P<ends>[;&|()\n]+)
    |(?P<redirect>\d*[<>]+&?\d*)
    |(?P<word>(?:'[^']*'|"(?:\\.|[^"\\])*"|\$\((?:[^()]|\([^()]*\))*\)|\\.|[^\s;&|()<>'"\\])+)
    |(?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_QUOTED = re.compile(r"'([^']*)'|\"((?:\\.|[^\"\\])*)\"|\\(.)", re.DOTALL)
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_REFERENCE = re.compile(r"\$\{(\w+)\}|\$(\w+)")
_SKIPPED = {
    *("if", "then", "else", "elif", "fi", "while", "until", "do", "done", "for", "case", "esac", "{", "}"),
    *("!", "sudo"),
}


@dataclass(frozen=True)
class Line:
    """One command: the variables before it, its words, and the here-document that it reads."""

    words: tuple[str, ...]
    assigned: tuple[tuple[str, str], ...] = ()
    document: str = ""


@dataclass
class _Block:
    known: dict[str, str] = field(default_factory=dict)
    arrays: dict[str, list[str]] = field(default_factory=dict)


def lines(text: str) -> Iterator[Line]:
    """Yield the commands of a block in order; of one with prompts only what is typed after them."""
    typed = _PROMPT.findall(text)
    text = "\n".join(typed) if typed else text
    block = _Block()
    text = _ARRAY.sub(lambda found: _kept(block, found), text)
    at = 0
    for found in _HEREDOC.finditer(text):
        yield from _plain(text[at : found.start()], block)
        *before, last = [*_plain(f"{found['head']}{found['rest']}", block)] or [Line(())]
        yield from before
        yield Line(last.words, last.assigned, found["body"])
        at = found.end()
    yield from _plain(text[at:], block)


def fill_in(text: str) -> str:
    """Mark what the reader is to fill in, in one word: `⟨IP-for-Node-1⟩`."""
    return _FILL_IN.sub(lambda found: f"⟨{'-'.join((found[1] or found[2]).split())}⟩", text)


def is_filled_in(value: str) -> bool:
    """Whether the value depends on the reader's hosts: a mark, a variable, a command's output or dots."""
    return any(mark in value for mark in ("⟨", "$", "...", "{")) or value in {"hf_xxx", "N"}


def plain(word: str) -> str:
    """Return a word without its quotes."""
    return _QUOTED.sub(lambda found: next((each for each in found.groups() if each is not None), ""), word)


def assignment(word: str) -> tuple[str, str] | None:
    """Return the name and value of NAME=VALUE."""
    found = _ASSIGNED.fullmatch(word)
    return (found[1], plain(found[2])) if found else None


def _kept(block: _Block, found: re.Match[str]) -> str:
    block.arrays.setdefault(found[1], []).extend(found[2].split())
    return ""


def _plain(text: str, block: _Block) -> Iterator[Line]:
    text = _COMMENT.sub("", fill_in(text))
    words: list[str] = []
    skip = False
    for found in _TOKEN.finditer(f"{text}\n"):
        if found.lastgroup == "ends":
            yield from _line(words, block)
            words, skip = [], False
        elif found.lastgroup == "redirect":
            skip = True
        elif found.lastgroup == "word" and not skip:
            words.extend(_expanded(found[0], block))
        elif found.lastgroup == "word":
            skip = False


def _expanded(word: str, block: _Block) -> list[str]:
    array = re.fullmatch(r'"?\$\{(\w+)\[@\]\}"?', word)
    if array:
        return [each for one in block.arrays.get(array[1], []) for each in _expanded(one, block)]
    if "$(" in word or word.startswith("'"):
        return [word]
    return [_REFERENCE.sub(lambda each: block.known.get(each[1] or each[2], each[0]), word)]


def _line(words: list[str], block: _Block) -> Iterator[Line]:
    while words and words[0] in _SKIPPED:
        words = words[1:]
    assigned = []
    while words and (one := assignment(words[0])):
        assigned.append(one)
        words = words[1:]
    told = assigned if not words else []
    if words[:1] == ["export"]:
        told = [one for word in words[1:] if (one := assignment(word))]
    block.known.update((name, value) for name, value in told if value and not is_filled_in(value))
    if words and not words[0].startswith(("-", "*")):  # a pattern of `case`
        yield Line(tuple(words), tuple(assigned))


def options(words: tuple[str, ...], alone: frozenset[str]) -> Iterator[tuple[str, str | None]]:
    """Yield the flags of a command with their values, and other words as ("", word).

    `alone` are the flags that take no value; any other takes the next word that is no flag.
    """
    skip = False
    for word, following in pairwise((*words, "")):
        if skip:
            skip = False
        elif not word.startswith("-") or word == "-":
            yield "", plain(word)
        elif "=" in word and word.startswith("--"):
            name, _, value = word.partition("=")
            yield name, plain(value)
        elif word in alone or not following or following.startswith("-"):
            yield word, None
        else:
            yield word, plain(following)
            skip = True
