"""The code in a repository of the model hub, at one commit: what an engine that trusts it would run."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from medley import fingerprint, hub
from medley.problem import Problem
from medley.remote_code import MOST_FILES, Code, configs, fingerprints, modules, naming

if TYPE_CHECKING:
    from huggingface_hub import HfApi

_DATA = ("tokenizer.json", "vocab.json", ".index.json")
"""Ends of the names of large files that hold data alone, and which no class is made from."""


def code(repository: str, commit: str | None = None) -> Code | None:
    """Its code at that commit, else at the one that an engine would take now; None where it has none.

    From the hub's cache on this host, if that has the model and all code it names; what has to be asked of
    the hub comes to lie there, so that an engine reads the very files that were looked at.
    """
    for folder in hub.snapshots(repository):
        if commit in {None, folder.name}:
            named = modules(configs(folder), repository)
            if not named:
                return None
            if all((folder / name).is_file() for name in named):
                return Code(repository, fingerprints(folder), folder.name)
            commit = folder.name
    hub.require(repository)
    hub.refuse_offline(repository)
    return hub.answered(repository, lambda api: _asked(api, repository, commit))


def in_cache(repository: str) -> tuple[str, ...] | None:
    """The Python files that it names, as far as the cache here knows its configs; None where it does not."""
    for folder in hub.snapshots(repository):
        return modules(configs(folder), repository)
    return None


def _asked(api: "HfApi", repository: str, commit: str | None) -> Code | None:
    from huggingface_hub.errors import RevisionNotFoundError  # noqa: PLC0415 - half a second, and seldom needed

    try:
        about = api.model_info(repository, revision=commit, timeout=hub.LIMIT_S)
    except RevisionNotFoundError as error:
        raise Problem(
            f"{repository} has no commit {commit}",
            cause="the hub knows the repository, and not this",
            fix="look it up there; without --code-revision the newest is taken, and pinned",
        ) from error
    if about.sha is None:
        raise Problem(
            f"the hub does not say which commit of {repository} it has",
            cause="its answer has none",
            fix="name one: --code-revision COMMIT",
        )
    names = [each.rfilename for each in about.siblings or ()]
    tables = [name for name in names if name.endswith(".json") and not name.endswith(_DATA)]
    _require_few(repository, tables, "tables")
    told = {
        name: naming(hub.file(api, repository, name, about.sha), f"{repository}/{name}") for name in tables
    }
    if not modules(told, repository):
        return None
    return Code(repository, dict(_fetched(api, repository, about.sha, names)), about.sha)


def _fetched(api: "HfApi", repository: str, commit: str, names: list[str]) -> Iterator[tuple[str, str]]:
    found = [name for name in names if Path(name).suffix == ".py"]
    _require_few(repository, found, "Python files")
    for name in found:
        yield name, fingerprint.of_bytes(hub.file(api, repository, name, commit))


def _require_few(repository: str, names: list[str], what: str) -> None:
    if len(names) > MOST_FILES:
        raise Problem(
            f"{repository} holds more {what} than a model has",
            cause=f"{len(names)} files, and at most {MOST_FILES} are looked at",
            fix="name another repository",
        )
