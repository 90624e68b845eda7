"""`medley models add`."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from medley import config, storage
from medley.cli import Verb, flag, switch
from medley.cli.output import print_result, save_text
from medley.cli.progress import start_progress
from medley.command import quote_path
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
        path = Path(self.destination) if self.destination else _find_own_path(name)
        name, known_models = path.stem, config.load_models()
        existing_name = next(
            (each for each, model in known_models.items() if model.repository == repository), None
        )
        if existing_name and not (
            self.destination or self.name or self.replace or self.dry_run or path.is_file()
        ):
            line = f"{existing_name} is this model already: medley plan {existing_name}"
            file = config.find_table_files("models")[existing_name]
            text = file.read_text(encoding="utf-8")
            existing = {"name": existing_name, "path": str(file), "written": False, "repository": repository}
            existing |= {"commit": None, "text": text, "like": [], "proposed": {}, "left_out": {}}
            print_result(existing, [line], as_json=self.as_json)
            return
        self._require_free_name(name, repository, known_models)
        record = _fetch_record(repository, name)
        other_models = {each: model for each, model in known_models.items() if model.repository != repository}
        proposal = table.propose_values(name, find_architecture(record.config), other_models)
        text = table.write_table(record, proposal)
        model = table.parse_model(text, str(path))
        is_written = not self.dry_run and self._write(path, text, model)
        result = {"name": name, "path": str(path), "written": is_written, "repository": repository}
        result |= {
            "commit": record.commit,
            "text": text,
            "like": proposal.similar,
            "proposed": proposal.values,
        }
        result |= {"left_out": proposal.left_out}
        lines = (
            [text.rstrip("\n")] if self.dry_run else _list_lines(path, model, proposal, is_written=is_written)
        )
        print_result(result, lines, as_json=self.as_json)

    def _require_free_name(self, name: str, repository: str, known_models: Mapping[str, Model]) -> None:
        """Raise a Problem if the name is that of another repository's table."""
        if (
            name not in known_models
            or (other := known_models[name]).repository == repository
            or self.destination
        ):
            return
        own_name = repository.replace("/", "-").lower()
        raise Problem(
            f"there is a model {name} already",
            cause=f"its table is of {other.repository or 'a model that medley makes'}, not of {repository}",
            fix=f"medley models add {repository} --name {own_name}",
        )

    def _write(self, path: Path, text: str, model: Model) -> bool:
        """Write the table; return False if the file has the same one already."""
        if path.is_file() and not self.replace:
            existing_model = config.read_table(path, Model)
            if existing_model == model:
                return False
            differences = _list_differences(existing_model, model)
            raise Problem(
                f"{path} is there, and differs",
                cause=f"in {', '.join(differences)}: edited, or of another commit",
                fix=f"medley models add {model.repository} --dry-run  # shows the new one\n"
                f"medley models add {model.repository} --output {quote_path(path)} --replace",
            )
        if not self.destination:
            storage.make_folder(path.parent)
        save_text(str(path), text, f"--output {path.stem}.toml")
        return True


def _fetch_record(repository: str, name: str) -> HubRecord:
    progress = start_progress()
    try:
        with progress.stage(f"ask the hub what {repository} is made of"):
            return hub_checkpoint.fetch_record(repository, progress)
    except hub.HubUnreachable as problem:
        network = f"unset {variable}" if (variable := hub.find_offline_variable()) else "check the network"
        other_command = f"medley models add {repository} --output {name}.toml"
        problem.fix = (
            f"{network}, or on a host that has one: {other_command}\nthen copy it: {_find_own_path(name)}"
        )
        raise


def _find_own_path(name: str) -> Path:
    return config.list_config_folders()[0] / "models" / f"{name}.toml"


def _list_differences(old: Model, new: Model) -> Iterator[str]:
    old_values, new_values = old.to_table(), new.to_table()
    for key in old_values:
        if key == "shape" and old_values[key] and new_values[key]:
            yield from (
                f"shape.{field_name}"
                for field_name in new_values[key]
                if old_values[key][field_name] != new_values[key][field_name]
            )
        elif old_values[key] != new_values[key]:
            yield key


def _list_lines(path: Path, model: Model, proposal: Proposal, *, is_written: bool) -> Iterator[str]:
    shape = model.shape
    yield f"{path}: {'written' if is_written else 'there already, and the same'}"
    if shape:
        active = f", {shape.active_parameters / _BILLION:.1f}B active" if shape.experts else ""
        yield (
            f"{model.title}: {shape.weights_bytes / _GB:.1f} GB in {shape.weights}, "
            f"{shape.parameters / _BILLION:.1f}B parameters{active}, context {shape.context} tokens"
        )
    yield from _list_proposed_lines(model, proposal)
    name = path.stem if config.find_table_files("models").get(path.stem) == path else str(model.repository)
    yield f"medley plan {name}"


def _list_proposed_lines(model: Model, proposal: Proposal) -> Iterator[str]:
    if not proposal.similar:
        yield f"no known table has the architecture {model.architecture}: no parser and no flag is proposed"
    for key, value in proposal.values.items():
        yield f"proposed, not tried: {key} = {_format_value(value)}, as {', '.join(proposal.similar)}"
    for key, why in proposal.left_out.items():
        yield f"left out, because known tables differ in {key}: {why}"


def _format_value(value: Any) -> str:  # noqa: ANN401 - whatever a table says
    return str(value) if not isinstance(value, dict) else ", ".join(f"{k}: {v}" for k, v in value.items())
