"""`medley models rm`."""

import shlex
from pathlib import Path

from medley import config, serving, storage
from medley.cli import Verb, flag, terminal
from medley.cli.output import print_result
from medley.errors import Problem
from medley.model import hub, hub_cache
from medley.model.resolve import Weights, resolve_weights

_GB = 1e9


class ModelsRmVerb(Verb):
    USAGE = "    {progname} [OPTIONS] MODEL\n"
    yes: bool = flag("--yes", "do not ask")
    dry_run: bool = flag("--dry-run", "print the folder; remove nothing")
    as_json: bool = flag("--json", "one JSON object: model, path, bytes, removed")

    def main(self, model: str) -> int:
        found = resolve_weights(model, config.models(), storage.cache(), self.typed_words)
        place = Path(found.target) if found.is_local else hub.find_repository_folder(found.target)
        _require_removable(found, place)
        size = (
            storage.size_bytes(place) if found.is_local else hub_cache.estimate_removable_bytes(found.target)
        )
        removed = not self.dry_run and (self.yes or _agreed(found.name, _about(size, place)))
        if removed:
            size = _remove(found, place)
        done = "freed" if removed else "would free" if self.dry_run else "kept"
        table = {"model": found.name, "path": str(place), "bytes": size, "removed": removed}
        print_result(table, [f"{done} {_about(size, place)}"], as_json=self.as_json)
        return 0 if removed or self.dry_run else 1


def _about(size_bytes: int, place: Path) -> str:
    return f"{size_bytes / _GB:.2f} GB: {place}"


def _require_removable(found: Weights, place: Path) -> None:
    """Raise a Problem where it is the user's own, is not here, or is being served."""
    if found.is_local and not found.is_built:
        cause, fix = "medley did not download it", shlex.join(("rm", "-r", str(place)))
        raise Problem(f"{place} is a folder of your own", cause=cause, fix=fix)
    if not storage.exists(place):
        raise Problem(
            f"{found.name} is not on this host", cause=f"{place} does not exist", fix="medley models"
        )
    if place.is_symlink():
        cause = f"it is a link to {place.resolve()}, and medley removes only what is in the hub's cache"
        target, link = shlex.quote(str(place.resolve())), shlex.quote(str(place))
        raise Problem(f"{place} was not removed", cause=cause, fix=f"rm -r {target} && rm {link}")
    names = {found.name, *(name for name, each in config.models().items() if each.repository == found.target)}
    for server in serving.list_servers():
        what = serving.read_description(server.port)
        if server.model in names or (what and what.target == found.target):
            cause = f"process {server.pid} serves it at {server.url}"
            raise Problem(f"{found.name} is in use", cause=cause, fix=f"medley stop --port {server.port}")


def _agreed(name: str, about: str) -> bool:
    if not terminal.can_ask():
        cause = "standard input or output is not a terminal, so medley cannot ask"
        raise Problem(
            f"{name} was not removed", cause=cause, fix=f"medley models rm {shlex.quote(name)} --yes"
        )
    return terminal.ask_yes_no(f"remove {about}?", default=False)


def _remove(found: Weights, place: Path) -> int:
    """Return the bytes that are free then."""
    try:
        if not found.is_local:
            return hub_cache.remove_model(found.target)
        size_bytes = storage.size_bytes(place)
        storage.remove(place)
    except OSError as error:
        raise storage.problem_of(place, error, "removed completely") from error
    return size_bytes
