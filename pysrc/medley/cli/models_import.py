"""`medley models import`."""

import sys
from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from typing import Any

from medley import config, storage, user
from medley.cli import Verb, flag, switch
from medley.cli.output import fit, print_message, print_result, save_text
from medley.command import quote_path
from medley.errors import Problem, describe_error
from medley.explain.diagnosis import STANDARD_INPUT
from medley.schema import TITLES
from medley.serving.community_recipe.document import MAX_RECIPE_BYTES
from medley.serving.community_recipe.entries import RecipeEntry
from medley.serving.community_recipe.model_table import build_model_table, is_in_tables_folder
from medley.serving.community_recipe.recipe import ImportedRecipe, import_recipe
from medley.serving.community_recipe.variables import NOT_SENT_BY_RAY


class ModelsImportVerb(Verb):
    USAGE = "    {progname} [OPTIONS] FILE|URL|-\n"
    DASH = STANDARD_INPUT
    table: str | None = switch("--output FILE", "model table to write the flags and variables to")
    as_json: bool = flag("--json", "one JSON object: the command, and each key")

    def main(self, source: str) -> None:
        recipe_import = import_recipe(_read_recipe(source), source)
        shown = recipe_import if self.table is None else _write_table(recipe_import, Path(self.table), source)
        print_result(
            _build_table(shown, recipe_import),
            map(fit, _list_lines(shown, recipe_import)),
            as_json=self.as_json,
        )


_FETCH_LIMIT_S = 20.0
_OUTCOME_TITLES = {
    "refused": "left out",
    "unused": "left out, as by sparkrun",
    "decided": "decided by medley",
}


def _read_recipe(source: str) -> bytes:
    """Return the recipe's bytes; if it is too long, one byte more than the limit."""
    if source == STANDARD_INPUT:
        return sys.stdin.buffer.read(MAX_RECIPE_BYTES + 1)
    if source.startswith(("http://", "https://")):
        return _fetch_recipe(source)
    try:
        with Path(source).open("rb") as file:
            return file.read(MAX_RECIPE_BYTES + 1)
    except OSError as error:
        fix = "name a file, an address or - : medley models import RECIPE.yaml"
        raise Problem(f"{source} cannot be read", cause=describe_error(error), fix=fix) from error


def _fetch_recipe(url: str) -> bytes:
    from httpx import HTTPError

    from medley.network import http_client

    content = bytearray()
    try:
        with http_client.stream_download(url, limit_s=_FETCH_LIMIT_S) as answer:
            status = answer.status_code
            for chunk in answer.iter_bytes():
                content += chunk
                if len(content) > MAX_RECIPE_BYTES:
                    break
    except HTTPError as error:
        raise _fetch_problem(url, describe_error(error)) from error
    if not answer.is_success:
        raise _fetch_problem(url, f"it answered {status}")
    if content.lstrip()[:1] == b"<":
        raise _fetch_problem(url, "it is a page of the web, not the file itself")
    return bytes(content)


def _fetch_problem(url: str, cause: str) -> Problem:
    fix = "open the address in a browser, save the file itself (Raw), then: medley models import FILE"
    return Problem(f"no recipe comes from {url}", cause=cause, fix=fix)


def _write_table(recipe_import: ImportedRecipe, path: Path, source: str) -> ImportedRecipe:
    """Write the table; return the import without the parts that the table has."""
    path = user.expand_home(path)
    if path.suffix != ".toml" or path.exists():
        if path.suffix != ".toml":
            cause, other = "a model's table is a file NAME.toml", path.with_name(f"{path.name}.toml")
        else:
            cause, other = f"{path} is there already", path.with_name(f"{path.stem}-2.toml")
        raise Problem(f"no table is written to {path}", cause=cause, fix=f"--output {quote_path(other)}")
    model_table_file = build_model_table(recipe_import, path.stem, source)
    if path.parent == config.list_config_folders()[0] / "models":
        storage.make_folder(path.parent)
    save_text(str(path), model_table_file.text, "--output NAME.toml")
    if not is_in_tables_folder(path):
        print_message(f"medley finds {path.name} once it is in {config.list_config_folders()[0] / 'models'}")
    return model_table_file.remaining_recipe


def _build_table(shown: ImportedRecipe, recipe_import: ImportedRecipe) -> dict[str, Any]:
    command = shown.command
    return {
        "model": recipe_import.model,
        "engine": recipe_import.engine,
        "command": str(command),
        "argv": command.argv,
        "env": command.env,
        "plan": str(shown.plan_command),
        "whole": not recipe_import.refused_entries,
        "image": recipe_import.image or None,
        "fork": [entry.key for entry in recipe_import.fork_entries],
        "keys": [_build_entry_table(entry) for entry in recipe_import.entries],
    }


def _build_entry_table(entry: RecipeEntry) -> dict[str, Any]:
    becomes = list(entry.words)
    return {"key": entry.key, "outcome": entry.outcome, "becomes": becomes, "why": entry.why}


def _list_lines(shown: ImportedRecipe, recipe_import: ImportedRecipe) -> Iterator[str]:
    yield str(shown.command)
    image = quote(" ".join(recipe_import.image.split()))
    image_text = f"the image {image}" if recipe_import.image else "its author's image"
    fork = f"needs a fork or another release of {TITLES[recipe_import.engine]}, as in {image_text}"
    sections = {
        fork: recipe_import.fork_entries,
        "changed": [entry for entry in recipe_import.entries if entry.is_changed],
    }
    for outcome, title in _OUTCOME_TITLES.items():
        sections[title] = [
            entry for entry in recipe_import.entries if entry.outcome == outcome and not entry.needs_fork
        ]
    for title, entries in sections.items():
        if entries:
            yield f"\n{title}:"
        yield from (f"  {entry.key}: {entry.why}" for entry in entries)
    ray_entries = [
        entry
        for entry in recipe_import.entries
        if entry.outcome == "carried" and entry.why.endswith(NOT_SENT_BY_RAY)
    ]
    if ray_entries:
        yield "\non this host only:"
    yield from (f"  {entry.key}: {NOT_SENT_BY_RAY}" for entry in ray_entries)
    yield f"\nlook first: {shown.plan_command}"
