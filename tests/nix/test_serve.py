"""The main job through real Nix: the app finds its toolkit, builds the environment and serves."""

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from medley import storage
from medley.command import Command
from tests.servers import Start, chat

if TYPE_CHECKING:
    from tests.nix.conftest import Tree

pytestmark = pytest.mark.engine


def test_nix_run_serve_demo(tree: "Tree", start: Start, free_port: int) -> None:
    words = ("run", f"path:{tree.folder}#serve", "--", "demo", "--port", str(free_port))
    served = start(Command(("nix", *words), tree.variables))
    said = chat(served.ready())
    assert said["usage"]["completion_tokens"] == 16
    assert "toolkit of cpu, by Nix" in "\n".join(served.lines) or _links()
    assert all(link.resolve().is_relative_to("/nix/store") for link in _links())
    assert served.interrupt() == 128 + signal.SIGINT


def _links() -> list[Path]:
    return list((storage.find_cache_folder() / "toolkits").glob("cpu-*"))
