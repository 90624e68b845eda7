"""Tokens per second of a model that medley serves, over the same engine started without medley.

    python -m benchmarks.throughput [PAIRS] [--write] [-- SERVE'S WORDS]     # 20 pairs: about 30 minutes

Both servers run at once on this machine, and the clients ask them in turns. One is `medley serve`: the edge
before the engine, its supervisor, and all that watches it. The other is what `serve --dry-run --json` prints,
at a port in place of the socket. Both engines have the same core; medley's process and the
clients have another. The model is made here, larger than the demo model, so that a step of the engine takes
tens of milliseconds, as with real models. With the demo model it takes less time than HTTP.

A pair is four bursts, medley, raw, raw, medley, and the next pair the other way round. In a burst each stream
sends ROUNDS prompts that no server has seen, the same to both, for TOKENS tokens each. A pair's ratio is of
tokens per second. After --per-start pairs both servers start again, because two starts of one engine differ.
The interval is that of the mean of the ratios' logarithms (95 %, Student's t), by pairs and by the means of
the starts; the wider one counts. A second ratio is of tokens per second of the engine's processor time. Other
work on this machine moves it less.

Pairs are kept in FOLDER, so that a run that was cut off goes on where it was, under the same conditions.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import psutil

from benchmarks.completions import halves, prompt, stream
from benchmarks.estimates import Interval, mean_ratio
from medley import process, storage
from medley.command import Command
from medley.errors import Problem
from medley.model import demo
from medley.network.free_port import find_free_port
from medley.process import Process
from medley.process_identity import list_descendants
from medley.schema import DemoSpec
from medley.serving import readiness

RESULT = Path(__file__).parent / "results" / "throughput.txt"
MADE = DemoSpec(
    layers=12,
    hidden=768,
    heads=12,
    kv_heads=4,
    head_dim=64,
    intermediate=2048,
    vocabulary=10_240,
    context=2048,
    seed=0,
)
WAYS = ("medley", "raw")
PROMPT_TOKENS, TOKENS, ROUNDS = 64, 64, 3
READY_LIMIT_S = 600
MOST_HALF_WIDTH, LEAST_RATIO, LEAST_PAIRS = 0.05, 0.95, 20


@dataclass(frozen=True)
class Server:
    """A running server, and the core that its engine has."""

    way: str
    port: int
    process: Process

    def engine(self) -> list[psutil.Process]:
        """Each process of the engine: all below medley, or the raw one and all below it."""
        found = [each.pid for each in list_descendants(self.process.pid)]
        return [
            psutil.Process(pid) for pid in (*found, *([] if self.way == "medley" else [self.process.pid]))
        ]

    def cpu_s(self) -> float:
        """Processor time that the engine has used."""
        return sum(sum(each.cpu_times()[:2]) for each in self.engine())


@dataclass(frozen=True)
class Burst:
    """Some requests to one server."""

    way: str
    tokens: int
    seconds: float
    cpu_s: float
    """The engine's processor time."""
    idle: float
    """What the other engine used meanwhile, as a part of a core."""


@dataclass(frozen=True)
class Pair:
    """Four bursts, two to each server."""

    start: int
    load: float
    """The machine's load, of a minute, at its end."""
    bursts: tuple[Burst, ...]

    def rate(self, way: str) -> float:
        own = [each for each in self.bursts if each.way == way]
        return sum(each.tokens for each in own) / sum(each.seconds for each in own)

    def rate_of_cpu(self, way: str) -> float:
        own = [each for each in self.bursts if each.way == way]
        return sum(each.tokens for each in own) / sum(each.cpu_s for each in own)

    @property
    def ratio(self) -> float:
        return self.rate("medley") / self.rate("raw")

    @property
    def ratio_of_cpu(self) -> float:
        return self.rate_of_cpu("medley") / self.rate_of_cpu("raw")

    def idle(self, way: str) -> float:
        """What it used while the other one was asked, as a part of a core."""
        return statistics.mean(each.idle for each in self.bursts if each.way != way)


def main() -> None:
    asked = arguments()
    conditions = described(asked)
    storage.make_folder(folder := asked.folder / storage.hash_checksums({"conditions": conditions})[:12])
    print(conditions, flush=True)
    pairs: list[Pair] = []
    try:
        for pair in measured(asked, folder):
            print(row(len(pairs) + 1, pair), flush=True)
            pairs.append(pair)
    except KeyboardInterrupt:
        print(f"the same command goes on after pair {len(pairs)}", file=sys.stderr)
    if len(pairs) > 1:
        print(*verdict(pairs), sep="\n")
        if asked.write:
            RESULT.write_text(page(conditions, pairs))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.throughput",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("pairs", type=int, nargs="?", default=LEAST_PAIRS)
    parser.add_argument(
        "--per-start", type=int, default=4, help="pairs before both servers start again [default: 4]"
    )
    parser.add_argument("--streams", type=int, default=16, help="concurrent streams [default: 16]")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "throughput")
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.name} among the results")
    own, words = halves(sys.argv[1:])
    asked = parser.parse_args(own, argparse.Namespace(words=words))
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:  # noqa: PLR2004 - the engine's and the clients'
        raise Problem("throughput needs two cores", cause=f"this process has {len(cores)}", fix="nproc")
    asked.client_core, asked.engine_core = cores[0], cores[-1]
    return asked


def measured(asked: argparse.Namespace, folder: Path) -> Iterator[Pair]:
    """Each pair, those that are kept from a run before first."""
    for first in range(0, asked.pairs, asked.per_start):
        numbers = range(first, min(first + asked.per_start, asked.pairs))
        kept = {number: found for number in numbers if (found := read(folder / f"{number + 1}.json"))}
        with ExitStack() as stack:
            servers: dict[str, Server] = {}
            for number in numbers:
                if number not in kept:
                    servers = servers or stack.enter_context(started(asked, first // asked.per_start))
                    kept[number] = compared(servers, asked, number, first // asked.per_start)
                    storage.write_text(folder / f"{number + 1}.json", json.dumps(asdict(kept[number])))
                yield kept[number]


def read(file: Path) -> Pair | None:
    if not file.exists():
        return None
    found = json.loads(file.read_text())
    return Pair(found["start"], found["load"], tuple(Burst(**each) for each in found["bursts"]))


@contextmanager
def started(asked: argparse.Namespace, start: int) -> Iterator[dict[str, Server]]:
    """Both servers, ready and warm; they start in turns, too."""
    os.sched_setaffinity(0, {asked.client_core})
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        model = demo.make_model(MADE, Path(folder) / "model")
        found = {}
        for way in WAYS if start % 2 == 0 else reversed(WAYS):
            found[way] = stack.enter_context(serving(way, asked, model, Path(folder) / "state"))
        for server in found.values():
            burst(server, server, asked, -1 - start)
        yield found


@contextmanager
def serving(way: str, asked: argparse.Namespace, model: Path, state: Path) -> Iterator[Server]:
    port = find_free_port()
    pinned = ("taskset", "--cpu-list", str(asked.engine_core))
    command = served(model, port, asked.words)
    command = command.replace(argv=(*pinned, *command.argv)).add_variables({"MEDLEY_STATE": str(state)})
    if way == "raw":
        found = raw(command, port)
        command = found.replace(argv=(*pinned, *found.argv))
    lines: list[str] = []
    engine = Process(command, lines.append)
    try:
        await_ready(engine, port, lines)
        server = Server(way, port, engine)
        if way == "medley":  # it started on the engine's core, so that the engine did
            for task in Path(f"/proc/{engine.pid}/task").iterdir():
                os.sched_setaffinity(int(task.name), {asked.client_core})
        require_pinned(server, asked.engine_core)
        yield server
    finally:
        engine.stop(grace_s=60)


def served(model: Path, port: int, words: Sequence[str]) -> Command:
    name = ("--served-model-name", "made")
    return Command((sys.executable, "-m", "medley", "serve", str(model), "--port", str(port), *name, *words))


def raw(command: Command, port: int) -> Command:
    """The engine's command as `serve --dry-run` prints it, at a port, without medley's variables."""
    asked = process.run(command.replace(argv=(*dry(command.argv),)), limit_s=120)
    line = next((line for line in asked.lines if line.startswith("{")), None)
    if line is None:
        raise Problem("serve prints no command", cause="\n".join(asked.lines[-5:]), fix=str(command))
    said = json.loads(line)
    at = said["argv"].index("--uds")
    argv = (*said["argv"][:at], "--host", "127.0.0.1", "--port", str(port), *said["argv"][at + 2 :])
    env = {name: value for name, value in said["env"].items() if not name.startswith("MEDLEY_")}
    return Command(argv, env, tuple(said["unset"]))


def dry(argv: Sequence[str]) -> Iterator[str]:
    """The words of a dry run; flags for the engine stay last."""
    at = argv.index("--") if "--" in argv else len(argv)
    yield from (*argv[:at], "--dry-run", "--json", *argv[at:])


def await_ready(engine: Process, port: int, lines: Sequence[str]) -> None:
    deadline = time.monotonic() + READY_LIMIT_S
    while not readiness.request_probe_answer(f"http://127.0.0.1:{port}/v1", "made"):
        if engine.wait(0.5) is not None or time.monotonic() > deadline:
            raise Problem("the server is not ready", cause="\n".join(lines[-20:]), fix=str(engine.command))


def require_pinned(server: Server, core: int) -> None:
    """Every thread of the engine may use this core and no other, or the figures say nothing."""
    for each in server.engine():
        for task in Path(f"/proc/{each.pid}/task").iterdir():
            if (cores := os.sched_getaffinity(int(task.name))) != {core}:
                raise Problem(
                    f"{server.way}: a thread of {each.name()} is not on core {core}",
                    cause=f"it may use {sorted(cores)}",
                    fix="start without flags that bind the engine's threads",
                )


def compared(servers: dict[str, Server], asked: argparse.Namespace, number: int, start: int) -> Pair:
    """One pair: there and back, so that what changes steadily meets both alike."""
    one, other = (servers[way] for way in (WAYS if number % 2 == 0 else reversed(WAYS)))
    turns = ((one, other, 0), (other, one, 0), (other, one, 1), (one, other, 1))
    bursts = tuple(burst(asks, rests, asked, 2 * number + half) for asks, rests, half in turns)
    return Pair(start, os.getloadavg()[0], bursts)


def burst(asks: Server, rests: Server, asked: argparse.Namespace, number: int) -> Burst:
    """All streams at once, each ROUNDS prompts; a wrong count of tokens is a Problem."""
    count = asked.streams * ROUNDS
    numbers = range(number * count, (number + 1) * count)
    before, idle, began = asks.cpu_s(), rests.cpu_s(), time.monotonic()
    with ThreadPoolExecutor(asked.streams) as pool:
        tokens = sum(pool.map(lambda each: answered(asks.port, each), numbers))
    seconds = time.monotonic() - began
    return Burst(asks.way, tokens, seconds, asks.cpu_s() - before, (rests.cpu_s() - idle) / seconds)


def answered(port: int, number: int) -> int:
    body = {
        "model": "made",
        "prompt": prompt(number % 10**7, PROMPT_TOKENS),
        "max_tokens": TOKENS,
        "temperature": 0,
        "ignore_eos": True,
    }
    found = stream(port, body)
    if found.tokens != TOKENS:
        raise Problem("wrong answer", cause=f"{found}, not {TOKENS} tokens", fix="medley logs")
    return TOKENS


def described(asked: argparse.Namespace) -> str:
    """The conditions of a run; pairs are kept for the same ones only."""
    model = ", ".join(f"{name} {value}" for name, value in MADE.to_table().items())
    tree = process.run(Command(("git", "describe", "--always", "--dirty")), limit_s=20)
    cpu = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line), "")
    here = tree.lines[0] if tree.lines else "of unknown commit"
    return "\n".join(
        (
            f"medley {here};{cpu.partition(':')[2]}, {os.cpu_count()} cores",
            f"both engines on core {asked.engine_core}, medley and clients on core {asked.client_core}",
            f"model: {model}",
            f"{asked.streams} streams, prompts of {PROMPT_TOKENS} tokens, {TOKENS} tokens each, streamed",
            f"a pair is 4 bursts of {asked.streams * ROUNDS} requests; a start for {asked.per_start} pairs",
            f"serve's words: {' '.join(asked.words) or 'none'}",
        )
    )


def row(number: int, pair: Pair) -> str:
    return (
        f"pair {number:2}: medley {pair.rate('medley'):6.1f} tokens/s, raw {pair.rate('raw'):6.1f}, "
        f"ratio {pair.ratio:.3f}; of processor time {pair.ratio_of_cpu:.3f}; load {pair.load:.1f}"
    )


def intervals(pairs: Sequence[Pair]) -> list[tuple[str, Interval]]:
    """By pairs, and by starts where there are two or more."""
    found = [(f"{len(pairs)} pairs", mean_ratio([each.ratio for each in pairs]))]
    starts = [
        statistics.geometric_mean(each.ratio for each in pairs if each.start == start)
        for start in sorted({each.start for each in pairs})
    ]
    return [*found, (f"the means of {len(starts)} starts", mean_ratio(starts))] if len(starts) > 1 else found


def verdict(pairs: Sequence[Pair]) -> Iterator[str]:
    found = intervals(pairs)
    for name, interval in found:
        yield f"medley/raw by {name}: {interval}, 95 %"
    cpu = mean_ratio([each.ratio_of_cpu for each in pairs])
    yield f"of the engine's processor time: {cpu}"
    yield f"median of the ratios: {statistics.median(each.ratio for each in pairs):.3f}"
    idle = {way: statistics.mean(each.idle(way) for each in pairs) for way in WAYS}
    yield f"of the core while the other one was asked: medley {idle['medley']:.1%}, raw {idle['raw']:.1%}"
    widest = max((interval for _, interval in found), key=lambda each: each.half_width)
    met = widest.half_width <= MOST_HALF_WIDTH and widest.low >= LEAST_RATIO and len(pairs) >= LEAST_PAIRS
    yield f"{'Met' if met else 'Not met'}: half-width {widest.half_width:.1%}, lower bound {widest.low:.3f}."
    yield (
        f"Needed: at most {MOST_HALF_WIDTH:.0%}, at least {LEAST_RATIO}, and {LEAST_PAIRS} pairs; "
        f"there are {len(pairs)}."
    )


def page(conditions: str, pairs: Sequence[Pair]) -> str:
    words = " ".join(sys.argv[1:])
    day = datetime.now(UTC).date()
    rows = (row(number, pair) for number, pair in enumerate(pairs, 1))
    lines = (
        f"python -m benchmarks.throughput {words}      ({day})",
        "",
        conditions,
        "",
        *rows,
        "",
        *verdict(pairs),
    )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    try:
        main()
    except Problem as problem:
        sys.exit(str(problem))
