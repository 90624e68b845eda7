"""How long medley takes to start, as ratios to a bare plumbum program.

    .venv/bin/python benchmarks/startup.py [ROUNDS]   # 15 rounds, about half a minute

`help` is `medley --help`; `spawn` is `medley serve demo` until its engine's process starts (the host's
facts asked, the kind recognised, the plan and the command made); `bare` is a plumbum program with as many
verbs that prints its help. `plan` is `medley plan demo --hosts spark:2` in processor time, compared with that
of `bare`. They take turns in every round, so that a machine whose speed drifts slows them alike; each figure
is the median of the rounds' ratios, with the lowest and the highest.
"""

import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 15

BARE = """
from plumbum import cli
class Bare(cli.Application):
    PROGNAME, VERSION = "bare", "1"
    def main(self):
        pass
for number in range(30):
    class Verb(cli.Application):
        DESCRIPTION = "Say what this host is: processor, memory, GPUs, system, and the kind of host."
        def main(self):
            pass
    Bare.subcommand(f"verb{number}", Verb)
Bare.run(["bare", "--help"])
"""
PLAN = [sys.executable, "-m", "medley", "plan", "demo", "--hosts", "spark:2"]
# Stands where the engine would: it says when it was started, on the clock that all processes share, and ends.
ENGINE = f"""#!{sys.executable} -S
import os, time
started = time.monotonic_ns()
with open(os.environ["STARTED"], "w") as file:
    file.write(str(started))
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        runs: dict[str, Callable[[], float]] = {
            "bare": bare,
            "help": help_,
            "spawn": lambda: spawn(folder),
            "bare_processor": lambda: measure_processor_s([sys.executable, "-c", BARE]),
            "plan": lambda: measure_processor_s(PLAN),
        }
        environment(folder)
        for run in runs.values():
            run()  # bytecode, and the file cache
        rounds = [{name: run() for name, run in runs.items()} for _ in range(ROUNDS)]
    for name, base in (("help", "bare"), ("spawn", "bare"), ("plan", "bare_processor")):
        ratios = sorted(each[name] / each[base] for each in rounds)
        print(f"{name}/{base}: {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")


def bare() -> float:
    return timed([sys.executable, "-c", BARE])


def help_() -> float:
    return timed([sys.executable, "-m", "medley", "--help"])


def spawn(folder: Path) -> float:
    started = folder / "started"
    command = [sys.executable, "-m", "medley", "serve", "demo", "--env", str(folder / "env")]
    own = {"STARTED": str(started), "MEDLEY_CACHE": str(folder), "MEDLEY_STATE": str(folder)}
    began = time.monotonic_ns()
    subprocess.run(
        [*command, "--port", str(free_port())], env={**os.environ, **own}, capture_output=True, check=False
    )
    return (int(started.read_text()) - began) / 1e9


def timed(command: list[str]) -> float:
    began = time.monotonic()
    subprocess.run(command, capture_output=True, check=True)
    return time.monotonic() - began


def measure_processor_s(command: list[str]) -> float:
    """Return the processor time of a program, of its own code and the kernel's."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def environment(folder: Path) -> None:
    """A virtualenv whose engine ends at once; its Python, too, because that starts the engine's server."""
    binary = folder / "env" / "bin"
    binary.mkdir(parents=True)
    for name in ("python", "vllm"):
        (binary / name).write_text(ENGINE)
        (binary / name).chmod(0o755)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    main()
