"""Agent requests: transfer a model, run a verb, apply a fix, hand over the token."""

import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

from medley import credentials, storage
from medley.cli.agent import Note, Notes, Table
from medley.cluster import events, self_command
from medley.command import Command
from medley.doctor import case
from medley.model import hub, hub_checksums, hub_download
from medley.model.transfer import Manifest, connection
from medley.model.transfer.download import ModelFetch, Source
from medley.model.transfer.inventory import build_manifest, find_root, find_snapshot
from medley.model.transfer.pieces import PieceStore, find_damage
from medley.process import Process
from medley.progress import PROGRESS

_NOTE_BYTES = 8 << 20
_open = ExitStack()
_held: list[PieceStore] = []


def answer_transfer(asked: Table, note: Note) -> Table:
    """The step that `step` names, with what that one needs."""
    return _STEPS[asked["step"]](asked, note)


def _has(asked: Table, _note: Note) -> Table:
    """Whether the whole model of this `target` seems to be here: a folder's path, or ORG/NAME."""
    target, top = asked["target"], find_root(asked["target"])
    here = (top / "config.json").is_file() if Path(target).is_absolute() else bool(hub.list_snapshots(target))
    existing = next(each for each in (top, *top.parents) if storage.exists(each))
    return {"here": here, "root": str(top), "free_bytes": shutil.disk_usage(existing).free}


def _offer(asked: Table, note: Note) -> Table:
    """Its manifest; `fresh`: read anew, not from what was kept of the last time."""
    made = build_manifest(asked["target"], fresh=asked["fresh"], on_progress=_progress(note))
    return {"manifest": made.table, "size_bytes": made.size_bytes, "digest": made.digest}


def _download(asked: Table, note: Note) -> Table:
    """From the hub into its cache here; what an earlier run has brought is kept."""
    note(f"{asked['target']} comes from {hub.find_endpoint()} …")
    hub.require_model(asked["target"])
    hub_download.download_model(asked["target"], _progress(note), note, revision=asked["revision"])
    return {}


def _compare(asked: Table, note: Note) -> Table:
    """With what the hub says of the snapshot that a manifest has."""
    snapshot = find_snapshot(asked["target"])
    found = hub_checksums.compare_snapshot(asked["target"], snapshot, _progress(note))
    damage = [*map(str, found.differences), f"on this host: {found.fix}"] if found.differences else []
    return {"said": str(found), "damage": damage}


def _pass_on(asked: Table, _note: Note) -> Table:
    """From now on hand out pieces at `address`; with `whole` this host has them all."""
    _close({}, _note)
    _held.append(
        PieceStore(Manifest.from_table(asked["manifest"]), find_root(asked["target"]), whole=asked["whole"])
    )
    return {"port": _open.enter_context(connection.serve_pieces(_held[0], asked["address"], asked["secret"]))}


def _fetch(asked: Table, note: Note) -> Table:
    """What this host lacks of it, from `sources`, each [host, address, port]."""
    sources = [Source(*each) for each in asked["sources"]]
    fetching = ModelFetch(_held[0], sources, asked["secret"], on_progress=_progress(note), watch=Notes(note))
    fetching.run()
    return {"received_bytes": fetching.received_bytes}


def _close(_asked: Table, _note: Note) -> Table:
    _open.close()
    _held.clear()
    return {}


def _verify(asked: Table, note: Note) -> Table:
    """All of it read again: what is not as the manifest has it."""
    manifest = Manifest.from_table(asked["manifest"])
    return {"damage": find_damage(manifest, find_root(asked["target"]), _progress(note))}


_STEPS: Mapping[str, Callable[[Table, Note], Table]] = {
    "has": _has,
    "offer": _offer,
    "download": _download,
    "pass on": _pass_on,
    "fetch": _fetch,
    "close": _close,
    "verify": _verify,
    "compare": _compare,
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


_GRACE_S = 30


def answer_type(asked: Table, note: Note) -> Table:
    """`words` begin with the verb. Each line is noted with 1 or 2 before it, its stream's number.

    `on_event` is the command for events, or None: only this user can read a variable of the process.
    """
    on_event = {events.COMMAND_VARIABLE: asked["on_event"]} if asked.get("on_event") else {}
    variables = {self_command.TYPED_HERE_VARIABLE: "1", **on_event}
    command = Command((*self_command.get_own_command(), *asked["words"]), variables)
    process = Process(command, lambda line: note(f"1{line}"), lambda line: note(f"2{line}"))
    try:
        finished = process.wait()
    finally:
        process.stop(_GRACE_S)
    return {"status": finished.status if finished else 1}


def answer_token(_asked: Table, _note: Note) -> Table:
    return {"token": credentials.read_api_key(credentials.require_token())}


def answer_mend(asked: Table, note: Note) -> Table:
    """One of the doctor's safe changes, made on this host."""
    return case.apply_fix(asked, note)
