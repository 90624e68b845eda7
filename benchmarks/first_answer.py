"""How long README's first command takes from empty caches to the first answer, and the least it can take.

    python -m benchmarks.first_answer [RUNS] [--folder FOLDER]      # 3 runs, three to five minutes each

Each run has a home of its own without any cache, and a clone of this repository. It types the first block of
README.md (on a port of its own), and notes when each line of its output comes:

medley      all commands before `medley serve`: download and install of medley and what it needs
engine      the engine environment: look up, download, install
model       download of the model's package, and its conversion
start       from the start of the engine to the first answer
rest        recognise the host, plan, compare hashes

The server is asked for the capital of France, and a run counts only if the answer has "Paris". Then the same
engine is started by hand, by the command in the log (eager, as the model's table says), with all bytecode
there and the engine's own caches empty: `own`. The ratio is that of all to medley + engine + model + own,
which nobody can save; it is to be 1.2 at most. `again` is how long a second start by hand takes, with all
caches. A run whose figures are in FOLDER is not done again, so that what was cut off goes on. The last line
has the median of the ratios, the lowest and the highest. A run says how busy the machine was when each of
its starts was ready (the load of the last minute): where these differ much, its ratio says little.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from medley.command import Command
from medley.errors import Problem
from medley.network.free_port import find_free_port
from medley.network.socket_url import write_socket_url
from medley.process import Process
from medley.serving import readiness

ROOT = Path(__file__).parents[1]
LIMIT_S = 1800
MOST = 1.2
QUESTION, EXPECTED = "What is the capital of France?", "Paris"
# What would lead to caches or settings of the user who measures; pip's own index stays.
OTHERS = re.compile("XDG_|MEDLEY_|UV_|PYTHON|VIRTUAL_ENV|HF_|VLLM_")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("runs", type=int, nargs="?", default=3)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "first-answer")
    asked = parser.parse_args()
    found = [one(asked.folder, nth) for nth in range(1, asked.runs + 1)]
    ratios = sorted(each["ratio"] for each in found)
    low, middle, high = ratios[0], statistics.median(ratios), ratios[-1]
    print(f"all/(medley + engine + model + own): {middle:.2f} ({low:.2f} to {high:.2f}); goal: {MOST}")


def one(folder: Path, nth: int) -> dict[str, float]:
    """One run; printed, and kept."""
    kept = folder / f"{nth}.json"
    if not kept.exists():
        place = folder / str(nth)
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        kept.write_text(json.dumps(measured(place)))
        shutil.rmtree(place)
    found: dict[str, float] = json.loads(kept.read_text())
    total = found["all"]
    found["ratio"] = total / sum(found[name] for name in ("medley", "engine", "model", "own"))
    names = ("all", "medley", "engine", "model", "start", "rest", "own", "again")
    parts = ", ".join(f"{name} {found[name]:.0f}" for name in names)
    load = "/".join(f"{found[name]:.0f}" for name in ("load", "load of own", "load of again"))
    print(f"run {nth}, seconds: {parts}; ratio {found['ratio']:.2f}; load {load}", flush=True)
    return found


def measured(place: Path) -> dict[str, float]:
    home, clone = place / "home", place / "clone"
    home.mkdir()
    port = find_free_port()
    done(Command(("git", "clone", "-q", str(ROOT), str(clone))))
    *first, serve = readme(clone)
    model = serve.split()[-1]
    env = {"HOME": str(home), "PATH": f"{home}/.local/bin:{os.environ['PATH']}"}
    began = time.monotonic()
    done(typed(" && ".join(first), clone, env))
    installed = time.monotonic()
    lines: list[tuple[float, str]] = []
    server = Process(
        typed(f"exec {serve} --port {port}", clone, env), lambda line: lines.append((time.monotonic(), line))
    )
    ready = until(server, lambda: at(lines, "ready after"), lines)
    load = os.getloadavg()[0]
    program = serve.partition(" ")[0]
    ask = f"{program} chat --url http://127.0.0.1:{port}/v1 {shlex.quote(QUESTION)}"
    answer = done(typed(ask, clone, env))
    if not any(EXPECTED in line for line in answer):
        raise AssertionError(answer)
    server.stop()
    log = (home / f".local/state/medley/logs/serve-{port}.log").read_text()
    command = re.search(r"(?m)^\S+ \$ (.*)", log)
    builds, built, loads, loaded, starts = (
        at(lines, ": virtualenv of"),
        at(lines, ": download and install: "),
        at(lines, f"{model}: download "),
        at(lines, f"{model}: compare "),
        at(lines, " starts …"),
    )
    if not (ready and builds and built and loads and loaded and starts and command):
        raise AssertionError(lines)
    found = {
        "all": ready - began,
        "medley": installed - began,
        "engine": built - builds,
        "start": ready - starts,
        "model": loaded - loads,
        "rest": (builds - installed) + (loads - built) + (starts - loaded),
        "load": load,
    }
    python = next((home / ".cache/medley/envs").glob("*/bin/python"))
    words = (str(python), "-m", "compileall", "-q", "-j", "0", str(python.parents[1] / "lib"))
    Process(Command(words), lambda _: None).wait()  # fails: files of other versions of Python are there
    for cache in (home / ".cache").iterdir():
        if cache.name not in {"medley", "uv", "pip"}:
            shutil.rmtree(cache)
    for name in ("own", "again"):
        found[name] = by_hand(command[1], model, typed_in=(clone, env))
        found[f"load of {name}"] = os.getloadavg()[0]
    return found


def readme(clone: Path) -> list[str]:
    block = re.search(r"```sh\n(.*?)```", (clone / "README.md").read_text(), re.DOTALL)
    if block is None:
        raise AssertionError(clone)
    return [each.strip() for each in block[1].replace("\n", " ").split("&&")]


def typed(text: str, folder: Path, env: Mapping[str, str]) -> Command:
    unset = tuple(name for name in os.environ if OTHERS.match(name))
    return Command(("bash", "-c", f"cd {folder} && {text}"), dict(env), unset)


def by_hand(command: str, model: str, *, typed_in: tuple[Path, Mapping[str, str]]) -> float:
    """Seconds from the start of the engine to its first answer."""
    lines: list[tuple[float, str]] = []
    words = shlex.split(command)
    socket = Path(words[words.index("--uds") + 1])
    socket.parent.mkdir(parents=True, exist_ok=True)
    socket.unlink(missing_ok=True)
    began = time.monotonic()
    engine = Process(typed(f"exec {command}", *typed_in), lambda line: lines.append((time.monotonic(), line)))

    def answered() -> float | None:
        return time.monotonic() if readiness.request_probe_answer(write_socket_url(socket), model) else None

    try:
        return until(engine, answered, lines) - began
    finally:
        engine.stop()


def until(process: Process, found: Callable[[], float | None], lines: list[tuple[float, str]]) -> float:
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline and process.wait(0.1) is None:
        if (when := found()) is not None:
            return when
    process.stop()
    raise Problem("no first answer", cause="\n".join(line for _, line in lines[-20:]), fix="run it again")


def at(lines: list[tuple[float, str]], text: str) -> float | None:
    return next((when for when, line in list(lines) if text in line), None)


def done(command: Command) -> tuple[str, ...]:
    """Run a command to its end; returns its last lines."""
    process = Process(command, lambda _: None)
    try:
        finished = process.wait(LIMIT_S)
    finally:
        process.stop()
    if finished is None or finished.status:
        raise AssertionError(finished)
    return finished.lines


if __name__ == "__main__":
    main()
