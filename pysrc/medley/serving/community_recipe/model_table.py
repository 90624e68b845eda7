"""Write a recipe's flags and variables as a model's table, models/NAME.toml."""

import json
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path

from medley import config
from medley.schema import Model
from medley.serving.community_recipe import Entry
from medley.serving.community_recipe.recipe import ImportedRecipe


@dataclass(frozen=True)
class ModelTable:
    text: str
    rest: ImportedRecipe
    """Entries that a table cannot hold: options, and flags with several values."""


def build_model_table(recipe: ImportedRecipe, name: str, source: str) -> ModelTable:
    """Build the table of `name` with the recipe's flags and variables, and validate it."""
    table_entries = [each for each in recipe.entries if _is_table_entry(each)]
    flags = [word for each in table_entries if each.part == "flag" for word in each.becomes]
    variables = [each.becomes[0].partition("=") for each in table_entries if each.part == "variable"]
    lines = [
        f"# From {json.dumps(source)}, a community recipe, by medley models import",
        f"title = {_quote_string(f'{recipe.model}, as {name}')}",
        f"repository = {_quote_string(recipe.model)}",
    ]
    if flags:
        lines.append(f"args.{recipe.engine} = [{', '.join(map(_quote_string, flags))}]")
    lines += [f"env.{recipe.engine}.{each} = {_quote_string(value)}" for each, _, value in variables]
    text = "\n".join(lines) + "\n"
    config.build(tomllib.loads(text), Model, f"{name}.toml")
    rest = tuple(each for each in recipe.entries if not _is_table_entry(each))
    return ModelTable(text, replace(recipe, model=name, entries=rest))


def is_in_tables_folder(path: Path) -> bool:
    return any(path.resolve().parent == (folder / "models").resolve() for folder in config.folders())


def _is_table_entry(entry: Entry) -> bool:
    """Return whether a table can hold it: a variable, or a flag with at most one value without a dash."""
    if entry.part == "flag":
        return len(entry.becomes) <= 2 and not any(each.startswith("-") for each in entry.becomes[1:])  # noqa: PLR2004 - a name and a value
    return entry.part == "variable"


def _quote_string(text: str) -> str:
    """Quote a string for TOML, whose escapes are JSON's except for DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", r"\u007f")
