"""Look: what this host is, and what of medley's runs on it."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from getpass import getuser
from typing import Any

from medley import membership, store, transcript, units
from medley.recognised import answers


def run(asked: Mapping[str, Any], note: Callable[[str], None]) -> Mapping[str, Any]:
    del asked, note
    found = membership.noted()
    return {
        "transcript": transcript.text(answers()),
        "processes": len(membership.processes()),
        "membership": asdict(found) if found else None,
        "units": [state.table for state in units.states()],
        "boots": units.boots(),
        "user": getuser(),
        "free_bytes": store.free_bytes(store.state()),
        "state": str(store.state()),
    }
