"""What is offered is a model as it lies on this host: its files with their hashes, and its links."""

import os
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

from medley import hub
from medley.problem import Problem
from medley.transfer import hashes
from medley.transfer.manifest import PIECE_BYTES, UNFINISHED, File, Link, Manifest, last

Progress = Callable[[int, int], None]
"""Bytes done, bytes in all."""


def root(target: str) -> Path:
    """Where the model lies on this host, or is to: a folder as it is called, ORG/NAME in the hub's cache."""
    if Path(target).is_absolute():
        return Path(target)
    return hub.cache() / f"models--{target.replace('/', '--')}"


def offered(
    target: str, *, piece_bytes: int = PIECE_BYTES, fresh: bool = False, on_progress: Progress | None = None
) -> Manifest:
    """The manifest of a model that this host has; all of it is read the first time, and if `fresh`."""
    top = root(target)
    files, links = _in_hub(target, top) if not Path(target).is_absolute() else _in_folder(top)
    files.sort(key=lambda path: (last(path), path))
    links.sort(key=lambda link: (last(link.path), link.path))
    total = sum((top / path).stat().st_size for path in files)
    done = 0

    def count(size: int) -> None:
        nonlocal done
        done += size
        if on_progress:
            on_progress(done, total)

    return Manifest(
        tuple(
            File(
                path,
                (top / path).stat().st_size,
                hashes.of_file(top / path, piece_bytes, fresh=fresh, on_bytes=count),
            )
            for path in files
        ),
        tuple(links),
        piece_bytes,
    )


def _in_folder(top: Path) -> tuple[list[str], list[Link]]:
    """All but what git and the hub's client keep there; links that lead out of it are taken for files."""
    if not top.is_dir():
        raise Problem(f"there is no folder {top}", cause="it is not on this host", fix=f"ls {top.parent}")
    files, links = [], []
    for path in _entries(top):
        name = path.relative_to(top).as_posix()
        if path.is_symlink() and _leads_inside(path, top):
            links.append(Link(name, os.path.relpath(path.resolve(), path.parent.resolve())))
        elif path.is_file():
            files.append(name)
        else:
            raise Problem(
                f"{path} is no file of the model",
                cause=f"it is a link to {path.readlink()}"
                if path.is_symlink()
                else "it is a device or a pipe",
                fix=f"put the files themselves there: cp -rL {shlex.quote(str(path))} COPY",
            )
    return files, links


def _leads_inside(path: Path, top: Path) -> bool:
    """To what is brought along."""
    try:
        inside = path.resolve(strict=True).relative_to(top.resolve())
    except (OSError, RuntimeError, ValueError):
        return False
    return not any(part.startswith(".") for part in inside.parts[:-1])


def _entries(top: Path) -> Iterator[Path]:
    for where, folders, names in os.walk(top):
        folders[:] = [name for name in folders if not name.startswith(".")]
        linked = [name for name in folders if (Path(where) / name).is_symlink()]
        yield from (Path(where) / name for name in (*linked, *names) if not name.endswith(UNFINISHED))


def _in_hub(repository: str, top: Path) -> tuple[list[str], list[Link]]:
    """One snapshot, the blobs that its links lead to, and the names (main) that the repository has for it."""
    snapshot, refs = _snapshot(repository, top)
    found, links = _in_folder(snapshot)
    inside = snapshot.relative_to(top).as_posix()
    files = {f"{inside}/{name}" for name in found if not (snapshot / name).is_symlink()} | set(refs)
    made = [Link(f"{inside}/{link.path}", link.target) for link in links]
    for name in found:
        path = snapshot / name
        if path.is_symlink():
            blob = path.resolve()
            if not blob.is_relative_to(top.resolve()):
                raise Problem(
                    f"{path} leads out of the hub's cache",
                    cause=f"it is a link to {blob}",
                    fix=f"name the snapshot's folder instead, whose files are then brought: {snapshot}",
                )
            files.add(blob.relative_to(top.resolve()).as_posix())
            made.append(Link(f"{inside}/{name}", os.path.relpath(blob, path.parent.resolve())))
    return sorted(files), made


def _snapshot(repository: str, top: Path) -> tuple[Path, list[str]]:
    """The one that `main` names, else the newest that is whole; and the refs that name it."""
    whole = hub.snapshots(repository)
    if not whole:
        raise Problem(
            f"{repository} is not on this host",
            cause=f"{top} holds no whole snapshot of it",
            fix=f"hf download {repository}  # on one host, then pull from there",
        )
    refs = {
        path.relative_to(top).as_posix(): path.read_text(encoding="utf-8").strip()
        for path in (top / "refs").rglob("*")
        if path.is_file() and not path.name.endswith(UNFINISHED)
    }
    chosen = next((each for each in whole if each.name == refs.get("refs/main")), whole[0])
    return chosen, [name for name, commit in refs.items() if commit == chosen.name]
