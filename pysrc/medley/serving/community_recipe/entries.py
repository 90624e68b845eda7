"""Define the outcome of each key of a recipe, with its reason: carried over, decided by medley, or refused.

A recipe is untrusted text: nothing of it is run. The format is that of sparkrun 0.4.2 (core/recipe.py in its
wheel on PyPI).
"""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from medley.schema import REPOSITORY
from medley.values import Value

Outcome = Literal["carried", "decided", "unused", "refused"]
"""Unused: sparkrun itself ignores it. Refused: the server differs without it."""

RULES: Mapping[str, Any] = tomllib.loads(Path(__file__).with_name("rules.toml").read_text(encoding="utf-8"))


class RecipeEntry(Value):
    """The outcome of one key of a recipe, or of one flag of its command.

    Its key and reason quote the recipe's author, so each becomes one line.
    """

    key: str
    """A key such as `max_nodes`, `env.NCCL_DEBUG` or `command --port`."""
    outcome: Outcome
    why: str
    words: tuple[str, ...] = ()
    """The words that replace it in medley's command."""
    word_kind: Literal["option", "flag", "variable"] | None = None
    """The kind of these words: an option before --, a flag after it, or a variable before the command."""
    is_changed: bool = False
    """Whether its words differ from the recipe's, or override medley's default."""
    needs_fork: bool = False
    """Whether only the recipe's image has it, and not the engine's release."""

    def __post_init__(self) -> None:
        for name in ("key", "why"):
            msgspec.structs.force_setattr(self, name, " ".join(getattr(self, name).split()))


def build_option_entry(key: str, *words: str, why: str = "the same", is_changed: bool = False) -> RecipeEntry:
    return RecipeEntry(key, "carried", why, words, "option", is_changed)


def build_flag_entry(
    key: str, *words: str, why: str = "the engine's own flag", is_changed: bool = False
) -> RecipeEntry:
    return RecipeEntry(key, "carried", why, words, "flag", is_changed)


def is_repository(model: str) -> bool:
    """Return whether it is a hub repository that may have safetensors: no folder, no GGUF, no $NAME."""
    is_gguf = model.lower().endswith("gguf")
    return re.fullmatch(REPOSITORY, model) is not None and model[0].isalnum() and not is_gguf


def read_reasons(table_name: Literal["keys", "flags", "variables"], outcome: Outcome) -> dict[str, str]:
    """Return the names of rules.toml with this outcome, and why each has it."""
    return {name: rule["why"] for rule in RULES[table_name][outcome] for name in rule["names"]}
