"""What a host does in a transfer, as its lead would have it done; run on a host of the rack.

    python -m tests.rack.transfer_program offer|fetch|check ROOT ADDRESS

Manifest, secret and sources come and go by files in the host's home folder, what happens by lines on stdout.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from medley.errors import Problem
from medley.model.transfer import Manifest, connection
from medley.model.transfer.download import ModelFetch, Source
from medley.model.transfer.inventory import build_manifest
from medley.model.transfer.pieces import PieceStore, find_damage
from medley.progress import SilentProgress
from tests.waiting import wait_for

HERE = Path.home() / "transfer"
STAYS_S = 600
"""For so long it offers what it has, unless the test ends it before."""


class Said(SilentProgress):
    def note(self, text: str) -> None:
        say("note", text)


def main() -> None:
    verb, root, address = sys.argv[1:]
    try:
        {"offer": offer, "fetch": fetch, "check": check}[verb](Path(root), address)
    except Problem as problem:
        say("problem", problem.table)
        sys.exit(1)


def offer(root: Path, address: str) -> None:
    manifest = build_manifest(str(root))
    (HERE / "manifest.json").write_text(json.dumps(manifest.table))
    with connection.serve_pieces(PieceStore(manifest, root, whole=True), address, secret()) as port:
        say("port", port)
        time.sleep(STAYS_S)


def fetch(root: Path, address: str) -> None:
    held = PieceStore(manifest(), root)
    with connection.serve_pieces(held, address, secret()) as port:
        say("port", port)
        sources = [Source(*each) for each in awaited("sources.json")]
        run = ModelFetch(
            held, sources, secret(), on_progress=lambda *each: say("progress", each), progress=Said()
        )
        run.run()
        say("done", run.received_bytes)
        time.sleep(STAYS_S)


def check(root: Path, address: str) -> None:
    del address
    say("damage", find_damage(manifest(), root))


def manifest() -> Manifest:
    return Manifest.parse(awaited("manifest.json"))


def secret() -> str:
    return (HERE / "secret").read_text()


def awaited(name: str) -> Any:
    wait_for(f"the test has written {name}", (HERE / name).is_file, STAYS_S)
    return json.loads((HERE / name).read_text())


def say(kind: str, what: object) -> None:
    print(json.dumps({kind: what, "at": time.monotonic()}), flush=True)


if __name__ == "__main__":
    main()
