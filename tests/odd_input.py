"""Seeded odd input for parsers of text that comes from elsewhere.

A test gives a parser and samples of what it reads. `hold` feeds it mutated samples and fails where one ends
in anything but a result or an allowed error, or takes more than LIMIT_S of processor time.
"""

import contextlib
import copy
import json
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from random import Random
from typing import Any

import pytest

from medley.errors import Problem

LIMIT_S = 2.0
"""Processor time for one input of at most a mebibyte."""
_GIVE_UP_S = 10.0
MEBIBYTE = 1 << 20
COUNTS = (
    pytest.param(100, id="100"),
    pytest.param(10_000, id="10000", marks=pytest.mark.slow),
)
"""How many inputs a test tries, in the plain group and in the slow one: `parametrize("count", COUNTS)`."""
_DEEP = 100_000
ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1 << 63, 10**400, float("inf"), float("-inf"), float("nan"), 1e-320),
    *(
        "",
        " ",
        "\0",
        "\x1b]0;owned\x07",
        "\n",
        "\u202e",
        "\ud800",
        "²",
        "٣",
        "9" * 5000,
        "../../x",
        "/",
        "a" * 70_000,
    ),
    *([], {}, [[]], [None], {"": None}, [0] * 5000),
)
"""Values that no program of ours sends in such a place."""
_FRAGMENTS = (
    *(
        "\0",
        "\x1b[2J",
        "\r",
        "\r\n",
        "\n",
        "\t",
        "\x85",
        "\u2028",
        "\ufeff",
        "²",
        "٣",
        "NaN",
        "1e999",
        "-",
        "--",
    ),
    *(
        "9" * 5000,
        "0x",
        "%",
        "%s",
        "{",
        "}",
        "[",
        "]",
        "(",
        ")",
        '"',
        "'",
        "\\",
        "=",
        ":",
        ";",
        ",",
        "..",
        "/",
        "#",
    ),
)
_LONG = (
    *(
        " ",
        "a",
        "0",
        "9",
        ".",
        ":",
        "-",
        "_",
        "=",
        "/",
        "\\",
        "(",
        "[",
        "{",
        '"',
        "'",
        "\n",
        "\t",
        "a ",
        "a:",
        "a=",
        "-token ",
    ),
    *("0.", "1.1.", "ab:", "[{", '{"a":', '["', "a.b,", "# ", "a{b=", "\r\n", "é", "\0"),
)


def hold(
    parser: Callable[[Any], object],
    inputs: Iterator[Any],
    count: int,
    allowed: tuple[type[BaseException], ...] = (Problem,),
) -> None:
    """Feed `count` inputs to `parser`: each gives a result or an allowed error, in time."""
    for number, odd in enumerate(islice(inputs, count)):
        began = time.process_time()
        try:
            with _limit(), contextlib.suppress(*allowed):
                parser(odd)
        except Exception as error:
            raise AssertionError(f"input {number}, {_short(odd)}: {type(error).__name__}: {error}") from error
        took = time.process_time() - began
        assert took < LIMIT_S, f"input {number}, {_short(odd)}: {took:.1f} s"


def texts(samples: Sequence[str], seed: int = 1, longest: int = MEBIBYTE) -> Iterator[str]:
    """First so much of each fragment that slow patterns dislike, then mutated samples without end."""
    yield ""
    for fragment in _LONG:
        yield (fragment * (longest // len(fragment)))[:longest]
    random = Random(seed)
    while True:
        yield _mutated_text(random.choice(samples), random)[:longest]


def blobs(samples: Sequence[bytes], seed: int = 1) -> Iterator[bytes]:
    """The same as bytes, which need not be UTF-8."""
    for text in texts([sample.decode("latin-1") for sample in samples], seed):
        yield text.encode("latin-1", errors="replace")


def values(samples: Sequence[Any], seed: int = 1) -> Iterator[Any]:
    """JSON values: odd ones first, then samples in which one to three places hold something else."""
    yield from ODD_VALUES
    random = Random(seed)
    while True:
        value = copy.deepcopy(random.choice(samples))
        for _ in range(random.randint(1, 3)):
            value = _mutated_value(value, random)
        yield value


def json_texts(samples: Sequence[Any], seed: int = 1) -> Iterator[str]:
    """JSON of odd values, torn and mutated JSON, and JSON so deep that a recursive reader gives up."""
    for opening, closing in (("[", "]"), ('{"a":', "}")):
        yield opening * _DEEP + "0" + closing * _DEEP
        yield opening * _DEEP
    yield "9" * MEBIBYTE
    odd = values(samples, seed)
    torn = texts([json.dumps(sample) for sample in samples], seed)
    while True:
        yield json.dumps(next(odd))
        yield next(torn)


def _mutated_text(text: str, random: Random) -> str:
    for _ in range(random.randint(1, 4)):
        at = random.randint(0, len(text))
        end = min(len(text), at + random.randint(0, 40))
        match random.randrange(7):
            case 0:
                text = text[:at]
            case 1:
                text = text[:at] + random.choice(_FRAGMENTS) + text[end:]
            case 2:
                text = text[:at] + text[at:end] * random.randint(2, 2000) + text[end:]
            case 3:
                text = text[:at] + chr(random.randrange(256)) + text[at + 1 :]
            case 4:
                lines = text.split("\n")
                random.shuffle(lines)
                text = "\n".join(lines)
            case 5:
                text = text[:at] + text[end:]
            case _:
                text = text[:at] + random.choice(_LONG) * random.randint(1, 3000) + text[at:]
    return text


def _mutated_value(value: Any, random: Random) -> Any:
    """One place of it, chosen from the top down, is replaced, left out, doubled or renamed."""
    if not isinstance(value, dict | list) or not value or random.random() < 0.15:
        return copy.deepcopy(random.choice(ODD_VALUES))
    if isinstance(value, list):
        at = random.randrange(len(value))
        match random.randrange(4):
            case 0:
                del value[at]
            case 1:
                value.append(copy.deepcopy(value[at]))
            case _:
                value[at] = _mutated_value(value[at], random)
        return value
    key = random.choice(list(value))
    match random.randrange(5):
        case 0:
            del value[key]
        case 1:
            value[str(random.choice(("", "\0", key.upper(), "x" * 1000)))] = value.pop(key)
        case _:
            value[key] = _mutated_value(value[key], random)
    return value


@contextlib.contextmanager
def _limit() -> Iterator[None]:
    """Break off what hangs: a pattern of `re` looks for signals too."""

    def give_up(*_: object) -> None:
        raise AssertionError(f"more than {_GIVE_UP_S:.0f} s of processor time")

    before = signal.signal(signal.SIGVTALRM, give_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, _GIVE_UP_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _short(odd: Any) -> str:
    text = repr(odd)
    return text if len(text) < 300 else f"{text[:140]} … {text[-100:]} ({len(text)} characters)"
