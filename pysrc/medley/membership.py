"""A membership is this host's part in a Ray cluster, from `ray-head` or `ray-worker` until `ray-stop`."""

import contextlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from medley import contained_ray, ending, failure, family, machine, ray, shaped, store, transcript, units
from medley.command import Command
from medley.imaged import Imaged
from medley.problem import Problem
from medley.process_identity import identified
from medley.transcript import Transcript
from medley.variables import UNSET
from medley.venv import Environment

_START_LIMIT_S = 90
_ASK_LIMIT_S = 30
UP = "Ray runtime started"
UNIT = "medley-ray"


@dataclass(frozen=True)
class Membership:
    """As it is noted on this host while it lasts."""

    role: str
    """`head` or `worker`."""
    head: str
    """HOST:PORT of the head."""
    address: str
    interface: str
    environment: str
    """The folder of the engine environment whose Ray runs."""
    token: str
    image: Mapping[str, Any] | None = None
    """What its Ray runs out of instead, as imaged.Choice has it."""


def folder() -> Path:
    """Short, because Ray keeps sockets below it, whose paths may have 107 letters."""
    return store.state() / "ray"


def noted() -> Membership | None:
    """What was noted of it, if its processes are still there."""
    found = last()
    return found if found and (processes() or contained_ray.runs()) else None


def last() -> Membership | None:
    """What was noted of it and nobody ended, also where its processes are gone."""
    return store.record(_note(), Membership)


def require_none() -> None:
    """Raise a Problem where this host takes part in a cluster already."""
    found = noted()
    if found:
        raise Problem(
            f"this host is in a cluster already, as its {found.role}",
            cause=f"its head is {found.head}",
            fix="medley status shows it; medley ray-stop ends it here",
        )


def processes() -> set[int]:
    """Those of our cluster on this host: all that carry our mark."""
    return ray.marked(family.environments(), str(folder()))


def stop() -> int:
    """End them all, and what keeps them; returns how many there were."""
    found = identified(processes())
    units.stop(UNIT)
    ending.end(found, grace_s=3)
    # What runs in a container may be another user's, so that only its name is ours.
    contained = contained_ray.ended()
    _note().unlink(missing_ok=True)
    return len(found) or int(contained)


@contextlib.contextmanager
def begun(command: Command, membership: Membership) -> Iterator[None]:
    """Run `ray start`, and note the membership when the body is done; if that fails, end what was begun."""
    store.make(folder())
    try:
        _start(command, membership.image)
        yield
        note(membership)
    except BaseException:
        stop()
        raise


def note(membership: Membership) -> None:
    if membership.image:
        contained_ray.note(membership.image["runtime"])
    store.write(_note(), json.dumps(asdict(membership)))


def _start(command: Command, image: Mapping[str, Any] | None) -> None:
    if image:
        contained_ray.ended()
        contained_ray.note(image["runtime"])
    finished = machine.run(command, limit_s=_START_LIMIT_S)
    if image and not finished.status:
        finished = contained_ray.up(image["runtime"], UP, _START_LIMIT_S)
    if finished.status:
        problem = Problem(
            "Ray could not be started",
            cause="\n".join(finished.lines[-6:]) or f"ray start exited with {finished.status}",
            fix=f"run it by itself: {command}",
        )
        raise failure.known_in(problem, finished.lines)


def ask(
    environment: Environment | Imaged,
    token: Path,
    verb: str,
    address: str,
    *rest: str,
    script: str = "cluster.py",
    limit_s: float = _ASK_LIMIT_S,
) -> Mapping[str, Any]:
    """What a script of inside/ says of the cluster whose head is at `address`."""
    finished = machine.run(asked(environment, token, script, verb, address, *rest), limit_s=limit_s)
    return _answer(finished.lines, token, address)


def tell(
    environment: Environment | Imaged,
    token: Path,
    head: str,
    address: str,
    answers: Transcript,
    *,
    note: Mapping[str, Any] | None = None,
) -> None:
    """Keep with the head at HOST:PORT what this host says of itself, and of a head its terms."""
    file = folder() / "facts.txt"
    store.write(file, transcript.text(answers))
    terms = [json.dumps(note)] if note else []
    ask(environment, token, "note" if note else "tell", head, address, str(file), *terms)


@contextlib.contextmanager
def held(
    environment: Environment | Imaged, token: Path, address: str, own: str, slots: Mapping[str, int]
) -> Iterator[None]:
    """While the body runs nobody gets these slots, by host: what is started then lands elsewhere."""
    if not slots:
        yield
        return
    lines: list[str] = []
    words = (f"{host}={count}" for host, count in slots.items())
    process = machine.Process(
        asked(environment, token, "cluster.py", "hold", address, own, *words), lines.append
    )
    try:
        deadline = time.monotonic() + _ASK_LIMIT_S
        while not _said(lines) and process.wait(0.1) is None and time.monotonic() < deadline:
            pass
        _answer(lines, token, address)
        yield
    finally:
        process.stop(grace_s=5)


def asked(
    environment: Environment | Imaged, token: Path, script: str, *words: str, reads: tuple[Path, ...] = ()
) -> Command:
    """A script of inside/ that talks to a cluster, as the environment's Python runs it; it `reads` these."""
    env = {each.name: each.value for each in ray.variables(token)}
    path = Path(__file__).parent / "inside" / script
    return environment.started(
        Command((str(environment.python), str(path), *words), env, UNSET), path.parent, *reads
    )


def _said(lines: Sequence[str]) -> str | None:
    return next((line for line in reversed(lines) if line.startswith("{")), None)


def _answer(lines: Sequence[str], token: Path, address: str) -> Mapping[str, Any]:
    said = _said(lines)
    table = shaped.table(said or "") or {"error": "", "said": "\n".join(lines[-3:])}
    if "error" not in table:
        return table
    if "Authentication" in table["error"] or "InvalidAuthToken" in table["said"]:
        raise Problem(
            f"the cluster at {address} does not take this token",
            cause=f"{token} is not the token of its head",
            fix="bring the head's: medley ray-worker HEAD --token-file FILE",
        )
    raise Problem(
        f"the cluster at {address} does not answer", cause=table["said"], fix="medley status on its head"
    )


def _note() -> Path:
    return store.state() / "ray.json"
