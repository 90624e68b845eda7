"""`medley models add`."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from shlex import quote
from typing import Any

from medley import config, storage
from medley.cli import Verb, flag, switch
from medley.cli.output import print_result, save_text
from medley.cli.progress import start_progress
from medley.errors import Problem
from medley.model import hub, hub_checkpoint, resolve, table
from medley.model.hub_checkpoint import HubRecord
from medley.model.shape import find_architecture
from medley.model.table import Proposal
from medley.schema import Model

_GB, _BILLION = 1e9, 1e9


class ModelsAddVerb(Verb):
    USAGE = "    {progname} [OPTIONS] ORG/NAME\n"
    name: str | None = switch("--name NAME", "name of the table [default: the repository's]")
    destination: str | None = switch(
        "--output FILE", "file to write [default: models/NAME.toml in ~/.config/medley]", excludes=["--name"]
    )
    replace: bool = flag("--replace", "overwrite a table that differs")
    dry_run: bool = flag("--dry-run", "print the table; write nothing")
    as_json: bool = flag("--json", "one JSON object: name, path, written, proposed, text")

    def main(self, repository: str) -> None:
        resolve.require_repository(repository)
        if self.name and not re.fullmatch(r"\w[\w.-]*", self.name):
            cause = "a name is letters, digits, '.', '_' and '-', and begins with a letter or digit"
            fix = f"medley models add {repository} --name {table.find_table_name(repository)}"
            raise Problem(f"{self.name!r} is not a name for a model", cause=cause, fix=fix)
        name = self.name or table.find_table_name(repository)
        path = Path(self.destination) if self.destination else _own(name)
        name, known = path.stem, config.models()
        there = next((each for each, model in known.items() if model.repository == repository), None)
        if there and not (self.destination or self.name or self.replace or self.dry_run or path.is_file()):
            already = f"{there} is this model already: medley plan {there}"
            file = config.files("models")[there]
            text = file.read_text(encoding="utf-8")
            found = {"name": there, "path": str(file), "written": False, "repository": repository}
            found |= {"commit": None, "text": text, "like": [], "proposed": {}, "left_out": {}}
            print_result(found, [already], as_json=self.as_json)
            return
        self._require_free(name, repository, known)
        look = _look(repository, name)
        others = {each: model for each, model in known.items() if model.repository != repository}
        proposed = table.propose_values(name, find_architecture(look.config), others)
        text = table.write_table(look, proposed)
        model = table.parse_model(text, str(path))
        written = not self.dry_run and self._write(path, text, model)
        result = {"name": name, "path": str(path), "written": written, "repository": repository}
        result |= {"commit": look.commit, "text": text, "like": proposed.similar, "proposed": proposed.values}
        result |= {"left_out": proposed.left_out}
        lines = [text.rstrip("\n")] if self.dry_run else _lines(path, model, proposed, written=written)
        print_result(result, lines, as_json=self.as_json)

    def _require_free(self, name: str, repository: str, known: Mapping[str, Model]) -> None:
        """A Problem where the name is that of another repository's table."""
        if name not in known or (other := known[name]).repository == repository or self.destination:
            return
        mine = repository.replace("/", "-").lower()
        raise Problem(
            f"there is a model {name} already",
            cause=f"its table is of {other.repository or 'a model that medley makes'}, not of {repository}",
            fix=f"medley models add {repository} --name {mine}",
        )

    def _write(self, path: Path, text: str, model: Model) -> bool:
        """Whether it was written; False where the same table is there."""
        if path.is_file() and not self.replace:
            there = config.read(path, Model)
            if there == model:
                return False
            raise Problem(
                f"{path} is there, and differs",
                cause=f"in {', '.join(_differences(there, model))}: edited, or of another commit",
                fix=f"medley models add {model.repository} --dry-run  # shows the new one\n"
                f"medley models add {model.repository} --output {quote(str(path))} --replace",
            )
        if not self.destination:
            storage.make(path.parent)
        save_text(str(path), text, f"--output {path.stem}.toml")
        return True


def _look(repository: str, name: str) -> HubRecord:
    seen = start_progress()
    try:
        with seen.stage(f"ask the hub what {repository} is made of"):
            return hub_checkpoint.fetch_record(repository, seen)
    except hub.Unreachable as problem:
        network = f"unset {variable}" if (variable := hub.find_offline_variable()) else "check the network"
        elsewhere = f"medley models add {repository} --output {name}.toml"
        problem.fix = f"{network}, or on a host that has one: {elsewhere}\nthen copy it: {_own(name)}"
        raise


def _own(name: str) -> Path:
    return config.folders()[0] / "models" / f"{name}.toml"


def _differences(one: Model, other: Model) -> Iterator[str]:
    was, now = one.model_dump(), other.model_dump()
    for key in was:
        if key == "shape" and was[key] and now[key]:
            yield from (f"shape.{each}" for each in now[key] if was[key][each] != now[key][each])
        elif was[key] != now[key]:
            yield key


def _lines(path: Path, model: Model, proposed: Proposal, *, written: bool) -> Iterator[str]:
    shape = model.shape
    yield f"{path}: {'written' if written else 'there already, and the same'}"
    if shape:
        active = f", {shape.active_parameters / _BILLION:.1f}B active" if shape.experts else ""
        yield (
            f"{model.title}: {shape.weights_bytes / _GB:.1f} GB in {shape.weights}, "
            f"{shape.parameters / _BILLION:.1f}B parameters{active}, context {shape.context} tokens"
        )
    yield from _proposed(model, proposed)
    name = path.stem if config.files("models").get(path.stem) == path else str(model.repository)
    yield f"medley plan {name}"


def _proposed(model: Model, proposed: Proposal) -> Iterator[str]:
    if not proposed.similar:
        yield f"no known table has the architecture {model.architecture}: no parser and no flag is proposed"
    for key, value in proposed.values.items():
        yield f"proposed, not tried: {key} = {_shown(value)}, as {', '.join(proposed.similar)}"
    for key, why in proposed.left_out.items():
        yield f"left out, because known tables differ in {key}: {why}"


def _shown(value: Any) -> str:  # noqa: ANN401 - whatever a table says
    return str(value) if not isinstance(value, dict) else ", ".join(f"{k}: {v}" for k, v in value.items())
