"""Write a recipe's flags and variables as a model's table, models/NAME.toml."""

import json
import tomllib
from pathlib import Path

from medley import config
from medley.schema import Model
from medley.serving.community_recipe.entries import RecipeEntry
from medley.serving.community_recipe.recipe import ImportedRecipe
from medley.values import Value


class ModelTable(Value):
    """The text of a model's table, and the rest of its recipe."""

    text: str
    remaining_recipe: ImportedRecipe
    """The recipe with only the entries that a table cannot hold: options, and flags with several values."""


def build_model_table(recipe: ImportedRecipe, name: str, source: str) -> ModelTable:
    """Build the table of `name` with the recipe's flags and variables, and validate it."""
    table_entries = [entry for entry in recipe.entries if _is_table_entry(entry)]
    flags = [word for entry in table_entries if entry.word_kind == "flag" for word in entry.words]
    variables = [entry.words[0].partition("=") for entry in table_entries if entry.word_kind == "variable"]
    lines = [
        f"# From {json.dumps(source)}, a community recipe, by medley models import",
        f"title = {_quote_toml_string(f'{recipe.model}, as {name}')}",
        f"repository = {_quote_toml_string(recipe.model)}",
    ]
    if flags:
        lines.append(f"args.{recipe.engine} = [{', '.join(map(_quote_toml_string, flags))}]")
    lines += [f"env.{recipe.engine}.{name} = {_quote_toml_string(value)}" for name, _, value in variables]
    text = "\n".join(lines) + "\n"
    config.build_table(tomllib.loads(text), Model, f"{name}.toml")
    rest = tuple(entry for entry in recipe.entries if not _is_table_entry(entry))
    return ModelTable(text, recipe.replace(model=name, entries=rest))


def is_in_tables_folder(path: Path) -> bool:
    return any(
        path.resolve().parent == (folder / "models").resolve() for folder in config.list_config_folders()
    )


def _is_table_entry(entry: RecipeEntry) -> bool:
    """Return whether a table can hold it: a variable, or a flag with at most one value without a dash."""
    if entry.word_kind == "flag":
        return len(entry.words) <= 2 and not any(word.startswith("-") for word in entry.words[1:])  # noqa: PLR2004 - a name and a value
    return entry.word_kind == "variable"


def _quote_toml_string(text: str) -> str:
    """Quote a string for TOML, whose escapes are JSON's except for DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", r"\u007f")
