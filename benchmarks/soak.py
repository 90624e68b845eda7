"""Hours of load on a server that medley supervises: false alarms, wrong answers, and what grows.

    python -m benchmarks.soak [SECONDS] [--hosts 1] [--seed N] [--write] [-- SERVE'S WORDS]   as root; 7200 s

The hosts are namespaces of this machine (tests/rack). Over two, the model is a pipeline under Ray; its hosts
have a core each. `serve --restart` serves a made model in float32 with a long context. Phases of load follow
each other in an order that the seed draws:

burst       clients come and go; a quarter of the prompts have an answer that is known from a quiet server
prefill     one or two clients, with prompts of half of the context up to all of it
idle        no request
cut         clients that leave in the middle of a stream
wrong       requests that the engine must refuse, with the status for each

Nothing is broken here, so each fault and each restart in the hosts' events is a false alarm. Every 30 s it
adds up memory, open descriptors and threads of the processes of medley, of the engine and of Ray. Memory is
what the kernel cannot drop: pages of files, of which other programs change this one's share, do not count. It
also counts files: in medley's state, in its cache without environments and images (other programs of this
machine use it, too), and in Ray's folder. Growth is the median slope between all samples (Theil and Sen)
after a warm-up. It has a bound for medley, and is reported for the others. Ctrl-C ends it earlier, and it
prints what it has.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import psutil

from benchmarks.completions import halves
from benchmarks.estimates import slope
from benchmarks.soak_load import MODEL, Load
from medley import process
from medley.command import Command
from medley.model import demo
from medley.schema import DemoSpec
from tests.rack.cluster import STATE, Served, cluster, served
from tests.rack.host import Host, shared_cache
from tests.rack.rack import Rack, up
from tests.rack.spec import Spec

RESULT = Path(__file__).parent / "results" / "soak.txt"
LEAST_S = 7200
SAMPLE_S, LINE_S, WARM_UP_S = 30, 60, 600
PORT = 8000
MADE = DemoSpec(
    layers=6,
    hidden=128,
    heads=4,
    kv_heads=2,
    head_dim=32,
    intermediate=256,
    vocabulary=10_240,
    context=16_384,
    seed=0,
)
ENVIRONMENT = {"TORCHDYNAMO_DISABLE": "1"}
FLAGS = ("--dtype=float32", "-cc.mode=2", "-cc.backend=eager")
"""vLLM's pipeline fails on a CPU with --enforce-eager: 'KeyError: cmpl-…'."""
GROUPS = ("medley", "engine", "ray")
MARKS = {
    "medley": ("-m medley",),
    "engine": ("vllm serve", "VLLM::", "RayWorkerProc", "RayWorkerWrapper"),
    "ray": ("raylet", "gcs_server", "ray::", "/ray/", "ray start"),
}
"""Words of the commands of each group; a process without one belongs to its parent's group."""
BOUNDS = {
    "medley memory, MiB": 2.0,
    "medley descriptors": 2.0,
    "medley state files": 4.0,
    "medley cache files": 4.0,
}
"""Growth in an hour."""
ALARMS = ("fault", "restart")
RAY = f"{STATE}/ray"
"""Ray's own folder: its logs and sockets."""
UNCOUNTED = ("envs", "images")


@dataclass(frozen=True)
class Sample:
    """What was there, at so many seconds since the load began."""

    at_s: float
    amounts: Mapping[str, float]
    engine: frozenset[tuple[str, int, float]]
    """Host, process and start of each program before the engine's API."""


@dataclass
class Run:
    """A run so far."""

    rack: Rack
    load: Load
    server: Served
    began: float = field(default_factory=time.monotonic)
    samples: list[Sample] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def alarms(self) -> list[str]:
        """Faults and restarts, in the events of all hosts and in what `serve` printed."""
        noted = [
            f"{host.name}: {event['kind']}: {event['text']}"
            for host in self.rack.hosts
            for event in events(host)
            if event["kind"] in ALARMS
        ]
        printed = [line for line in list(self.server.lines) if "restarting, attempt" in line]
        ended = self.server.process.poll()
        return [*noted, *printed, *([f"serve ended with {ended.status}"] if ended else [])]

    def engines(self) -> int:
        """How many engines there were: more than one is a restart."""
        return len({each for sample in self.samples for each in sample.engine})


def main() -> None:
    asked = arguments()
    with running(asked) as run:
        worker = threading.Thread(target=run.load.run, args=(asked.seed,), daemon=True)
        worker.start()
        try:
            watch(run, asked.seconds)
        except KeyboardInterrupt:
            print("ended early", file=sys.stderr)
        text = page(run, asked)
        run.load.ends.set()
    print(text)
    if asked.write:
        RESULT.write_text(f"{text}\n")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.soak",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("seconds", type=int, nargs="?", default=LEAST_S)
    parser.add_argument("--hosts", type=int, choices=(1, 2), default=2)
    parser.add_argument("--seed", type=int, default=1)
    text = f"longest prompt and answer, in tokens [default: {MADE.context}]; a prefill takes longer with more"
    parser.add_argument("--context", type=int, default=MADE.context, help=text)
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.name} among the results")
    own, words = halves(sys.argv[1:])
    return parser.parse_args(own, argparse.Namespace(words=words))


@contextmanager
def running(asked: argparse.Namespace) -> Iterator[Run]:
    """A server on a rack, ready; its engine has answered the prompts whose answers are known."""
    with tempfile.TemporaryDirectory() as folder:
        demo.write_model(MADE.replace(context=asked.context), Path(folder))
        Path(folder).chmod(0o755)
        cores = {"host1": "0", "host2": "1"} if asked.hosts > 1 and (os.cpu_count() or 1) > 1 else {}
        spec = Spec(asked.hosts, cores=cores, share=(folder,), name=f"soak-{os.getpid()}")
        with up(spec) as rack:
            head = rack.hosts[0]
            words = ("--restart", "--served-model-name", MODEL, "--port", str(PORT), *asked.words)
            if asked.hosts > 1:
                cluster(rack.hosts)
                words = ("--hosts", "2", "--pp", "2", *words)
            server = served(head, *words, "--", *FLAGS, model=folder, env=ENVIRONMENT)
            load = Load(PORT, head.network)
            try:
                load.learn()
                yield Run(rack, load, server)
            finally:
                load.ends.set()
                server.process.stop()


def watch(run: Run, seconds: float) -> None:
    """Sample, and print a line a minute, until the time is over or the server has ended."""
    sampled = printed = 0.0
    while run.seconds < seconds and run.server.process.poll() is None:
        if run.seconds >= sampled:
            run.samples.append(sample(run))
            sampled += SAMPLE_S
        if run.seconds >= printed:
            print(line(run), flush=True)
            printed += LINE_S
        time.sleep(0.5)
    run.samples.append(sample(run))


def sample(run: Run) -> Sample:
    found: dict[str, float] = {}
    engines = set()
    for host in run.rack.hosts:
        for group, each in grouped(host):
            with suppress(psutil.Error, OSError):  # it has ended meanwhile
                amounts = {
                    "memory, MiB": own_memory(each.pid),
                    "descriptors": each.num_fds(),
                    "threads": each.num_threads(),
                    "processes": 1,
                }
                for name, amount in amounts.items():
                    found[f"{group} {name}"] = found.get(f"{group} {name}", 0) + amount
                if "vllm serve" in " ".join(each.cmdline()):
                    engines.add((host.name, each.pid, each.create_time()))
    return Sample(run.seconds, found | stored(run.rack), frozenset(engines))


def own_memory(pid: int) -> float:
    """What a process has in MiB, without pages of files; of a page that several share, its part (PSS)."""
    rows = (line.split() for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines())
    return sum(int(row[1]) for row in rows if row[0] in {"Pss_Anon:", "Pss_Shmem:"}) / 1024


def grouped(host: Host) -> Iterator[tuple[str, psutil.Process]]:
    """Each process of a host with its group; what has none is left out, such as the host's first process."""
    inside = Path(f"/proc/{host.first_process}/ns/pid").readlink()
    groups: dict[int, str] = {}
    for each in sorted(psutil.process_iter(), key=lambda process: process.pid):
        with suppress(psutil.Error, OSError):  # it has ended meanwhile
            if Path(f"/proc/{each.pid}/ns/pid").readlink() == inside:
                groups[each.pid] = group_of(" ".join(each.cmdline()), groups.get(each.ppid(), ""))
                if groups[each.pid]:
                    yield groups[each.pid], each


def group_of(command: str, parents: str) -> str:
    """The group of a process by its command, else its parent's."""
    return next((name for name, marks in MARKS.items() if any(mark in command for mark in marks)), parents)


def stored(rack: Rack) -> dict[str, float]:
    """Files and their size in MiB, on all hosts."""
    cache = shared_cache()
    folders = {
        "medley state": [host.path(STATE) for host in rack.hosts],
        "medley cache": [each for each in cache.glob("*") if each.name not in UNCOUNTED],
        "ray": [host.path(RAY) for host in rack.hosts],
    }
    found: dict[str, float] = {}
    for name, tops in folders.items():
        sizes = [size for top in tops for size in file_sizes(top, () if name == "ray" else folders["ray"])]
        found |= {f"{name} files": len(sizes), f"{name} stored, MiB": sum(sizes) / 2**20}
    return found


def file_sizes(top: Path, but: Sequence[Path] = ()) -> Iterator[int]:
    """The size of each file below `top`, in bytes, without those below the folders of `but`."""
    for folder, below, names in os.walk(top):
        below[:] = [each for each in below if Path(folder) / each not in but]
        for name in names:
            with suppress(OSError):
                yield (Path(folder) / name).lstat().st_size


def events(host: Host) -> list[dict[str, str]]:
    """The events that medley has kept on a host."""
    file = host.path(f"{STATE}/events.jsonl")
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def line(run: Run) -> str:
    phase, now = run.load.phase, run.samples[-1].amounts
    amounts = "; ".join(
        f"{group} {now.get(f'{group} memory, MiB', 0):.1f} MiB, {now.get(f'{group} descriptors', 0):.0f} fds"
        for group in GROUPS
    )
    return (
        f"{run.seconds / 60:3.0f} min, {phase.kind if phase else 'none':7}: {run.load.counts}, "
        f"alarms {len(run.alarms())} | {amounts}; {now['medley state files']:.0f} files in its state"
    )


def growth(samples: Sequence[Sample], warm_up_s: float) -> dict[str, float]:
    """How much each amount grows in an hour after the warm-up; nothing with less than three samples."""
    used = [each for each in samples if each.at_s >= warm_up_s]
    if len(used) < 3:  # noqa: PLR2004 - with two, one wild sample decides
        return {}
    names = sorted({name for each in used for name in each.amounts})
    return {name: 3600 * slope([(each.at_s, each.amounts.get(name, 0.0)) for each in used]) for name in names}


def reasons(run: Run, grown: Mapping[str, float]) -> list[str]:
    """Why the run does not show what it should; empty where it does."""
    done, alarms = run.load.counts.done, run.alarms()
    found = [
        (run.seconds < LEAST_S, f"it ran {run.seconds:.0f} s, less than {LEAST_S}"),
        (bool(alarms), f"{len(alarms)} alarms"),
        (run.engines() != 1, f"{run.engines()} engines, where one should last"),
        (bool(done["wrong"]), f"{done['wrong']} wrong answers"),
        (bool(done["failed"]), f"{done['failed']} requests without an answer"),
        (not grown, "too few samples to tell growth"),
        *(
            (grown.get(name, 0) > most, f"{name}: {grown.get(name, 0):+.2f} an hour, more than {most:g}")
            for name, most in BOUNDS.items()
        ),
    ]
    return [text for true, text in found if true]


def page(run: Run, asked: argparse.Namespace) -> str:
    warm_up_s = min(WARM_UP_S, run.seconds / 3)
    grown = growth(run.samples, warm_up_s)
    why = reasons(run, grown)
    counts = run.load.counts
    tree = process.run(Command(("git", "describe", "--always", "--dirty")), limit_s=20)
    lines = (
        f"python -m benchmarks.soak {' '.join(sys.argv[1:])}      ({datetime.now(UTC).date()})",
        "",
        f"medley {' '.join(tree.lines[:1])}; {asked.hosts} hosts, {os.cpu_count()} cores; seed {asked.seed}",
        f"serve's words: {' '.join(asked.words) or 'none'}",
        f"a model of {MADE.layers} layers with a context of {run.load.context:,} tokens, in float32",
        f"ran {run.seconds:.0f} s; growth after {warm_up_s:.0f} s; load average {os.getloadavg()[1]:.1f}",
        "",
        f"requests: {counts}; the longest prefill took {counts.longest_prefill_s:.0f} s",
        *counts.texts,
        f"alarms: {len(run.alarms())}; engines: {run.engines()}",
        *run.alarms()[:10],
        "",
        *table(run.samples, warm_up_s, grown),
        "",
        f"Not met: {'; '.join(why)}." if why else "Met.",
    )
    return "\n".join(lines)


def table(samples: Sequence[Sample], warm_up_s: float, grown: Mapping[str, float]) -> Iterator[str]:
    """Each amount: the median of the first and of the last three samples, and growth in an hour."""
    used = [each for each in samples if each.at_s >= warm_up_s]
    yield f"{'':24} {'first':>10} {'last':>10} {'an hour':>10} {'at most':>8}"
    for name, amount in grown.items():
        first, last = (
            statistics.median(each.amounts.get(name, 0.0) for each in some) for some in (used[:3], used[-3:])
        )
        most = f"{BOUNDS[name]:g}" if name in BOUNDS else "-"
        yield f"{name:24} {first:10.1f} {last:10.1f} {amount:+10.2f} {most:>8}"


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:  # before the load began
        sys.exit(130)
