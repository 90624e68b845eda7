"""The logs that explain reads: files by name, standard input, or those that medley kept last on this host."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from medley import store
from medley.explain.blocks import BLOCK_BYTES
from medley.explain.log import Log
from medley.problem import Problem, in_words

STANDARD_INPUT = "/dev/stdin"
_TOGETHER_S = 120


def named(names: Sequence[str]) -> list[Log]:
    """Each of these; - is standard input."""
    return [_standard_input() if name == STANDARD_INPUT else _file(Path(name)) for name in names]


def newest() -> list[Log]:
    """The log written last, and those of the same time: of one start there may be several units."""
    folder = store.state() / "logs"
    written = sorted(((file.stat().st_mtime, file) for file in folder.glob("*.log")), reverse=True)
    if not written:
        raise Problem(
            "medley has kept no log on this host",
            cause=f"{folder} has none; serve, run and the units of medley up write there",
            fix="name one: medley explain FILE, or pipe it in: docker logs NAME 2>&1 | medley explain -",
        )
    last = written[0][0]
    return [_file(file) for at, file in sorted(written) if last - at <= _TOGETHER_S]


def _standard_input() -> Log:
    return Log("standard input", _blocks(sys.stdin.buffer))


def _file(path: Path) -> Log:
    try:
        return Log(str(path), _blocks(path.open("rb")))
    except OSError as error:
        raise Problem(
            f"{path} cannot be read",
            cause=in_words(error),
            fix="name a file that is there: medley explain FILE",
        ) from error


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    with file:
        while block := file.read(BLOCK_BYTES):
            yield block
