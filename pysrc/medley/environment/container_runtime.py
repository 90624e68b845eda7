"""Choose docker or podman; find, fetch and remove its images and containers."""

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

_ANSWER_LIMIT_S = 30
_RUNTIMES: tuple[Runtime, ...] = ("docker", "podman")
_VERSION_FORMATS: dict[Runtime, str] = {"docker": "{{.ServerVersion}}", "podman": "{{.Version.Version}}"}
_ARCHITECTURES = {"amd64": "x86_64-linux", "arm64": "aarch64-linux"}
_INSTALL_TOOLKIT = (
    "sudo apt install nvidia-container-toolkit; sudo nvidia-ctk runtime configure --runtime=docker"
)
_OTHER_IMAGE = "take an image that has Python, Ray and vLLM on its PATH: --image default"
_FIXES = (
    # words of docker's or podman's error, and the fix
    ("could not select device driver", f"{_INSTALL_TOOLKIT}; sudo systemctl restart docker"),
    ("unknown or invalid runtime name: nvidia", f"{_INSTALL_TOOLKIT}; sudo systemctl restart docker"),
    ("unresolvable CDI devices", "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"),
    ("container-init", "sudo apt install catatonit"),
    ("setrlimit", "sudo apt install runc; in /etc/containers/containers.conf: [engine] runtime = 'runc'"),
    # The first process of podman's container prints the first, docker's the second.
    ("failed to exec pid1", _OTHER_IMAGE),
    ("exec python3 failed", _OTHER_IMAGE),
    ("/dev/infiniband", "sudo modprobe ib_uverbs rdma_ucm; ls /dev/infiniband"),
)


def choose_runtime(requested: str | None, image: str) -> Runtime:
    """Return the requested runtime, else the one that has the image, else docker if it answers.

    Raise a Problem if none is installed, or none can run containers.
    """
    installed = [
        runtime for runtime in _RUNTIMES if requested in {None, runtime} and process.find_program(runtime)
    ]
    if not installed:
        raise Problem(
            f"there is no {requested or 'docker or podman'} on this host",
            cause="an image runs in a container, and PATH has no program for that",
            fix=f"sudo apt install {'docker.io' if requested == 'docker' else 'podman catatonit'}",
        )
    troubles = {runtime: why for runtime in installed if (why := _find_trouble(runtime)) is not None}
    usable = [runtime for runtime in installed if runtime not in troubles]
    if not usable:
        raise Problem(
            f"{' and '.join(installed)} cannot run containers here",
            cause="\n".join(f"{runtime}: {why}" for runtime, why in troubles.items()),
            fix="sudo systemctl start docker; sudo usermod -aG docker $USER, then log in again",
        )
    return next((runtime for runtime in usable if find_image(runtime, image)), usable[0])


def find_image(runtime: Runtime, name: str) -> Image | None:
    table = _inspect_image(runtime, name)
    if table is None:
        return None
    config = table.get("Config") or {}
    return Image(
        name=name,
        id=table["Id"].removeprefix("sha256:"),
        digests=tuple(sorted(entry.partition("@")[2] for entry in table.get("RepoDigests") or ())),
        entrypoint=tuple(config.get("Entrypoint") or ()),
        names=tuple(sorted(entry.partition("=")[0] for entry in config.get("Env") or ())),
    )


def fetch_image(runtime: Runtime, name: str, system: str, *, progress: Progress = SILENT) -> Image:
    """Return the image, pulled if need be; raise a Problem if it is for another `system` than this host's."""
    image = find_image(runtime, name)
    if image is None:
        _pull_image(runtime, name, progress)
        image = find_image(runtime, name)
    if image is None:
        raise AssertionError(name)  # a successful pull leaves the image on this host
    architecture = (_inspect_image(runtime, name) or {}).get("Architecture", "")
    if _ARCHITECTURES.get(architecture, system) != system:
        raise Problem(
            f"{name} cannot run on this host",
            cause=f"the image is for {architecture}, and this host is {system}",
            fix=f"{runtime} image rm {shlex.quote(name)}, then fetch the one for this host",
        )
    return image


def remove_container(runtime: Runtime, name: str) -> bool:
    """End a container and all that runs in it; return whether it existed."""
    exists = _run_runtime(runtime, "container", "inspect", name) is not None
    if exists:
        process.run(Command(container.build_removal_words(runtime, name)), limit_s=_ANSWER_LIMIT_S)
    return exists


def is_running(runtime: Runtime, name: str) -> bool:
    return _run_runtime(runtime, "container", "inspect", "--format", "{{.State.Running}}", name) == "true"


def remove_leftover(role: str) -> bool:
    """Remove what is left of this role after medley and the container's client were killed together."""
    name = container.name_container(role)
    return any(
        remove_container(runtime, name)
        for runtime in _RUNTIMES
        if process.find_program(runtime) and _find_trouble(runtime) is None
    )


def _find_trouble(runtime: Runtime) -> str | None:
    """Return why the runtime does not answer, or None."""
    finished = process.run(
        Command((runtime, "info", "--format", _VERSION_FORMATS[runtime])), limit_s=_ANSWER_LIMIT_S
    )
    if finished.status == 0 and not any("Cannot connect" in line for line in finished.lines):
        return None
    return next((line.strip() for line in reversed(finished.lines) if line.strip()), "it says nothing")


def _inspect_image(runtime: Runtime, name: str) -> dict[str, Any] | None:
    output = _run_runtime(runtime, "image", "inspect", name)
    # The runtime may print warnings before the JSON.
    lines = itertools.dropwhile(lambda line: not line.startswith("["), (output or "").splitlines())
    tables = json_shape.parse_json("\n".join(lines))
    return tables[0] if json_shape.has_type(tables, list[dict[str, Any]]) and tables else None


def _run_runtime(runtime: Runtime, *words: str) -> str | None:
    lines: list[str] = []  # `finished` keeps only the last lines
    finished = process.run(Command((runtime, *words)), limit_s=_ANSWER_LIMIT_S, on_line=lines.append)
    return "\n".join(lines) if finished.status == 0 else None


def _pull_image(runtime: Runtime, name: str, progress: Progress) -> None:
    free = storage.measure_free_bytes(Path("/var/lib")) / 1e9
    progress.note(f"{name} is not here; images of engines are 5 to 25 GB, and {free:.0f} GB are free")
    command = Command((runtime, "pull", name))
    with progress.stage(f"$ {command}"):
        finished = process.run(command, on_line=progress.line)
    if finished.status:
        output = [line.strip() for line in finished.lines if line.strip()]
        raise Problem(
            f"the image {name} is not here, and could not be fetched",
            cause="\n".join(output[-2:]) or f"{command} exited with {finished.status}",
            fix=f"{command}  # or from a host that has it: "
            f"ssh HOST {runtime} save {shlex.quote(name)} | {runtime} load",
        )


def build_refused_start_problem(image: Image, command: Command, lines: Sequence[str]) -> Problem:
    """Return the Problem for docker's or podman's error."""
    output = [line.strip() for line in lines if line.strip()]
    text = "\n".join(output)
    fix = next((fix for sign, fix in _FIXES if sign in text), f"run it by itself: {command}")
    return Problem(
        f"nothing runs out of {image.name} ({image.short_id})",
        cause="\n".join(output[-3:])[:600] or f"{command.argv[0]} says nothing",
        fix=fix,
    )
