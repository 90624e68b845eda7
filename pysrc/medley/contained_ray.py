"""A contained Ray is this host's Ray in a container: noted, followed until it is up, looked at, ended."""

import time
from pathlib import Path

from medley import container, images, machine, store
from medley.command import Command
from medley.container import Runtime
from medley.imaged import RAY


def name() -> str:
    return container.name(RAY, store.state())


def note(runtime: Runtime) -> None:
    """Before it starts, so that it is ended whatever becomes of us."""
    store.write(_note(), runtime)


def up(runtime: Runtime, sign: str, limit_s: float) -> machine.Finished:
    """Follow what it says until it says the sign that Ray is up in it."""
    seen: list[str] = []

    def on_line(line: str) -> None:
        if sign in line:
            seen.append(line)

    process = machine.Process(Command((runtime, "logs", "--follow", name())), on_line)
    deadline = time.monotonic() + limit_s
    try:
        while not seen and process.wait(0.1) is None and time.monotonic() < deadline:
            pass
    finally:
        process.stop(grace_s=5)
    return machine.Finished(0 if seen else 1, tuple(process.last))


def runs() -> bool:
    runtime = _runtime()
    return runtime is not None and images.runs(runtime, name())


def ended() -> bool:
    """End it; whether there was one."""
    runtime = _runtime()
    found = runtime is not None and images.remove(runtime, name())
    _note().unlink(missing_ok=True)
    return found


def _runtime() -> Runtime | None:
    """By which it runs; None where there is none."""
    try:
        noted = _note().read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    return "docker" if noted == "docker" else "podman"


def _note() -> Path:
    return store.state() / "ray-container"
