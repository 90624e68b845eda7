"""Fields are the entries of a config.json, asked for by every name that models give them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from medley.problem import Problem

# More than any real one, and small enough that products of a few stay sensible.
_LARGEST = 2**40


@dataclass(frozen=True)
class Fields:
    """The entries that shape the language model, and where they come from."""

    table: Mapping[str, Any]
    where: str

    def whole(self, *names: str, least: int = 1) -> int:
        """The first of `names` that is given; a Problem if none is."""
        found = self.optional(*names, least=least)
        if found is None:
            raise self.problem(names[0], "it is missing" + _also(names[1:]))
        return found

    def optional(self, *names: str, least: int = 1) -> int | None:
        for name in names:
            value = self.table.get(name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value < _LARGEST:
                raise self.problem(name, f"it is {_shown(value)}, and not a whole number from {least} on")
            return value
        return None

    def flag(self, name: str) -> bool | None:
        value = self.table.get(name)
        if value is not None and not isinstance(value, bool):
            raise self.problem(name, f"it is {_shown(value)}, and neither true nor false")
        return value

    def word(self, name: str) -> str | None:
        value = self.table.get(name)
        if value is not None and not isinstance(value, str):
            raise self.problem(name, f"it is {_shown(value)}, and no word")
        return value

    def words(self, *names: str) -> tuple[str, ...] | None:
        for name in names:
            value = self.table.get(name)
            if value is None:
                continue
            if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
                raise self.problem(name, f"it is {_shown(value)}, and no list of words")
            return tuple(value)
        return None

    def inner(self, name: str) -> "Fields | None":
        """The fields of a table within."""
        value = self.table.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.problem(name, f"it is {_shown(value)}, and no table")
        return Fields(value, f"{self.where}: {name}")

    def problem(self, name: str, cause: str) -> Problem:
        return Problem(
            f"{self.where}: '{name}' does not say what the model is",
            cause=cause,
            fix="write the model's [shape] down yourself: docs/tables.md, models/NAME.toml",
        )


def of_text(config: Mapping[str, Any], where: str) -> Fields:
    """Those of the language model: a model that also sees or hears keeps them one table deeper."""
    top = Fields(config, where)
    for name in ("text_config", "llm_config", "language_config"):
        inner = top.inner(name)
        if inner is not None:
            # What stands at the top holds for the part too, unless the part says otherwise.
            return Fields({**config, **inner.table}, inner.where)
    thinker = top.inner("thinker_config")
    return of_text(thinker.table, thinker.where) if thinker else top


def _also(others: tuple[str, ...]) -> str:
    return f", and so are {', '.join(others)}" if others else ""


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "…"  # noqa: PLR2004 - a line's worth
