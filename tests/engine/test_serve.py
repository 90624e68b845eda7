"""The main job, for real: vLLM from its lock serves the demo model on this host's CPU."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from medley import config, storage
from medley.command import Command
from medley.model import demo
from tests.model.hub_server import serving
from tests.servers import Start, chat
from tests.waiting import wait_for

pytestmark = pytest.mark.engine


def serve(*words: str) -> Command:
    return Command((sys.executable, "-m", "medley", "serve", *words))


def medley(*words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "medley", *words],
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_demo_answers_twice_alike_and_ctrl_c_leaves_nothing(
    start: Start, free_port: int, tmp_path: Path
) -> None:
    served = start(serve("demo", "--port", str(free_port)))
    url = served.ready()
    first, second = chat(url), chat(url)
    assert first["usage"]["completion_tokens"] == 16
    assert first["choices"][0]["message"]["content"] == second["choices"][0]["message"]["content"]

    state = {"MEDLEY_STATE": str(tmp_path / "state")}
    asked = medley("chat", "--max-tokens", "5", "Hello", env=state)
    assert asked.returncode == 0, asked.stderr
    assert asked.stdout.strip()
    assert "5 tokens, first after" in asked.stderr

    busy = medley("serve", "demo", "--port", str(free_port))
    assert (busy.returncode, f"port {free_port} is " in busy.stderr) == (1, True)

    assert served.interrupt() == 128 + signal.SIGINT
    gone = medley("chat", "--url", url, "Hello")
    assert (gone.returncode, "no server answers" in gone.stderr) == (1, True)


@pytest.mark.slow
def test_a_model_of_the_hub_is_here_before_the_engine_starts(
    start: Start, free_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = config.load_models()["demo"].made
    assert made
    (tmp_path / "demo").mkdir()
    demo.write_model(made, tmp_path / "demo")
    files = {f"org/demo/{path.name}": path.read_bytes() for path in (tmp_path / "demo").iterdir()}
    # Environments and models stay where they are.
    cache = storage.find_cache_folder()
    with serving(files, monkeypatch, tmp_path) as server:
        monkeypatch.setenv("MEDLEY_CACHE", str(cache))
        served = start(serve("-v", "org/demo", "--served-model-name", "demo", "--port", str(free_port)))
        chat(served.ready())
        assert served.interrupt() == 128 + signal.SIGINT
    begins = next(at for at, line in enumerate(served.lines) if " vllm serve " in line)
    assert any("weights of org/demo" in line for line in served.lines[:begins])
    fetched = [name for verb, name, size in server.asked if (verb, size) == ("GET", made_bytes(files))]
    assert fetched == ["model.safetensors"], "once, and not by the engine again"


def made_bytes(files: dict[str, bytes]) -> int:
    return len(files["org/demo/model.safetensors"])


def test_flags_after_two_dashes_reach_the_engine_and_its_death_is_a_problem(
    start: Start, free_port: int
) -> None:
    served = start(serve("demo", "--port", str(free_port), "--", "--max-model-len", "999999"))
    finished = served.process.wait(120)
    assert finished is not None
    assert finished.status == 1
    said = "\n".join(finished.lines[-12:])
    assert "the engine ended with exit code 1 before it was ready" in said
    assert "cause: the context (max_model_len) is longer than the model's: 999999 " in said
    assert "read its whole output: less " in said


@pytest.mark.usefixtures("small_engine")
def test_an_engine_killed_while_it_serves_is_a_problem_with_its_code(start: Start, free_port: int) -> None:
    served = start(serve("demo", "--port", str(free_port), "--served-model-name", "demo"))
    served.ready()
    (engine,) = [
        int(pid)
        for pid in Path(f"/proc/{served.process.pid}/task/{served.process.pid}/children").read_text().split()
        if b"caddy" not in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    os.kill(engine, signal.SIGKILL)
    finished = served.process.wait(60)
    assert finished is not None
    assert finished.status == 128 + signal.SIGKILL
    assert "exit code 137" in served.tail()


@pytest.mark.usefixtures("small_engine")
def test_when_medley_itself_is_killed_the_engine_ends(start: Start, free_port: int) -> None:
    from medley.process_identity import list_descendants

    served = start(serve("demo", "--port", str(free_port)))
    served.ready()
    family = list_descendants(served.process.pid)
    os.kill(served.process.pid, signal.SIGKILL)
    wait_for(
        "the engine ends",
        lambda: not any(each.is_alive for each in family),
        60,
        state=lambda: [each for each in family if each.is_alive],
    )
