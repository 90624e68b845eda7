"""What medley advises can be typed: each `medley VERB --switch` that it prints is a verb's own."""

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from medley.cli import VERBS, LazyVerb
from medley.explain import patterns

SOURCE = Path(__file__).parents[2] / "pysrc" / "medley"
# Up to where prose goes on, or another command begins; behind -- stand the engine's own flags.
ADVISED = re.compile(r"\bmedley (?P<verb>[a-z][a-z-]*)(?P<words>(?:(?! -- |, | or | and |: )[^;|\n`()])*)")
SWITCH = re.compile(r"(?<![\w-])-{1,2}([a-z][a-z-]*)")


def texts(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            parts = (str(each.value) if isinstance(each, ast.Constant) else "X" for each in node.values)
            yield "".join(parts)


def switches(verb: Any) -> Iterator[str]:
    """Of the verb, and of what stands below it."""
    for name in dir(verb):
        value = getattr(verb, name, None)
        yield from getattr(getattr(value, "_switch_info", None), "names", ())
        if isinstance(value, LazyVerb):
            yield from switches(value.load())


@cache
def advice() -> dict[str, set[str]]:
    """By verb, the switches that are named with it."""
    found: dict[str, set[str]] = {verb: set() for verb in VERBS}
    source = (text for file in SOURCE.rglob("*.py") for text in texts(file))
    known = patterns.load(user=False)
    fixes = [each.fix for each in (*known.failures, *known.phases)]
    fixes += [each.instead or "" for each in known.components]
    helps = tomllib.loads((SOURCE / "cli" / "help.toml").read_text(encoding="utf-8")).values()
    for text in chain(source, fixes, helps):
        for match in ADVISED.finditer(text):
            found.setdefault(match["verb"], set()).update(SWITCH.findall(match["words"]))
    return found


def test_there_is_advice_to_look_at() -> None:
    assert {"tp", "pp", "port"} <= advice()["serve"]
    assert {"fix", "from"} <= advice()["doctor"]


# The words behind a script of `run` are the script's.
@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "run" and " " not in verb])
def test_its_switches_are_those_of_the_verb(verb: str) -> None:
    assert advice()[verb] <= set(switches(LazyVerb(verb).load()))
