"""What every verb makes of a damaged file in medley's state or cache.

    python -m benchmarks.damaged_state [--verbs WORD,...] [--real N] [--workers N] [--write]     as root

A state and a cache with every file that medley writes are made by its own writers. Then each file is damaged
in each way, and each verb that reads the state is run on a copy, as a user who is not root. The process forks
for a run, so that the modules are imported once; every Nth run is also one of a real `medley`. It counts

traceback  Python's own words in the output
hang       no end within 20 s, three times
exit code  another one than 0 and 1
silent     exit code 1 and no word

It is started again in a mount namespace where that user can read the source and the Python.
"""

import argparse
import contextlib
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from medley import process
from tests import damaged_state
from tests.damaged_state import LOOK, NOBODY, PORT, End, Place, damages
from tests.web_server import answering

RESULT = Path(__file__).parent / "results" / "damaged_state.txt"
VERBS: Sequence[str] = (
    *("", "status", "status --json", f"stop --port {PORT}", "stop", "logs", "logs --events", "top --once"),
    *("models", "plan demo", f"plan {LOOK}", "serve demo --dry-run", "chat hello"),
    *("connect curl", "explain", "doctor", "facts", "ports", "env list", "env clean", "env path vllm-cpu"),
    *("service show", "bench history", "bench show", "bench --dry-run", "collective-test"),
    *("link show", "ray-worker 127.0.0.1 --dry-run", "ray-stop", "models rm demo --yes"),
    "check",
)
CARDS = b'{"data": [{"id": "tiny", "max_model_len": 8192}]}'
_BY_AGENT = ("logs", "logs --events", "top --once")
"""They ask an agent, a process of its own that is not traced and takes seconds to start: a sample of all."""
_EVERY_OF_AGENTS = 5
_OF_AGENTS = re.compile(
    r"state($|/(units|serving|logs)|/events\.(jsonl|counts)|/ray)(?!.*\.(lock|starting)$)"
)
_TRIES = 3
"""Of a run past its limit: on a busy machine one may be, and a hang is past it each time."""
_SHARED_BYTES = 1 << 20
_INSIDE = "MEDLEY_DAMAGED_STATE"


@dataclass(frozen=True)
class Case:
    file: Path
    damage: str
    verb: str

    @property
    def words(self) -> list[str]:
        return self.verb.split()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--verbs", default="", help="verbs, with commas between them [default: all]")
    parser.add_argument("--damages", default="", help="the same of damages; whole is none")
    parser.add_argument(
        "--real", type=int, default=50, metavar="N", help="every Nth run as a process of its own"
    )
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--log", type=Path, help="file for the output of each run with a fault")
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.name} among the results")
    asked = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("run it as root: it gives files to root and reads them as another user")
    if _INSIDE not in os.environ:
        sys.exit(enter_namespace())
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="medley-damaged-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        counts = Counter[tuple[str, str, str, bool]]()
        faults = []
        for case, end, is_real in ends(Path(folder), asked):
            found = end.faults
            counts.update((case.damage, case.verb, fault, is_real) for fault in (*found, "runs"))
            if found:
                faults.append(f"{', '.join(found)}: medley {case.verb}: {case.file} is {case.damage}")
            if found or case.damage == "whole":
                log(asked.log, faults[-1] if found else case.verb, end)
    text = "\n".join(report(counts, faults, time.monotonic() - began))
    print(text)
    if asked.write:
        RESULT.write_text(text + "\n")
    sys.exit(bool(faults))


def enter_namespace() -> int:
    """Run this again where another user can reach the Python and the source, wherever they lie."""
    needed = {Path(each).resolve() for each in (sys.base_prefix, sys.prefix, Path(__file__).parents[1])}
    outer = [up for each in needed for up in reversed(each.parents) if not up.stat().st_mode & 1]
    closed = {each for each in outer if not any(each.is_relative_to(up) for up in outer if up != each)}
    steps = ["set -e"]
    for place in closed:
        inside = sorted(each for each in needed if each.is_relative_to(place))
        steps += ["kept=$(mktemp -d)"]
        steps += [f"mkdir $kept/{nth}; mount --bind {each} $kept/{nth}" for nth, each in enumerate(inside)]
        steps += [f"mount -t tmpfs -o mode=755 tmpfs {place}"]
        steps += [f"mkdir -p {each}; mount --bind $kept/{nth} {each}" for nth, each in enumerate(inside)]
    steps += [f"cd {Path(__file__).parents[1]}", 'exec "$@"']
    command = ("unshare", "--mount", "bash", "-c", "; ".join(steps), "bash")
    env = {**os.environ, _INSIDE: "1", "HF_HUB_OFFLINE": "1"}  # which the hub's library reads when imported
    again = (sys.executable, "-m", "benchmarks.damaged_state", *sys.argv[1:])
    return subprocess.run((*command, *again), env=env, check=False).returncode


def ends(folder: Path, asked: argparse.Namespace) -> Iterator[tuple[Case, End, bool]]:
    """Make the state, and yield how each run ended."""
    place = Place(folder / "all")
    make_all(place)
    (answers := folder / "answers").mkdir()
    answers.chmod(0o777)
    process.ask_host = damaged_state.asking_once(answers)
    with servers(folder, place):
        verbs = [verb for verb in VERBS if not asked.verbs or verb in asked.verbs.split(",")]
        read = {verb: files_of(verb, folder, place.files()) for verb in verbs}
        of_agents = [file for file in place.files() if _OF_AGENTS.match(str(file))]
        cases = [Case(Path("state"), "whole", verb) for verb in verbs]
        for verb, files in read.items():
            of_verb = [
                Case(file, damage, verb)
                for file in (of_agents if verb in _BY_AGENT else files)
                for damage in damages(place.root / file)
            ]
            cases += of_verb[::_EVERY_OF_AGENTS] if verb in _BY_AGENT else of_verb
        cases = [each for each in cases if not asked.damages or each.damage in asked.damages.split(",")]
        print(f"{len(cases)} runs, of {len(place.files())} files and folders", flush=True)
        with multiprocessing.get_context("fork").Pool(asked.workers) as pool:
            jobs = ((nth, case, folder, asked.real) for nth, case in enumerate(cases))
            for nth, found in enumerate(pool.imap_unordered(run_case, jobs, chunksize=4), 1):
                yield from found
                if nth % 500 == 0:
                    print(f"{nth} of {len(cases)}", flush=True)


def files_of(verb: str, folder: Path, files: Sequence[Path]) -> list[Path]:
    """Return the files that a verb opens, lists or looks up where none is damaged."""
    trace, place = folder / "trace", copied(folder, "traced")
    trace.touch()
    trace.chmod(0o666)
    home, own = place.root / "home", verb.startswith("stop")
    damaged_state.run(verb.split(), place.environ, home, uid=NOBODY, own=own, trace=trace)
    lines = set(trace.read_text(errors="replace").splitlines())
    paths = {Path(line).relative_to(place.root) for line in lines if line.startswith(f"{place.root}/")}
    trace.unlink()
    shutil.rmtree(place.root)
    around = paths | {up for path in paths for up in path.parents}
    return [file for file in files if file in around or (file.parent in paths)]


def copied(folder: Path, name: str) -> Place:
    """Copy the whole state to folder/NAME, as files of the user who is not root; large files are shared."""
    place = Place(folder / name)

    def copy(source: str, target: str) -> None:
        if Path(source).stat().st_size > _SHARED_BYTES:
            os.link(source, target)
        else:
            shutil.copy(source, target)

    shutil.copytree(folder / "all", place.root, symlinks=True, copy_function=copy)
    for path in (place.root, *place.root.rglob("*")):
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    return place


def make_all(place: Place) -> None:
    """Fill the place in a process of its own."""
    code = (
        "import sys; from tests import damaged_state; sys.argv = ['', 'explain']; damaged_state.write_all()"
    )
    (place.root / "home").mkdir(parents=True)
    env = {**os.environ, **place.environ}
    subprocess.run((sys.executable, "-c", code), env=env, check=True, stdout=subprocess.DEVNULL)


@contextlib.contextmanager
def servers(folder: Path, place: Place) -> Iterator[None]:
    """Let two engines of root answer, with their records in the state."""
    sockets = {}
    for port in (PORT, damaged_state.OTHER_PORT):
        sockets[port] = folder / "run" / str(port)
        sockets[port].mkdir(parents=True)
    ready, holder = os.pipe(), os.fork()
    if not holder:
        os.environ |= place.environ
        with contextlib.ExitStack() as running:
            for at in sockets.values():
                running.enter_context(answering({"/v1/models": CARDS}, at / "engine.sock"))
                (at / "engine.sock").chmod(0o777)
            running.enter_context(damaged_state.noted_servers(sockets))
            os.write(ready[1], b"1")
            while os.getppid() != 1:
                time.sleep(1)
        os._exit(0)
    os.read(ready[0], 1)
    try:
        yield
    finally:
        os.kill(holder, 9)


def run_case(job: tuple[int, Case, Path, int]) -> list[tuple[Case, End, bool]]:
    nth, case, folder, real = job
    found = []
    for is_real in (False, True) if nth % real == 0 else (False,):
        place = copied(folder, f"{nth}-{is_real}")
        if case.damage != "whole":
            damages(place.root / case.file)[case.damage](place.root / case.file)
        home = place.root / "home"
        if is_real:
            found.append((case, run_real(case, place.environ, home), True))
        else:
            own = case.verb.startswith("stop")
            for _ in range(_TRIES):
                end = damaged_state.run(case.words, place.environ, home, uid=NOBODY, own=own)
                if end.status is not None:
                    break
            found.append((case, end, False))
        shutil.rmtree(place.root, ignore_errors=True)
    return found


def run_real(case: Case, environ: Mapping[str, str], folder: Path) -> End:
    user = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
    began = time.monotonic()
    try:
        done = subprocess.run(
            (*user, sys.executable, "-m", "medley", *case.words),
            env={**environ, "PYTHONDONTWRITEBYTECODE": "1"},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=damaged_state.LIMIT_S * 3,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        return End(None, (error.stdout or b"").decode(errors="replace"), time.monotonic() - began)
    return End(done.returncode, done.stdout.decode(errors="replace"), time.monotonic() - began)


def log(file: Path | None, fault: str, end: End) -> None:
    if file:
        with file.open("a", encoding="utf-8") as kept:
            kept.write(f"{fault}: {end.seconds:.1f} s, exit {end.status}\n{end.output[-3000:]}\n\n")


def report(
    counts: Mapping[tuple[str, str, str, bool], int], faults: Sequence[str], seconds: float
) -> Iterator[str]:
    real = sum(count for (_, _, what, is_real), count in counts.items() if what == "runs" and is_real)
    runs = sum(count for (_, _, what, _), count in counts.items() if what == "runs")
    python = sys.version.split()[0]
    yield f"{runs} runs, {real} of them real processes, in {seconds / 60:.0f} minutes; Python {python}"
    yield "python -m benchmarks.damaged_state --write"
    for nth, title in enumerate(("DAMAGE", "VERB")):
        yield ""
        yield f"{title:<40} RUNS  TRACEBACKS  HANGS  EXIT CODES  SILENT"
        for name in dict.fromkeys(key[nth] for key in counts):
            cells = [
                sum(count for key, count in counts.items() if key[nth] == name and key[2] == what)
                for what in ("runs", "traceback", "hang", "exit code", "silent")
            ]
            shown = name if nth == 0 else f"medley {name}".strip()
            yield f"{shown:<40} {cells[0]:>4}  {cells[1]:>10}  {cells[2]:>5}  {cells[3]:>10}  {cells[4]:>6}"
    yield ""
    yield from faults or ["no fault"]


if __name__ == "__main__":
    main()
