"""The flags of an engine are those that its own parser knows; any other is found before anything starts."""

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

# "  --tensor-parallel-size TENSOR_PARALLEL_SIZE, -tp TENSOR_PARALLEL_SIZE"; an explanation is set in deeper
_LINE = re.compile(r"^  (-.*)$")
_NAME = re.compile(r"(?:^|, )(--?[A-Za-z][\w-]*)")
_NUMBER = re.compile(r"^-[\d.]")
_OPTIMIZATION = re.compile(r"^-O(?:=?\w+)?$")
# Names that guides still give, and what became of them.
_GONE = {
    "--swap-space": "vLLM keeps no swap space any more: leave it out",
    "--num-scheduler-steps": "vLLM schedules each step by itself now: leave it out",
    "--use-v2-block-manager": "there is one block manager now: leave it out",
}


@dataclass(frozen=True)
class Unknown:
    word: str
    """As it was typed."""
    near: str | None
    """The nearest name that there is."""
    among: tuple[str, ...] = ()
    """Where it is the beginning of several names: those."""

    @property
    def advice(self) -> str:
        if self.among:
            return f"write it out: {' or '.join(self.among[:4])}"
        gone = _GONE.get(_name(self.word))
        return gone or (f"{self.near} is the nearest there is" if self.near else "leave it out")


def known(text: str) -> tuple[str, ...]:
    """All names of flags in the whole help of a program that argparse printed."""
    lines = (match[1] for line in text.splitlines() if (match := _LINE.match(line)))
    return tuple(dict.fromkeys(name for line in lines for name in _NAME.findall(line)))


def unknown(words: Iterable[str], names: Sequence[str]) -> Iterator[Unknown]:
    """What an engine would refuse: as argparse, it takes the beginning of a name if no other begins so."""
    for word in words:
        if not word.startswith("-") or _NUMBER.match(word) or _OPTIMIZATION.match(word):
            continue
        name = _name(word)
        beginning = [each for each in names if each.startswith(name)] if name.startswith("--") else []
        if name in names or len(beginning) == 1:
            continue
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
        yield Unknown(word, near[0] if near else None, tuple(beginning))


def _name(word: str) -> str:
    """Without a value and a key, and with dashes: --Compilation_config.mode=2 is --Compilation-config."""
    name = re.split(r"[=.]", word, maxsplit=1)[0].rstrip("+")
    return name if not name.startswith("--") else f"--{name[2:].replace('_', '-')}"
