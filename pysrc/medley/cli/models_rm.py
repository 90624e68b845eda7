"""`medley models rm`."""

import shlex
from pathlib import Path

from medley import config, storage
from medley.cli import Verb, flag, terminal
from medley.cli.output import print_result
from medley.command import quote_path
from medley.errors import Problem
from medley.model import hub, hub_cache
from medley.model.resolve import Weights, resolve_weights
from medley.serving import server_description, server_records

_GB = 1e9


class ModelsRmVerb(Verb):
    USAGE = "    {progname} [OPTIONS] MODEL\n"
    yes: bool = flag("--yes", "do not ask")
    dry_run: bool = flag("--dry-run", "print the folder; remove nothing")
    as_json: bool = flag("--json", "one JSON object: model, path, bytes, removed")

    def main(self, model: str) -> int:
        weights = resolve_weights(model, config.load_models(), storage.find_cache_folder(), self.typed_words)
        folder = Path(weights.target) if weights.is_local else hub.find_repository_folder(weights.target)
        _require_removable(weights, folder)
        size = (
            storage.measure_disk_usage(folder)
            if weights.is_local
            else hub_cache.estimate_removable_bytes(weights.target)
        )
        is_removed = not self.dry_run and (self.yes or _ask_consent(weights.name, _format_size(size, folder)))
        if is_removed:
            size = _remove_files(weights, folder)
        outcome = "would free" if self.dry_run else "kept"
        if is_removed:
            outcome = "freed"
        table = {"model": weights.name, "path": str(folder), "bytes": size, "removed": is_removed}
        print_result(table, [f"{outcome} {_format_size(size, folder)}"], as_json=self.as_json)
        return 0 if is_removed or self.dry_run else 1


def _format_size(size_bytes: int, folder: Path) -> str:
    return f"{size_bytes / _GB:.2f} GB: {folder}"


def _require_removable(weights: Weights, folder: Path) -> None:
    """Raise a Problem if the model is the user's own, is not here, or is being served."""
    if weights.is_local and not weights.is_built:
        cause, fix = "medley did not download it", shlex.join(("rm", "-r", str(folder)))
        raise Problem(f"{folder} is a folder of your own", cause=cause, fix=fix)
    if not storage.exists(folder):
        raise Problem(
            f"{weights.name} is not on this host", cause=f"{folder} does not exist", fix="medley models"
        )
    if folder.is_symlink():
        cause = f"it is a link to {folder.resolve()}, and medley removes only what is in the hub's cache"
        target, link = quote_path(folder.resolve()), quote_path(folder)
        raise Problem(f"{folder} was not removed", cause=cause, fix=f"rm -r {target} && rm {link}")
    names = {
        weights.name,
        *(name for name, model in config.load_models().items() if model.repository == weights.target),
    }
    for server in server_records.list_servers():
        description = server_description.read_description(server.port)
        if server.model in names or (description and description.target == weights.target):
            cause = f"process {server.pid} serves it at {server.url}"
            raise Problem(f"{weights.name} is in use", cause=cause, fix=f"medley stop --port {server.port}")


def _ask_consent(name: str, size_text: str) -> bool:
    if not terminal.can_ask():
        cause = "standard input or output is not a terminal, so medley cannot ask"
        raise Problem(
            f"{name} was not removed", cause=cause, fix=f"medley models rm {shlex.quote(name)} --yes"
        )
    return terminal.ask_yes_no(f"remove {size_text}?", default=False)


def _remove_files(weights: Weights, folder: Path) -> int:
    """Remove the model; return the bytes that are free then."""
    try:
        if not weights.is_local:
            return hub_cache.remove_model(weights.target)
        size_bytes = storage.measure_disk_usage(folder)
        storage.remove_folder(folder)
    except OSError as error:
        raise storage.build_file_problem(folder, error, "removed completely") from error
    return size_bytes
