"""`medley top` beside a real engine: what it does is seen while it does it."""

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from medley import process
from medley.command import Command
from tests.servers import Start, chat
from tests.waiting import wait_for

pytestmark = pytest.mark.engine

MEDLEY = (sys.executable, "-m", "medley")
ASKED = 3


@pytest.mark.slow
def test_running_requests_and_tokens_are_seen(start: Start, free_port: int, tmp_path: Path) -> None:
    """Alone, because a cluster.toml of the user's would say otherwise."""
    url = start(Command((*MEDLEY, "serve", "demo", "--port", str(free_port)))).ready()
    env = {"MEDLEY_STATE": str(tmp_path / "state"), "XDG_CONFIG_HOME": str(tmp_path)}
    looks: list[str] = []
    top = process.Process(Command((*MEDLEY, "top", "--json", "--every", "1"), env), looks.append)
    try:
        with ThreadPoolExecutor(ASKED) as pool:

            def seen() -> list[dict[str, float]]:
                for answer in [pool.submit(chat, url, f"Count from {nth}", 400) for nth in range(ASKED)]:
                    answer.result()
                return [each for each in map(engine, list(looks)) if each["generated"] and each["running"]]

            busy = wait_for("top prints requests that run", seen, 120, state=lambda: looks[-1:])
        assert 1 <= busy[0]["running"] <= ASKED
        assert busy[0]["generated"] > 10
        assert max(each["kv_cache"] or 0 for each in map(engine, list(looks))) > 0
    finally:
        top.stop()
    said: list[str] = []
    ended = process.run(Command((*MEDLEY, "top", "--metrics-once"), env), limit_s=40, on_line=said.append)
    assert ended.status == 0
    mine = [line for line in said if line.startswith("vllm:generation_tokens_total{")]
    host = os.uname().nodename
    assert mine
    assert f'host="{host}"' in mine[0]
    assert f'server="{free_port}"' in mine[0]
    assert float(mine[0].split()[-1]) >= 400


def engine(line: str) -> dict[str, float]:
    (host,) = json.loads(line)["hosts"].values()
    found = (host.get("engines") or [{}])[0]
    names = {"generated": "generated_tokens_per_s", "running": "running", "kv_cache": "kv_cache"}
    return {ours: found.get(theirs) or 0 for ours, theirs in names.items()}
