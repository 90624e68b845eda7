"""`medley models import`."""

import sys
from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from typing import Any

from medley import config, storage, user
from medley.cli import Verb, flag, switch
from medley.cli.output import fit, print_result, save_text, say
from medley.errors import Problem, in_words
from medley.explain.diagnosis import STANDARD_INPUT
from medley.schema import TITLES
from medley.serving.community_recipe import Entry
from medley.serving.community_recipe.document import MOST_BYTES
from medley.serving.community_recipe.model_table import is_found, model_table
from medley.serving.community_recipe.recipe import Imported, imported
from medley.serving.community_recipe.variables import NOT_BY_RAY


class ModelsImportVerb(Verb):
    USAGE = "    {progname} [OPTIONS] FILE|URL|-\n"
    DASH = STANDARD_INPUT
    table: str | None = switch("--output FILE", "model table to write the flags and variables to")
    as_json: bool = flag("--json", "one JSON object: the command, and each key")

    def main(self, recipe: str) -> None:
        found = imported(_raw(recipe), recipe)
        shown = found if self.table is None else _written(found, Path(self.table), recipe)
        print_result(_table(shown, found), map(fit, _lines(shown, found)), as_json=self.as_json)


_LIMIT_S = 20.0
_TITLES = {"refused": "left out", "unused": "left out, as by sparkrun", "decided": "decided by medley"}


def _raw(recipe: str) -> bytes:
    """The recipe's text, and one byte more than it may have where it is too long."""
    if recipe == STANDARD_INPUT:
        return sys.stdin.buffer.read(MOST_BYTES + 1)
    if recipe.startswith(("http://", "https://")):
        return _fetched(recipe)
    try:
        with Path(recipe).open("rb") as file:
            return file.read(MOST_BYTES + 1)
    except OSError as error:
        fix = "name a file, an address or - : medley models import RECIPE.yaml"
        raise Problem(f"{recipe} cannot be read", cause=in_words(error), fix=fix) from error


def _fetched(url: str) -> bytes:
    from httpx import HTTPError

    from medley.network import http_client

    found = bytearray()
    try:
        with http_client.download(url, limit_s=_LIMIT_S) as answer:
            status = answer.status_code
            for chunk in answer.iter_bytes():
                found += chunk
                if len(found) > MOST_BYTES:
                    break
    except HTTPError as error:
        raise _unfetched(url, in_words(error)) from error
    if not answer.is_success:
        raise _unfetched(url, f"it answered {status}")
    if found.lstrip()[:1] == b"<":
        raise _unfetched(url, "it is a page of the web, not the file itself")
    return bytes(found)


def _unfetched(url: str, cause: str) -> Problem:
    fix = "open the address in a browser, save the file itself (Raw), then: medley models import FILE"
    return Problem(f"no recipe comes from {url}", cause=cause, fix=fix)


def _written(found: Imported, path: Path, source: str) -> Imported:
    """What the table that this writes leaves to the command."""
    path = user.expand(path)
    if path.suffix != ".toml" or path.exists():
        if path.suffix != ".toml":
            cause, other = "a model's table is a file NAME.toml", path.with_name(f"{path.name}.toml")
        else:
            cause, other = f"{path} is there already", path.with_name(f"{path.stem}-2.toml")
        raise Problem(f"no table is written to {path}", cause=cause, fix=f"--output {quote(str(other))}")
    made = model_table(found, path.stem, source)
    if path.parent == config.folders()[0] / "models":
        storage.make(path.parent)
    save_text(str(path), made.text, "--output NAME.toml")
    if not is_found(path):
        say(f"medley finds {path.name} once it is in {config.folders()[0] / 'models'}")
    return made.rest


def _table(shown: Imported, found: Imported) -> dict[str, Any]:
    command = shown.command
    return {
        "model": found.model,
        "engine": found.engine,
        "command": str(command),
        "argv": command.argv,
        "env": command.env,
        "plan": str(shown.plan),
        "whole": not found.left_out,
        "image": found.image or None,
        "fork": [each.key for each in found.of_fork],
        "keys": [_entry(each) for each in found.entries],
    }


def _entry(entry: Entry) -> dict[str, Any]:
    becomes = list(entry.becomes)
    return {"key": entry.key, "outcome": entry.outcome, "becomes": becomes, "why": entry.why}


def _lines(shown: Imported, found: Imported) -> Iterator[str]:
    yield str(shown.command)
    image = f"the image {found.image}" if found.image else "its author's image"
    fork = f"needs a fork or another release of {TITLES[found.engine]}, as in {image}"
    sections = {fork: found.of_fork, "changed": [each for each in found.entries if each.changed]}
    for outcome, title in _TITLES.items():
        sections[title] = [each for each in found.entries if each.outcome == outcome and not each.fork]
    for title, entries in sections.items():
        if entries:
            yield f"\n{title}:"
        yield from (f"  {each.key}: {each.why}" for each in entries)
    here = [each for each in found.entries if each.outcome == "carried" and each.why.endswith(NOT_BY_RAY)]
    if here:
        yield "\non this host only:"
    yield from (f"  {each.key}: {NOT_BY_RAY}" for each in here)
    yield f"\nlook first: {shown.plan}"
