"""Use a container image in place of an engine environment: inspect it, run it."""

import itertools
import json
import os
import re
import resource
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from medley import process, storage
from medley.command import AnnotatedCommand, Command, Flag, Variable
from medley.environment import container, container_runtime, virtualenv
from medley.environment.container import ContainerSpec, HardLimits, Image, Mount, Runtime
from medley.environment.engine_source import numbers, with_ray
from medley.environment.virtualenv import Environment
from medley.errors import Problem
from medley.host.facts import Facts
from medley.host.kind import Kind
from medley.model import hub
from medley.progress import SILENT, Progress
from medley.schema import TITLES, EngineName

_LOOK_LIMIT_S = 300  # importing torch, the first time, from a slow disk
_CAP_SYS_RESOURCE = 24
_TOKENS_SINCE = (2, 52)
"""The first Ray with RAY_AUTH_MODE=token (Ray's documentation, "Ray token authentication")."""
RAY = "ray"
"""The role of Ray's container."""
_COUNT = itertools.count(1)


@dataclass(frozen=True)
class ImageSelection:
    """The user's choice of an image, as it is noted while a cluster lasts."""

    runtime: Runtime
    image: Image
    nccl: str | None = None
    """A file of this host, in place of the image's own."""
    mounts: tuple[str, ...] = ()
    """PATH, or PATH:INSIDE."""
    engines: tuple[str, ...] = ()
    """Those that were found in it."""

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> "ImageSelection":
        return TypeAdapter(cls).validate_python(table)

    @property
    def table(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class ContainerEnvironment:
    """An image that takes the place of an engine environment."""

    choice: ImageSelection
    spec: ContainerSpec
    held: Mapping[str, Any] = field(default_factory=dict)
    """The output of payload/probe.py."""

    python = Path("python3")

    @property
    def image(self) -> Image:
        return self.spec.image

    @property
    def parts(self) -> Mapping[str, Any]:
        """The parts that hosts compare."""
        made = self.image
        image = {
            "name": made.name,
            "id": made.id,
            "digests": list(made.digests),
            "runtime": self.spec.runtime,
        }
        return {"image": image, "python": self.held["python"], "machine": self.held["machine"]}

    def versions(self, names: tuple[str, ...]) -> dict[str, str]:
        return {name: self.held["versions"].get(name, "") for name in names}

    def started(self, command: Command, *reads: Path) -> Command:
        """A short command in a container of its own: beside Ray's, where that runs."""
        beside = container.name(RAY, storage.state())
        near = self.beside(beside) if container_runtime.runs(self.choice.runtime, beside) else self
        asks = f"{container.name('ask', storage.state())}-{os.getpid()}-{next(_COUNT)}"
        return near.spec.asked(command, asks, *reads)

    def beside(self, name: str) -> "ContainerEnvironment":
        return replace(self, spec=replace(self.spec, beside=name))

    def mounting(self, folder: Path, why: str) -> "ContainerEnvironment":
        return replace(self, spec=replace(self.spec, mounts=(*self.spec.mounts, Mount(folder, why))))

    def contained(self, inner: AnnotatedCommand, role: str, *, detached: bool = False) -> AnnotatedCommand:
        return self.spec.contained(
            inner, container.name(role, storage.state()), os.environ, detached=detached
        )


def role(port: int) -> str:
    return f"serve-{port}"


def expected(
    choice: ImageSelection, kind: Kind, facts: Facts, allowed: HardLimits | None = None
) -> ContainerEnvironment:
    """The image without a look into it; `allowed` are the limits of this host, unless given."""
    return _environment(choice, container.host_devices(choice.runtime, kind.host, facts, allowed or limits()))


def ready(
    choice: ImageSelection, kind: Kind, facts: Facts, *, engine: EngineName = "vllm", watch: Progress = SILENT
) -> ContainerEnvironment:
    """The image, looked at on this host, in the very container that the engine will have."""
    image = container_runtime.ready(choice.runtime, choice.image.name, facts.system, watch=watch)
    found = expected(replace(choice, image=image), kind, facts)
    for each in found.spec.variables:
        if each.name in {*container.CACHES, "HF_HUB_CACHE"}:
            storage.make(Path(each.value))
    storage.make(storage.state() / "ray")
    with watch.stage(f"look into {choice.image.name} ({found.image.short})"):
        held = asked(found)
    there = tuple(name for name in TITLES if held["programs"].get(name))
    if engine not in there:
        raise Problem(
            f"{found.image.name} holds no {TITLES[engine]}",
            cause=f"its PATH has no {engine}; its Python is {held['python']}",
            fix=f"take an image with {TITLES[engine]} in it",
        )
    return replace(found, held=held, choice=replace(found.choice, engines=there))


def noted(table: Mapping[str, Any]) -> ContainerEnvironment:
    """The image of the cluster that this host is in, for questions: without GPUs."""
    choice = ImageSelection.of(table)
    return _environment(choice, container.own_limits(choice.runtime, limits()))


def engines(where: Environment | ContainerEnvironment) -> list[EngineName]:
    """The engines in an environment, or in an image."""
    if isinstance(where, ContainerEnvironment):
        return [name for name in TITLES if name in where.choice.engines]
    return [name for name in TITLES if (where.programs / name).exists()]


def nccl(where: Environment | ContainerEnvironment) -> tuple[int, ...] | None:
    """The version in an environment; None without one, and of an image, which is not looked into for it."""
    return None if isinstance(where, ContainerEnvironment) else virtualenv.nccl(where.path)


def limits() -> HardLimits:
    def hard(which: int) -> int | None:
        value = resource.getrlimit(which)[1]
        return None if value == resource.RLIM_INFINITY else value

    status = Path("/proc/self/status").read_text(encoding="utf-8")
    capable = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return HardLimits(
        hard(resource.RLIMIT_NOFILE),
        hard(resource.RLIMIT_NPROC),
        hard(resource.RLIMIT_MEMLOCK),
        may_raise=bool(capable and int(capable[1], 16) >> _CAP_SYS_RESOURCE & 1),
    )


def _environment(choice: ImageSelection, flags: Iterable[Flag]) -> ContainerEnvironment:
    mounts, variables = tuple(_mounts(choice)), tuple(_variables())
    return ContainerEnvironment(
        choice, ContainerSpec(choice.runtime, choice.image, tuple(flags), mounts, variables)
    )


def _mounts(choice: ImageSelection) -> Iterator[Mount]:
    yield Mount(storage.state() / "ray", "Ray's logs and sockets", writable=True)
    payload = Path(str(files("medley") / "environment" / "payload"))
    yield Mount(payload, "what of medley runs in the image's Python")
    for each in choice.mounts:
        source, _, target = each.partition(":")
        path = Path(source).expanduser().absolute()
        if not path.exists():
            raise Problem(
                f"{source} cannot be mounted", cause=f"{path} is not there", fix="--mount PATH or PATH:INSIDE"
            )
        yield Mount(path, "as --mount says", writable=True, target=Path(target or path))


def _variables() -> Iterator[Variable]:
    """Where it keeps what the next container shall find."""
    why = "models that this host has, and those to come"
    yield Variable("HF_HUB_CACHE", str(hub.cache().absolute()), why)
    cache, why = storage.cache() / "images", "what it compiles outlives the container"
    yield from (Variable(name, str(cache / folder), why) for name, folder in container.CACHES.items())
    token = Path(os.environ.get("HF_TOKEN_PATH") or hub.cache().parent / "token")
    if token.is_file():
        yield Variable("HF_TOKEN_PATH", str(token.absolute()), "whom the model hub takes you for")


def asked(found: ContainerEnvironment, what: str = "image") -> dict[str, Any]:
    script = files("medley") / "environment" / "payload" / "probe.py"
    command = found.started(Command((str(found.python), str(script), what)))
    finished = process.run(command, limit_s=_LOOK_LIMIT_S)
    output = next((line for line in reversed(finished.lines) if line.startswith("{")), None)
    if finished.status or output is None:
        raise container_runtime.refused(found.image, command, finished.lines)
    return dict(json.loads(output))


def require_ray(found: ContainerEnvironment) -> None:
    name, what = found.image.name, f"{found.image.name} cannot take part in a cluster"
    if not found.held["programs"].get("ray"):
        raise Problem(what, cause="its PATH has no ray", fix=with_ray(name))
    version = found.versions(("ray",))["ray"]
    if numbers(version) < _TOKENS_SINCE:
        raise Problem(
            what,
            cause=f"its Ray is {version or 'of no known version'}; before 2.52 Ray asks nobody for a token "
            "and runs the code of anybody who reaches its ports",
            fix=with_ray(name),
        )
