"""Transfer: this host's part in bringing a model to all, step by step as `pull` asks for them."""

import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from medley import hub
from medley.problem import Problem
from medley.transfer import passing
from medley.transfer.fetching import Fetching, Source
from medley.transfer.held import Held
from medley.transfer.manifest import Manifest
from medley.transfer.offered import offered, root
from medley.transfer.recovered import damage

PROGRESS = "progress "
"""Before a note of bytes done and bytes in all."""
_NOTE_BYTES = 8 << 20
_open = ExitStack()
_held: list[Held] = []
Note = Callable[[str], None]
Asked = Mapping[str, Any]


def run(asked: Asked, note: Note) -> Mapping[str, Any]:
    """The step that `step` names, with what that one needs."""
    return _STEPS[asked["step"]](asked, note)


def _has(asked: Asked, _note: Note) -> Mapping[str, Any]:
    """Whether the whole model of this `target` seems to be here: a folder's path, or ORG/NAME."""
    target, top = asked["target"], root(asked["target"])
    here = (top / "config.json").is_file() if Path(target).is_absolute() else hub.cached(target)
    return {"here": here, "root": str(top), "free_bytes": shutil.disk_usage(_existing(top)).free}


def _offer(asked: Asked, note: Note) -> Mapping[str, Any]:
    """Its manifest; `fresh`: read anew, not from what was kept of the last time."""
    made = offered(asked["target"], fresh=asked["fresh"], on_progress=_progress(note))
    return {"manifest": made.table, "size_bytes": made.size_bytes, "digest": made.digest}


def _download(asked: Asked, note: Note) -> Mapping[str, Any]:
    """From the hub into its cache here; what an earlier run has brought is kept."""
    note(f"{asked['target']} comes from {hub.endpoint()} …")
    # The library's own bars are for a terminal, and this is none.
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    hub.require(asked["target"])
    hub.download(asked["target"])
    return {}


def _pass_on(asked: Asked, _note: Note) -> Mapping[str, Any]:
    """From now on hand out pieces at `address`; with `whole` this host has them all."""
    _close({}, _note)
    _held.append(Held(Manifest.parsed(asked["manifest"]), root(asked["target"]), whole=asked["whole"]))
    return {"port": _open.enter_context(passing.serve(_held[0], asked["address"], asked["secret"]))}


def _fetch(asked: Asked, note: Note) -> Mapping[str, Any]:
    """What this host lacks of it, from `sources`, each [host, address, port]."""
    sources = [Source(*each) for each in asked["sources"]]
    fetching = Fetching(_held[0], sources, asked["secret"], on_progress=_progress(note), watch=_Told(note))
    fetching.run()
    return {"received_bytes": fetching.received_bytes}


def _close(_asked: Asked, _note: Note) -> Mapping[str, Any]:
    _open.close()
    _held.clear()
    return {}


def _verify(asked: Asked, note: Note) -> Mapping[str, Any]:
    """All of it read again: what is not as the manifest has it."""
    manifest = Manifest.parsed(asked["manifest"])
    return {"damage": damage(manifest, root(asked["target"]), _progress(note))}


_STEPS: Mapping[str, Callable[[Asked, Note], Mapping[str, Any]]] = {
    "has": _has,
    "offer": _offer,
    "download": _download,
    "pass on": _pass_on,
    "fetch": _fetch,
    "close": _close,
    "verify": _verify,
}


def _progress(note: Note) -> Callable[[int, int], None]:
    """Not each piece is worth a message."""
    said = -_NOTE_BYTES

    def tell(done: int, total: int) -> None:
        nonlocal said
        if done - said >= _NOTE_BYTES or done == total or done < said:
            said = done
            note(f"{PROGRESS}{done} {total}")

    return tell


def _existing(path: Path) -> Path:
    while not path.exists():
        path = path.parent
    return path


class _Told:
    """A watch that only hears notes."""

    def __init__(self, note: Note) -> None:
        self.note = note

    def stage(self, name: str) -> Any:  # noqa: ANN401 - never called by a transfer
        raise Problem(name, cause="a transfer has no stages", fix="report it")

    def line(self, text: str) -> None: ...
