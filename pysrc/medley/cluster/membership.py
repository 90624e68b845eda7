"""Start Ray on this host, record its membership in a cluster, and ask the cluster."""

import contextlib
import json
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from medley import explain, json_shape, process, process_identity, storage, transcript
from medley.cluster import ray, units
from medley.command import UNSET, Command
from medley.environment import container, container_image, container_runtime, payload, virtualenv
from medley.environment.container import Runtime
from medley.environment.container_image import ContainerEnvironment
from medley.environment.virtualenv import Environment
from medley.errors import Problem, in_words
from medley.process import Finished, NotFinished, Process, wait_until
from medley.process_identity import Identity
from medley.transcript import Transcript

UP = "Ray runtime started"
UNIT = "medley-ray"
EngineEnvironment = Environment | ContainerEnvironment
_START_LIMIT_S = 90
_ASK_LIMIT_S = 30
_NO_ANSWER = "the program that asked it ended without an answer"
_CONNECT_LIMIT_S = 3


@dataclass(frozen=True)
class Membership:
    """Membership of this host in a Ray cluster, recorded while it lasts."""

    role: str
    """`head` or `worker`."""
    head: str
    """HOST:PORT of the head."""
    address: str
    interface: str
    environment: str
    token: str
    image: Mapping[str, Any] | None = None
    """The container image of its Ray, if any."""
    table: Mapping[str, str] = field(default_factory=dict)
    nccl: str | None = None
    """The user's own libnccl.so.2, instead of the engine environment's."""
    nccl_written: str | None = None
    """The same path as the user wrote it, to compare with cluster.toml."""

    def engine_environment(self) -> EngineEnvironment:
        """Return the engine environment of this host's Ray, which the engine must use too."""
        if self.image:
            return container_image.restore_environment(self.image)
        there = virtualenv.open_environment(Path(self.environment))
        if there is None:
            raise Problem(
                "the engine environment of this cluster is gone",
                cause=f"{self.environment} does not exist any more",
                fix="medley ray-stop; then: medley ray-head",
            )
        return there

    def ask(
        self, verb: str, *words: str, script: str = "ray_state.py", limit_s: float = _ASK_LIMIT_S
    ) -> Mapping[str, Any]:
        """Run a script of payload/ on this cluster and return its answer."""
        if self.role != "head":
            _require_reachable(self.head)
        try:
            finished = process.run(self.asked(script, verb, self.head, *words), limit_s=limit_s)
        except NotFinished as problem:
            raise _silent_head(self.head, problem.cause) from problem
        return _answer(finished.lines, Path(self.token), self.head)

    def asked(self, script: str, *words: str) -> Command:
        return asked(self.engine_environment(), Path(self.token), script, *words)

    def tell(self, answers: Transcript, *, note: Mapping[str, Any] | None = None) -> None:
        """Store this host's facts on the head; a head adds its terms (`note`)."""
        file = folder() / "facts.txt"
        storage.write(file, transcript.text(answers))
        terms = [json.dumps(note)] if note else []
        self.ask("note" if note else "tell", self.address, str(file), *terms)


def _require_reachable(head: str) -> None:
    """Raise a Problem where a worker cannot connect to its head: Ray's own client tries for half a minute."""
    address, _, port = head.rpartition(":")
    try:
        socket.create_connection((address, int(port)), timeout=_CONNECT_LIMIT_S).close()
    except OSError as error:
        raise _silent_head(head, in_words(error)) from error


def _silent_head(head: str, cause: str) -> Problem:
    address = head.rpartition(":")[0]
    return Problem(
        f"the head {head} does not answer",
        cause=cause,
        fix=f"ip -brief link; ping -c 3 {address}  # if it answers, on the head: medley up",
    )


def folder() -> Path:
    """Return Ray's folder; its path is short, because a socket's may have 107 characters."""
    return storage.state() / "ray"


def noted() -> Membership | None:
    found, runtime = last(), _container_runtime()
    if found and (processes() or (runtime and container_runtime.is_running(runtime, _container_name()))):
        return found
    return None


def last() -> Membership | None:
    """Return the recorded membership, even where its processes are gone."""
    return storage.read_record(_note(), Membership)


def require_none() -> None:
    if found := noted():
        raise Problem(
            f"this host is in a cluster already, as its {found.role}",
            cause=f"its head is {found.head}",
            fix="medley status; or leave that cluster: medley ray-stop",
        )


def processes() -> set[Identity]:
    """Find the processes of this user's cluster on this host by their mark."""
    environments = process_identity.read_environments()
    return {
        each for each, env in environments.items() if ray.MARK in env and _is_ours(each, Path(env[ray.MARK]))
    }


def _is_ours(process: Identity, mark: Path) -> bool:
    """Whether this user owns a process whose mark is this state folder.

    Root sees the processes of containers, where the same path is another folder.
    """
    place = Path(f"/proc/{process.pid}")
    with contextlib.suppress(OSError):
        if place.stat().st_uid != os.geteuid():
            return False
        if folder().exists():
            return Path(f"{place}/root{mark}").samefile(folder())
        return mark == folder() and (place / "ns/mnt").readlink() == Path("/proc/self/ns/mnt").readlink()
    return False


def stop() -> int:
    """End all processes of the cluster here and their supervisor; returns how many there were."""
    found = processes()
    units.stop(UNIT)
    process_identity.end_processes(found, grace_s=3)
    # What runs in a container may be another user's, so that only its name is ours.
    contained = _end_container()
    storage.remove_file(_note())
    return len(found) or int(contained)


@contextlib.contextmanager
def begun(command: Command, membership: Membership) -> Iterator[None]:
    """Run `ray start`, and record the membership after the body; if that fails, end Ray."""
    storage.make(folder())
    try:
        _start(command, membership.image)
        yield
        note(membership)
    except BaseException:
        stop()
        raise


def note(membership: Membership) -> None:
    if membership.image:
        storage.write(_container_note(), membership.image["runtime"])
    storage.write(_note(), json.dumps(asdict(membership)))


def _start(command: Command, image: Mapping[str, Any] | None) -> None:
    if image:
        _end_container()
        # Before it starts, so that a later medley can end it.
        storage.write(_container_note(), image["runtime"])
    finished = process.run(command, limit_s=_START_LIMIT_S)
    if image and not finished.status:
        seen: list[str] = []
        follow = Command((image["runtime"], "logs", "--follow", _container_name()))
        logs = Process(follow, lambda line: seen.append(line) if UP in line else None)
        try:
            wait_until(lambda: seen or logs.poll(), _START_LIMIT_S)
        finally:
            logs.stop(grace_s=5)
        finished = Finished(0 if seen else 1, tuple(logs.last))
    if finished.status:
        problem = Problem(
            "Ray did not start",
            cause="\n".join(finished.lines[-6:]) or f"ray start exited with {finished.status}",
            fix=f"run it by hand: {command}",
        )
        raise explain.explain_output(problem, finished.lines)


def _end_container() -> bool:
    runtime = _container_runtime()
    found = runtime is not None and container_runtime.remove_container(runtime, _container_name())
    storage.remove_file(_container_note())
    return found


def _container_name() -> str:
    return container.name_container(container_image.RAY_ROLE)


def _container_runtime() -> Runtime | None:
    name = storage.read_text(_container_note(), errors="replace")
    return None if name is None else "docker" if name == "docker" else "podman"


def _container_note() -> Path:
    return storage.state() / "ray-container"


def read(environment: EngineEnvironment, token: Path, head: str) -> Mapping[str, Any]:
    """Return the state of the cluster at HOST:PORT, which this host has not joined."""
    command = asked(environment, token, "ray_state.py", "read", head)
    return _answer(process.run(command, limit_s=_ASK_LIMIT_S).lines, token, head)


@contextlib.contextmanager
def held(found: Membership, slots: Mapping[str, int]) -> Iterator[None]:
    """Hold these slots of each host while the body runs, so that Ray places no ranks there."""
    if not slots:
        yield
        return
    lines: list[str] = []
    words = ("hold", found.head, found.address, *(f"{host}={count}" for host, count in slots.items()))
    process = Process(found.asked("ray_state.py", *words), lines.append)
    try:
        wait_until(lambda: json_shape.last_table(lines) or process.poll(), _ASK_LIMIT_S)
        _answer(lines, Path(found.token), found.head)
        yield
    finally:
        process.stop(grace_s=5)


def asked(
    environment: EngineEnvironment, token: Path, script: str, *words: str, reads: tuple[Path, ...] = ()
) -> Command:
    """Return the command that runs a script of payload/ on a cluster; the script `reads` these folders."""
    env = {each.name: each.value for each in ray.variables(token)}
    path = payload.FOLDER / script
    return environment.wrap_command(
        Command((str(environment.python), str(path), *words), env, UNSET), path.parent, *reads
    )


def _answer(lines: Sequence[str], token: Path, address: str) -> Mapping[str, Any]:
    table = json_shape.last_table(lines) or {"error": "", "said": "\n".join(lines[-3:]) or _NO_ANSWER}
    if "error" not in table:
        return table
    if "Authentication" in table["error"] or "InvalidAuthToken" in table["said"]:
        raise Problem(
            f"the cluster at {address} refuses this token",
            cause=f"{token} is not the token of its head",
            fix="copy the head's token file here, then: medley ray-worker HEAD --token-file FILE",
        )
    raise Problem(
        f"the cluster at {address} does not answer", cause=table["said"], fix="medley status on its head"
    )


def _note() -> Path:
    return storage.state() / "ray.json"
