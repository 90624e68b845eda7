"""A real engine that wants a key: medley's own requests give it, others are refused."""

import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from medley.command import Command
from tests.served import Start

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_requests_without_the_key_are_refused(
    engine: str, start: Start, free_port: int, tmp_path: Path
) -> None:
    key = tmp_path / "key"
    key.write_text("sk-of-this-test")
    words = ("serve", "demo", "--engine", engine, "--port", str(free_port), "--api-key", str(key))
    served = start(Command((sys.executable, "-m", "medley", *words)))
    url = served.ready()
    models = f"{url}/models"
    assert httpx.get(models).status_code == 401
    assert httpx.get(models, headers={"Authorization": "Bearer sk-of-this-test"}).status_code == 200
    ask = (sys.executable, "-m", "medley", "ask", "--url", url, "--max-tokens", "4", "Hello")
    bare = {name: value for name, value in os.environ.items() if name != "OPENAI_API_KEY"}
    refused = subprocess.run(ask, env=bare, capture_output=True, text=True, check=False, timeout=60)
    assert refused.returncode == 1
    assert "wants another API key" in refused.stderr
    given = subprocess.run(
        (*ask, "--api-key", str(key)), env=bare, capture_output=True, text=True, check=False, timeout=60
    )
    assert given.returncode == 0, given.stderr
    said = "\n".join(served.lines)
    assert "sk-of-this-test" not in said
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            assert b"sk-of-this-test" not in process.read_bytes()
        except OSError:
            continue
