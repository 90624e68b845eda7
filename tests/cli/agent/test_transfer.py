"""An agent's steps with the model hub."""

import hashlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from medley.cli.agent import requests
from medley.cli.agent.transfer import answer_type
from medley.model import hub
from medley.progress import PROGRESS
from tests.model.hub_server import COMMIT, Hub, large_repositories, serving

BOTH = "org/both"


@pytest.fixture(autouse=True)
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache_layout: bool) -> Iterator[Hub]:  # noqa: FBT001
    with serving(large_repositories(), monkeypatch, tmp_path) as server:
        yield server
    assert cache_layout in {True, False}


def ask(step: str) -> tuple[Mapping[str, Any], list[str]]:
    """Return the answer, and the notes that are not progress."""
    noted: list[str] = []
    asked = {"step": step, "target": BOTH, "revision": None}
    return requests.answer_request("transfer", asked, noted.append), [
        each for each in noted if not each.startswith(PROGRESS)
    ]


def test_a_download_says_with_what_it_was_compared(server: Hub) -> None:
    _, notes = ask("download")
    assert server.url in notes[0]
    assert notes[1:] == [
        f"comparing {BOTH} with the hub's SHA-256 …",
        f"2 of 2 large files have the hub's SHA-256, of commit {COMMIT[:12]}",
    ]
    assert ask("has")[0]["here"] is True


def test_a_copy_is_compared_with_the_hub_if_that_can_be_asked(
    server: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask("download")
    found, _ = ask("compare")
    assert found["damage"] == []
    assert str(found["said"]).startswith("2 of 2 large files")
    file = (hub.list_snapshots(BOTH)[0] / "1.safetensors").resolve()
    file.chmod(0o600)
    file.write_bytes(b"other")
    found, _ = ask("compare")
    assert str(found["said"]).startswith("1 of 2 large files")
    known = hashlib.sha256(server.files[f"{BOTH}/1.safetensors"]).hexdigest()
    assert found["damage"] == [
        f"1.safetensors has SHA-256 {hashlib.sha256(b'other').hexdigest()}, the hub's has {known}",
        f"on this host: hf download {BOTH} 1.safetensors --revision {COMMIT} --force-download",
    ]
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert ask("compare")[0] == {"said": "not compared with the hub: HF_HUB_OFFLINE is set", "damage": []}
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    found, _ = ask("compare")
    assert str(found["said"]).startswith(
        "not compared with the hub: the hub at http://127.0.0.1:9 does not answer"
    )
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    server.files = {}
    assert ask("compare")[0]["damage"] == []


def test_the_command_for_events_is_no_word_of_a_verb_that_is_typed_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every user reads words in the list of processes; a service refuses the text, wherever it comes from."""
    monkeypatch.setattr(sys, "argv", ["pytest"])
    words = ["service", "install", "serve", "demo", "--dry-run", "--user", "ann"]
    lines: list[str] = []
    assert answer_type({"words": words, "on_event": None}, lines.append) == {"status": 0}
    assert not any("MEDLEY_ON_EVENT" in line for line in lines)
    lines.clear()
    assert answer_type({"words": words, "on_event": "curl ntfy.sh/tulips"}, lines.append) == {"status": 1}
    assert any("--on-event" in line for line in lines)
    assert not any("tulips" in line for line in lines)
