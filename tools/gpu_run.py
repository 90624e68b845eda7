"""Run the steps of gpu_run.toml on a host with a GPU that can be had for a short time.

    python tools/gpu_run.py split WHEEL… --into PARTS         before: parts of 40 MiB
    python tools/gpu_run.py join PARTS --into FOLDER          there: wheels again, checked
    python tools/gpu_run.py run --out RESULTS --model FOLDER --engine VIRTUALENV
    python tools/gpu_run.py run … --only facts,model          some steps
    python tools/gpu_run.py run … --dry-run                   print the commands

It needs Python 3.11 and bash, and no other package. A command that fails ends nothing: its status is in
RESULTS/results.jsonl, and its output in RESULTS/STEP/NAME.txt. Each step has a time limit.
"""

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

TOOLS = Path(__file__).resolve().parent
PART_BYTES = 40 << 20
_CORE = "VLLM::EngineCor"  # the kernel keeps 15 letters of a name
_AFTER_S, _END_S = 60, 15


def steps(only: str | None) -> Mapping[str, Mapping[str, Any]]:
    table = tomllib.loads((TOOLS / "gpu_run.toml").read_text(encoding="utf-8"))
    names = only.split(",") if only else list(table)
    if unknown := set(names) - set(table):
        sys.exit(f"no step {', '.join(sorted(unknown))}; there are: {', '.join(table)}")
    return {name: table[name] for name in table if name in names}


def variables(asked: argparse.Namespace) -> dict[str, str]:
    """Return what the commands have; everything that medley keeps lies below the results."""
    return {
        "MEDLEY": asked.medley,
        "ENGINE": str(asked.engine),
        "PYTHON": str(asked.engine / "bin" / "python"),
        "ENGINE_FLAGS": asked.engine_flags,
        "MODEL": str(asked.model),
        "DEVICE": asked.device,
        "STREAMS": asked.streams,
        "PORT": str(asked.port),
        "TOOLS": str(TOOLS),
        "OUT": str(asked.out.resolve()),
        "MEDLEY_STATE": str(asked.out.resolve() / "state"),
    }


def run(asked: argparse.Namespace) -> int:
    env, failed = variables(asked), 0
    for name, step in steps(asked.only).items():
        limit_s = step["limit_s"] * asked.slower
        print(f"{name}: {step['title']} (at most {limit_s:.0f} s)", flush=True)
        if asked.dry_run:
            print(*(f"  {key}: {line}" for key, line in lines(step)), sep="\n")
        else:
            failed += sum(result["status"] != 0 for result in run_step(name, step, env, limit_s))
    if not asked.dry_run:
        print(f"{failed} commands did not end with 0: {asked.out / 'results.jsonl'}")
    return 0


def lines(step: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield from step["commands"].items()
    if "after" in step:
        yield "after", step["after"]


def run_step(
    name: str, step: Mapping[str, Any], env: Mapping[str, str], limit_s: float
) -> Iterator[Mapping[str, Any]]:
    """Run a step's commands, and what comes after them; yield the status and seconds of each."""
    folder = Path(env["OUT"]) / name
    folder.mkdir(parents=True, exist_ok=True)
    ends = time.monotonic() + limit_s
    for key, line in lines(step):
        left_s = _AFTER_S if key == "after" else ends - time.monotonic()
        result = {"step": name, "command": key, **run_line(line, folder / f"{key}.txt", env, left_s)}
        print(f"  {key}: {result['status']} after {result['seconds']} s", flush=True)
        with (folder.parent / "results.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(result) + "\n")
        yield result


def run_line(line: str, output: Path, env: Mapping[str, str], limit_s: float) -> Mapping[str, Any]:
    """Run a line of bash; at its limit all that it started is interrupted, and then killed."""
    if limit_s <= 0:
        return {"status": "not run: the time of the step is over", "seconds": 0}
    begins = time.monotonic()
    with output.open("wb") as file:
        process = subprocess.Popen(
            ["bash", "-c", line],
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status: int | str = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            end_group(process)
            status = f"ended after its limit of {limit_s:.0f} s"
    return {"status": status, "seconds": round(time.monotonic() - begins, 1)}


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Interrupt what a line has started, and kill the rest: jobs in bash's background ignore an interrupt."""
    os.killpg(process.pid, signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_END_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def split(wheels: list[Path], folder: Path) -> int:
    """Write each file in parts that one transfer carries, and their checksums."""
    folder.mkdir(parents=True, exist_ok=True)
    sums: dict[str, dict[str, Any]] = {}
    for wheel in wheels:
        whole, count = hashlib.sha256(), 0
        with wheel.open("rb") as file:
            while part := file.read(PART_BYTES):
                (folder / f"{wheel.name}.{count:03}").write_bytes(part)
                whole.update(part)
                count += 1
        sums[wheel.name] = {"parts": count, "sha256": whole.hexdigest()}
    (folder / "parts.json").write_text(json.dumps(sums, indent=1), encoding="utf-8")
    print(f"{sum(each['parts'] for each in sums.values())} parts of {len(sums)} files in {folder}")
    return 0


def join(parts: Path, folder: Path) -> int:
    """Make the files again; one with a missing or damaged part is named, and the others are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    wrong = []
    for name, told in json.loads((parts / "parts.json").read_text(encoding="utf-8")).items():
        pieces = [parts / f"{name}.{number:03}" for number in range(told["parts"])]
        data = b"".join(piece.read_bytes() for piece in pieces if piece.exists())
        if hashlib.sha256(data).hexdigest() == told["sha256"]:
            (folder / name).write_bytes(data)
        else:
            wrong.append(name)
    for name in wrong:
        print(f"{name}: a part is missing or damaged; bring its parts again", file=sys.stderr)
    return int(bool(wrong))


def signal_core(number: str, port: str) -> int:
    """Send a signal to the engine's core, a descendant of medley's server of this port."""
    record = Path(os.environ["MEDLEY_STATE"]) / "serving" / f"{port}.json"
    server = int(json.loads(record.read_text(encoding="utf-8"))["pid"])
    for pid, name in descendants(server):
        if name == _CORE:
            os.kill(pid, signal.Signals[f"SIG{number}"])
            print(f"SIG{number} to {name} {pid}")
            return 0
    print(f"process {server} has no {_CORE}", file=sys.stderr)
    return 1


def descendants(root: int) -> Iterator[tuple[int, str]]:
    """Yield the processes below this one, each with its name."""
    children: dict[int, list[tuple[int, str]]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, tail = path.read_text(errors="replace").rpartition(")")
        except OSError:
            continue  # it has ended
        children.setdefault(int(tail.split()[1]), []).append((int(path.parent.name), head.partition("(")[2]))
    waiting = [root]
    while waiting:
        for pid, name in children.get(waiting.pop(), []):
            waiting.append(pid)
            yield pid, name


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = made.add_subparsers(dest="verb", required=True)
    runs = verbs.add_parser("run", help="run the steps")
    runs.add_argument("--out", type=Path, required=True, help="folder of the results")
    runs.add_argument("--model", type=Path, required=True, help="folder of a small model")
    runs.add_argument("--engine", type=Path, required=True, help="virtualenv with vLLM")
    runs.add_argument("--engine-flags", default="", help="flags for every start of the engine")
    runs.add_argument("--medley", default="medley", help="command of medley [default: medley]")
    runs.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="[default: cuda]")
    runs.add_argument("--streams", default="1,8,64", help="concurrent streams [default: 1,8,64]")
    runs.add_argument("--slower", type=float, default=1, help="factor for all time limits [default: 1]")
    runs.add_argument("--port", type=int, default=8123, help="[default: 8123]")
    runs.add_argument("--only", help="names of steps, with commas")
    runs.add_argument("--dry-run", action="store_true", help="print the commands; start nothing")
    splits = verbs.add_parser("split", help="split wheels into parts of 40 MiB")
    splits.add_argument("wheels", nargs="+", type=Path)
    splits.add_argument("--into", type=Path, required=True)
    joins = verbs.add_parser("join", help="join the parts, and check them")
    joins.add_argument("parts", type=Path)
    joins.add_argument("--into", type=Path, required=True)
    signals = verbs.add_parser("signal", help="send a signal to the engine's core")
    signals.add_argument("number", choices=("STOP", "CONT", "KILL"))
    signals.add_argument("port")
    return made


def main() -> int:
    asked = parser().parse_args()
    if asked.verb == "run":
        return run(asked)
    if asked.verb == "split":
        return split(asked.wheels, asked.into)
    if asked.verb == "join":
        return join(asked.parts, asked.into)
    return signal_core(asked.number, asked.port)


if __name__ == "__main__":
    sys.exit(main())
