"""Answer the agent requests transfer (of a model), type (a verb), token, and mend (a fix)."""

import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import cast

from medley import credentials, storage
from medley.cli.agent.requests import Note, NoteSender, Table
from medley.cluster import events, self_command
from medley.command import Command
from medley.doctor import examination
from medley.model import hub, hub_checksums, hub_download
from medley.model.transfer import Manifest, connection
from medley.model.transfer.download import ModelFetch, Source
from medley.model.transfer.inventory import build_manifest, find_root, find_snapshot
from medley.model.transfer.pieces import PieceStore, find_damage
from medley.process import Process
from medley.progress import PROGRESS

_NOTE_INTERVAL_BYTES = 8 << 20
# One agent process has one of each.
_OPEN_CONNECTIONS = ExitStack()
_SHARED_MODELS: list[PieceStore] = []


def answer_transfer(fields: Table, note: Note) -> Table:
    """Do the `step` of a transfer; the other fields are that step's."""
    return _STEPS[fields["step"]](fields, note)


def _find_model(fields: Table, _note: Note) -> Table:
    """Return whether the model of `target`, a folder's path or ORG/NAME, seems to be here as a whole."""
    target, top = fields["target"], find_root(fields["target"])
    has_model = (
        (top / "config.json").is_file() if Path(target).is_absolute() else bool(hub.list_snapshots(target))
    )
    existing = next(folder for folder in (top, *top.parents) if storage.exists(folder))
    return {"here": has_model, "root": str(top), "free_bytes": shutil.disk_usage(existing).free}


def _offer_manifest(fields: Table, note: Note) -> Table:
    """Return the manifest of `target`; `fresh`: read all files again, use no stored checksums."""
    manifest = build_manifest(fields["target"], fresh=fields["fresh"], on_progress=_build_progress_note(note))
    return {"manifest": manifest.table, "size_bytes": manifest.size_bytes, "digest": manifest.digest}


def _download_model(fields: Table, note: Note) -> Table:
    """Download from the hub into the hub's cache; files of an earlier run are kept."""
    note(f"{fields['target']} comes from {hub.find_endpoint()} …")
    hub.require_model(fields["target"])
    hub_download.download_model(
        fields["target"], _build_progress_note(note), note, revision=fields["revision"]
    )
    return {}


def _compare_with_hub(fields: Table, note: Note) -> Table:
    """Compare the snapshot of `target` with the hub's checksums."""
    snapshot = find_snapshot(fields["target"])
    comparison = hub_checksums.compare_snapshot(fields["target"], snapshot, _build_progress_note(note))
    damage = (
        [*map(str, comparison.differences), f"on this host: {comparison.fix}"]
        if comparison.differences
        else []
    )
    return {"said": str(comparison), "damage": damage}


def _serve_pieces(fields: Table, _note: Note) -> Table:
    """Serve pieces at `address` from now on; with `whole` this host has all of them."""
    _close_transfer({}, _note)
    _SHARED_MODELS.append(
        PieceStore(Manifest.parse(fields["manifest"]), find_root(fields["target"]), whole=fields["whole"])
    )
    return {
        "port": _OPEN_CONNECTIONS.enter_context(
            connection.serve_pieces(_SHARED_MODELS[0], fields["address"], fields["secret"])
        )
    }


def _fetch_pieces(fields: Table, note: Note) -> Table:
    """Fetch the missing pieces from `sources`, each [host, address, port]."""
    sources = [Source(*source_fields) for source_fields in fields["sources"]]
    model_fetch = ModelFetch(
        _SHARED_MODELS[0],
        sources,
        fields["secret"],
        on_progress=_build_progress_note(note),
        progress=NoteSender(note),
    )
    model_fetch.run()
    return {"received_bytes": model_fetch.received_bytes}


def _close_transfer(_fields: Table, _note: Note) -> Table:
    _OPEN_CONNECTIONS.close()
    _SHARED_MODELS.clear()
    return {}


def _verify_model(fields: Table, note: Note) -> Table:
    """Read all of the model again; return the files that differ from the manifest."""
    manifest = Manifest.parse(fields["manifest"])
    return {"damage": find_damage(manifest, find_root(fields["target"]), _build_progress_note(note))}


_STEPS: Mapping[str, Callable[[Table, Note], Table]] = {
    "has": _find_model,
    "offer": _offer_manifest,
    "download": _download_model,
    "pass on": _serve_pieces,
    "fetch": _fetch_pieces,
    "close": _close_transfer,
    "verify": _verify_model,
    "compare": _compare_with_hub,
}


def _build_progress_note(note: Note) -> Callable[[int, int], None]:
    """Return a callback that sends a note of progress every few MiB, not for each piece."""
    noted_bytes = -_NOTE_INTERVAL_BYTES

    def note_progress(done: int, total: int) -> None:
        nonlocal noted_bytes
        if done - noted_bytes >= _NOTE_INTERVAL_BYTES or done == total or done < noted_bytes:
            noted_bytes = done
            note(f"{PROGRESS}{done} {total}")

    return note_progress


_STOP_GRACE_S = 30


def answer_type(fields: Table, note: Note) -> Table:
    """Run a verb; `words` begin with it. Send each line after 1 or 2, the number of its stream.

    `on_event` is the command for events, or None: only this user can read a variable of the process.
    """
    on_event = {events.COMMAND_VARIABLE: fields["on_event"]} if fields.get("on_event") else {}
    variables = {self_command.TYPED_HERE_VARIABLE: "1", **on_event}
    command = Command((*self_command.get_own_command(), *fields["words"]), variables)
    verb_process = Process(command, lambda line: note(f"1{line}"), lambda line: note(f"2{line}"))
    try:
        finished = verb_process.wait()
    finally:
        verb_process.stop(_STOP_GRACE_S)
    return {"status": finished.status if finished else 1}


def answer_token(_fields: Table, _note: Note) -> Table:
    return {"token": credentials.read_api_key(credentials.require_token())}


def answer_mend(fields: Table, note: Note) -> Table:
    """Make one of the doctor's safe changes on this host."""
    examination.apply_fix(cast("examination.FixRequest", fields), note)
    return {}
