"""Start Ray on this host, record its membership in a cluster, and send requests to the cluster."""

import contextlib
import json
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import field

from medley import json_shape, process, process_identity, storage, transcript
from medley.cluster import ray, units
from medley.command import UNSET_VARIABLES, Command
from medley.environment import container, container_image, container_runtime, payload, virtualenv
from medley.environment.container import Runtime
from medley.environment.container_image import ContainerEnvironment
from medley.environment.virtualenv import Environment
from medley.errors import Problem, describe_error
from medley.process import Process, ProcessResult, ProcessTimeout, wait_until
from medley.process_identity import ProcessIdentity
from medley.transcript import Transcript
from medley.values import Value

STARTED_LINE = "Ray runtime started"
UNIT_NAME = "medley-ray"
EngineEnvironment = Environment | ContainerEnvironment
_START_LIMIT_S = 90
_ANSWER_LIMIT_S = 30
_NO_ANSWER = "the program that asked it ended without an answer"
_TCP_CONNECT_LIMIT_S = 3


class Membership(Value):
    """Membership of this host in a Ray cluster, recorded while it lasts."""

    role: str
    """`head` or `worker`."""
    head: str
    """HOST:PORT of the head."""
    address: str
    interface: str
    environment: str
    """The folder of its engine environment; empty with an image."""
    token: str
    """The path of the file with the token, never the token."""
    image: Mapping[str, Any] | None = None
    """The container image of its Ray, if any."""
    table: Mapping[str, str] = field(default_factory=dict)
    """The user's variables for this host: `[environment]` of cluster.toml."""
    nccl: str | None = None
    """The user's own libnccl.so.2, instead of the engine environment's."""
    nccl_written: str | None = None
    """The same path as the user wrote it, to compare with cluster.toml."""

    def find_engine_environment(self) -> EngineEnvironment:
        """Return the engine environment of this host's Ray, which the engine must use too."""
        if self.image:
            return container_image.restore_environment(self.image)
        virtual_environment = virtualenv.open_environment(Path(self.environment))
        if virtual_environment is None:
            raise Problem(
                "the engine environment of this cluster is gone",
                cause=f"{self.environment} does not exist any more",
                fix="medley ray-stop; then: medley ray-head",
            )
        return virtual_environment

    def ask(
        self, verb: str, *words: str, script: str = "ray_state.py", limit_s: float = _ANSWER_LIMIT_S
    ) -> Mapping[str, Any]:
        """Run a script of payload/ on this cluster and return its answer."""
        if self.role != "head":
            _require_reachable(self.head)
        try:
            finished = process.run(self.build_command(script, verb, self.head, *words), limit_s=limit_s)
        except ProcessTimeout as problem:
            raise _silent_head_problem(self.head, problem.cause) from problem
        return _parse_answer(finished.lines, Path(self.token), self.head)

    def build_command(self, script: str, *words: str) -> Command:
        return build_payload_command(self.find_engine_environment(), Path(self.token), script, *words)

    def send_facts(self, own_facts: Transcript, *, own_terms: Mapping[str, Any] | None = None) -> None:
        """Store this host's facts on the head; a head adds its own terms."""
        facts_file = get_ray_folder() / "facts.txt"
        storage.write_text(facts_file, transcript.format_transcript(own_facts))
        terms = [json.dumps(own_terms)] if own_terms else []
        self.ask("note" if own_terms else "tell", self.address, str(facts_file), *terms)


def _require_reachable(head: str) -> None:
    """Raise a Problem where a worker cannot connect to its head: Ray's own client tries for half a minute."""
    address, _, port = head.rpartition(":")
    try:
        socket.create_connection((address, int(port)), timeout=_TCP_CONNECT_LIMIT_S).close()
    except OSError as error:
        raise _silent_head_problem(head, describe_error(error)) from error


def _silent_head_problem(head: str, cause: str) -> Problem:
    address = head.rpartition(":")[0]
    return Problem(
        f"the head {head} does not answer",
        cause=cause,
        fix=f"ip -brief link; ping -c 3 {address}  # if it answers, on the head: medley up",
    )


def get_ray_folder() -> Path:
    """Return Ray's folder; its path is short, because a socket's may have 107 characters."""
    return storage.find_state_folder() / "ray"


def find_membership() -> Membership | None:
    """Return the recorded membership if its processes, or its container, run."""
    membership, runtime = read_membership(), _read_container_runtime()
    if membership and (
        find_processes() or (runtime and container_runtime.is_running(runtime, _get_container_name()))
    ):
        return membership
    return None


def read_membership() -> Membership | None:
    """Return the recorded membership, even where its processes are gone."""
    return storage.read_record(_get_membership_file(), Membership)


def require_no_membership() -> None:
    if membership := find_membership():
        raise Problem(
            f"this host is in a cluster already, as its {membership.role}",
            cause=f"its head is {membership.head}",
            fix="medley status; or leave that cluster: medley ray-stop",
        )


def find_processes() -> set[ProcessIdentity]:
    """Return the processes of this user's cluster on this host, by the variable MEDLEY_RAY."""
    variables_by_process = process_identity.read_environments()
    own_processes = set()
    for identity, variables in variables_by_process.items():
        mark = variables.get(ray.MARK_VARIABLE)
        if mark is not None and _is_own_process(identity, Path(mark)):
            own_processes.add(identity)
    return own_processes


def _is_own_process(identity: ProcessIdentity, mark: Path) -> bool:
    """Return whether this user owns a process whose mark is this state folder.

    Root sees the processes of containers, where the same path is another folder.
    """
    proc_folder = Path(f"/proc/{identity.pid}")
    with contextlib.suppress(OSError):
        if proc_folder.stat().st_uid != os.geteuid():
            return False
        if get_ray_folder().exists():
            return Path(f"{proc_folder}/root{mark}").samefile(get_ray_folder())
        return (
            mark == get_ray_folder()
            and (proc_folder / "ns/mnt").readlink() == Path("/proc/self/ns/mnt").readlink()
        )
    return False


def end_ray() -> int:
    """End all processes of the cluster here and their supervisor; return how many; 1 for a container."""
    ray_processes = find_processes()
    units.stop_unit(UNIT_NAME)
    process_identity.end_processes(ray_processes, grace_s=3)
    # Processes in a container may run as another user, so the container is found by its name.
    had_container = _end_container()
    storage.remove_file(_get_membership_file())
    return len(ray_processes) or int(had_container)


@contextlib.contextmanager
def start_ray(command: Command, membership: Membership) -> Iterator[None]:
    """Run `ray start`, and record the membership after the body; if that fails, end Ray."""
    storage.make_folder(get_ray_folder())
    try:
        _run_start_command(command, membership.image)
        yield
        write_membership(membership)
    except BaseException:
        end_ray()
        raise


def write_membership(membership: Membership) -> None:
    if membership.image:
        storage.write_text(_get_container_file(), membership.image["runtime"])
    storage.write_text(_get_membership_file(), json.dumps(membership.to_table()))


def _run_start_command(command: Command, image: Mapping[str, Any] | None) -> None:
    if image:
        _end_container()
        # Before it starts, so that a later medley can end it.
        storage.write_text(_get_container_file(), image["runtime"])
    finished = process.run(command, limit_s=_START_LIMIT_S)
    if image and not finished.status:
        up_lines: list[str] = []
        follow_command = Command((image["runtime"], "logs", "--follow", _get_container_name()))
        log_process = Process(
            follow_command, lambda line: up_lines.append(line) if STARTED_LINE in line else None
        )
        try:
            wait_until(lambda: up_lines or log_process.poll(), _START_LIMIT_S)
        finally:
            log_process.stop(grace_s=5)
        finished = ProcessResult(0 if up_lines else 1, tuple(log_process.last_lines))
    if finished.status:
        problem = Problem(
            "Ray did not start",
            cause="\n".join(finished.lines[-6:]) or f"ray start exited with {finished.status}",
            fix=f"run it by hand: {command}",
        )
        from medley.explain import explain_output  # noqa: PLC0415 - 10 ms, and seldom needed

        raise explain_output(problem, finished.lines)


def _end_container() -> bool:
    runtime = _read_container_runtime()
    was_running = runtime is not None and container_runtime.remove_container(runtime, _get_container_name())
    storage.remove_file(_get_container_file())
    return was_running


def _get_container_name() -> str:
    return container.name_container(container_image.RAY_ROLE)


def _read_container_runtime() -> Runtime | None:
    name = storage.read_text(_get_container_file(), errors="replace")
    if name is None:
        return None
    return "docker" if name == "docker" else "podman"


def _get_container_file() -> Path:
    return storage.find_state_folder() / "ray-container"


def read_cluster_state(environment: EngineEnvironment, token: Path, head: str) -> Mapping[str, Any]:
    """Return the state of the cluster at HOST:PORT, which this host has not joined."""
    command = build_payload_command(environment, token, "ray_state.py", "read", head)
    return _parse_answer(process.run(command, limit_s=_ANSWER_LIMIT_S).lines, token, head)


@contextlib.contextmanager
def reserve_slots(membership: Membership, slots: Mapping[str, int]) -> Iterator[None]:
    """Reserve these slots of each host while the body runs, so that Ray places no ranks there."""
    if not slots:
        yield
        return
    lines: list[str] = []
    arguments = (
        "hold",
        membership.head,
        membership.address,
        *(f"{host}={count}" for host, count in slots.items()),
    )
    holder = Process(membership.build_command("ray_state.py", *arguments), lines.append)
    try:
        wait_until(lambda: json_shape.parse_last_object(lines) or holder.poll(), _ANSWER_LIMIT_S)
        _parse_answer(lines, Path(membership.token), membership.head)
        yield
    finally:
        holder.stop(grace_s=5)


def build_payload_command(
    environment: EngineEnvironment,
    token: Path,
    script: str,
    *words: str,
    readable_folders: tuple[Path, ...] = (),
) -> Command:
    """Return the command that runs a script of payload/ on a cluster; it can read these folders."""
    variables = {variable.name: variable.value for variable in ray.list_client_variables(token)}
    path = payload.FOLDER / script
    return environment.wrap_command(
        Command((str(environment.python), str(path), *words), variables, UNSET_VARIABLES),
        path.parent,
        *readable_folders,
    )


def _parse_answer(lines: Sequence[str], token: Path, address: str) -> Mapping[str, Any]:
    table = json_shape.parse_last_object(lines) or {"error": "", "said": "\n".join(lines[-3:]) or _NO_ANSWER}
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


def _get_membership_file() -> Path:
    return storage.find_state_folder() / "ray.json"
