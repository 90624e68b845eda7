"""Find, fetch and remove the images and containers of docker or podman."""

import itertools
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from medley import json_shape, process, storage
from medley.command import Command
from medley.environment import container
from medley.environment.container import Image, Runtime
from medley.errors import Problem
from medley.progress import SILENT, Progress

_ASK_LIMIT_S = 30
_RUNTIMES: tuple[Runtime, ...] = ("docker", "podman")
_VERSION: dict[Runtime, str] = {"docker": "{{.ServerVersion}}", "podman": "{{.Version.Version}}"}
_ARCHITECTURES = {"amd64": "x86_64-linux", "arm64": "aarch64-linux"}
_TOOLKIT = "sudo apt install nvidia-container-toolkit; sudo nvidia-ctk runtime configure --runtime=docker"
_NO_PYTHON = "take an image that has Python, Ray and vLLM on its PATH: --image default"
_REFUSALS = (
    # what docker or podman says, what helps
    ("could not select device driver", f"{_TOOLKIT}; sudo systemctl restart docker"),
    ("unknown or invalid runtime name: nvidia", f"{_TOOLKIT}; sudo systemctl restart docker"),
    ("unresolvable CDI devices", "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"),
    ("container-init", "sudo apt install catatonit"),
    ("setrlimit", "sudo apt install runc; in /etc/containers/containers.conf: [engine] runtime = 'runc'"),
    # As podman's first process says it, and docker's.
    ("failed to exec pid1", _NO_PYTHON),
    ("exec python3 failed", _NO_PYTHON),
    ("/dev/infiniband", "sudo modprobe ib_uverbs rdma_ucm; ls /dev/infiniband"),
)


def runtime(named: str | None, image: str) -> Runtime:
    """Docker or podman: as named, else the one that has the image, else docker where it answers."""
    there = [each for each in _RUNTIMES if named in {None, each} and process.find_program(each)]
    if not there:
        raise Problem(
            f"there is no {named or 'docker or podman'} on this host",
            cause="an image runs in a container, and PATH has no program for that",
            fix=f"sudo apt install {'docker.io' if named == 'docker' else 'podman catatonit'}",
        )
    unable = {each: why for each in there if (why := _trouble(each)) is not None}
    able = [each for each in there if each not in unable]
    if not able:
        raise Problem(
            f"{' and '.join(there)} cannot run containers here",
            cause="\n".join(f"{each}: {why}" for each, why in unable.items()),
            fix="sudo systemctl start docker; sudo usermod -aG docker $USER, then log in again",
        )
    return next((each for each in able if find(each, image)), able[0])


def find(runtime: Runtime, name: str) -> Image | None:
    table = _inspected(runtime, name)
    if table is None:
        return None
    config = table.get("Config") or {}
    return Image(
        name=name,
        id=table["Id"].removeprefix("sha256:"),
        digests=tuple(sorted(each.partition("@")[2] for each in table.get("RepoDigests") or ())),
        entrypoint=tuple(config.get("Entrypoint") or ()),
        names=tuple(sorted(each.partition("=")[0] for each in config.get("Env") or ())),
    )


def ready(runtime: Runtime, name: str, system: str, *, watch: Progress = SILENT) -> Image:
    """The image, fetched if need be; `system` is this host's."""
    found = find(runtime, name)
    if found is None:
        _pull(runtime, name, watch)
        found = find(runtime, name)
    if found is None:
        raise AssertionError(name)  # what was pulled is there
    made_for = (_inspected(runtime, name) or {}).get("Architecture", "")
    if _ARCHITECTURES.get(made_for, system) != system:
        raise Problem(
            f"{name} cannot run on this host",
            cause=f"the image is for {made_for}, and this host is {system}",
            fix=f"{runtime} image rm {shlex.quote(name)}, then fetch the one for this host",
        )
    return found


def remove(runtime: Runtime, name: str) -> bool:
    """End a container and all that runs in it; return whether it existed."""
    there = _output(runtime, "container", "inspect", name) is not None
    if there:
        process.run(Command(container.removal(runtime, name)), limit_s=_ASK_LIMIT_S)
    return there


def runs(runtime: Runtime, name: str) -> bool:
    return _output(runtime, "container", "inspect", "--format", "{{.State.Running}}", name) == "true"


def remove_leftover(role: str) -> bool:
    """Remove what is left of this role after medley and the container's client were killed together."""
    found = container.name(role)
    return any(
        remove(each, found) for each in _RUNTIMES if process.find_program(each) and _trouble(each) is None
    )


def _trouble(runtime: Runtime) -> str | None:
    """Return why the runtime does not answer, or None."""
    finished = process.run(Command((runtime, "info", "--format", _VERSION[runtime])), limit_s=_ASK_LIMIT_S)
    if finished.status == 0 and not any("Cannot connect" in line for line in finished.lines):
        return None
    return next((line.strip() for line in reversed(finished.lines) if line.strip()), "it says nothing")


def _inspected(runtime: Runtime, name: str) -> dict[str, Any] | None:
    output = _output(runtime, "image", "inspect", name)
    # Warnings may stand before it.
    lines = itertools.dropwhile(lambda line: not line.startswith("["), (output or "").splitlines())
    tables = json_shape.loads("\n".join(lines))
    return tables[0] if json_shape.fits(tables, list[dict[str, Any]]) and tables else None


def _output(runtime: Runtime, *words: str) -> str | None:
    lines: list[str] = []  # all of them: what is finished has kept the last ones alone
    finished = process.run(Command((runtime, *words)), limit_s=_ASK_LIMIT_S, on_line=lines.append)
    return "\n".join(lines) if finished.status == 0 else None


def _pull(runtime: Runtime, name: str, watch: Progress) -> None:
    free = storage.free_bytes(Path("/var/lib")) / 1e9
    watch.note(f"{name} is not here; images of engines are 5 to 25 GB, and {free:.0f} GB are free")
    command = Command((runtime, "pull", name))
    with watch.stage(f"$ {command}"):
        finished = process.run(command, on_line=watch.line)
    if finished.status:
        output = [line.strip() for line in finished.lines if line.strip()]
        raise Problem(
            f"the image {name} is not here, and could not be fetched",
            cause="\n".join(output[-2:]) or f"{command} exited with {finished.status}",
            fix=f"{command}  # or from a host that has it: "
            f"ssh HOST {runtime} save {shlex.quote(name)} | {runtime} load",
        )


def refused(image: Image, command: Command, lines: Sequence[str]) -> Problem:
    """Return the Problem for docker's or podman's error."""
    output = [line.strip() for line in lines if line.strip()]
    text = "\n".join(output)
    fix = next((fix for sign, fix in _REFUSALS if sign in text), f"run it by itself: {command}")
    return Problem(
        f"nothing runs out of {image.name} ({image.short})",
        cause="\n".join(output[-3:])[:600] or f"{command.argv[0]} says nothing",
        fix=fix,
    )
