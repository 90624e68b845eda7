"""Use a container image in place of an engine environment: choose it, inspect it, run it."""

import itertools
import os
import re
import resource
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from huggingface_hub import constants
from pydantic import TypeAdapter

from medley import json_shape, process, storage, user
from medley.command import AnnotatedCommand, Command, Flag, Variable
from medley.environment import container, container_runtime, payload
from medley.environment.container import ContainerSpec, HardLimits, Image, Mount, Runtime
from medley.environment.engine_source import default_image, is_older, with_ray
from medley.errors import Problem
from medley.host.facts import Facts
from medley.host.kind import Kind
from medley.model import hub
from medley.progress import SILENT, Progress
from medley.schema import TITLES, EngineName

_LOOK_LIMIT_S = 300  # importing torch, the first time, from a slow disk
_CAP_SYS_RESOURCE = 24
_TOKENS_SINCE = "2.52"
"""The first Ray with RAY_AUTH_MODE=token (Ray's documentation, "Ray token authentication")."""
RAY = "ray"
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

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> "ImageSelection":
        return TypeAdapter(cls).validate_python(table)

    @property
    def table(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class ImageRequest:
    image: str
    """Its name, or `default`: the one that hosts/ names for the kind of host."""
    container: Runtime | None = None
    nccl: str | None = None
    mounts: tuple[str, ...] = ()

    def name(self, kind: Kind) -> str:
        return default_image(kind) if self.image == "default" else self.image

    def choice(self, kind: Kind, *, dry_run: bool, watch: Progress = SILENT) -> ImageSelection:
        """As this host has it; dry, it may have to be fetched yet."""
        name = self.name(kind)
        runtime = container_runtime.runtime(self.container, name)
        found = container_runtime.find(runtime, name)
        if dry_run and found is None:
            watch.note(f"{name} is not here, and would be fetched first: {runtime} pull {name}")
        return ImageSelection(runtime, found or Image(name), self.nccl, self.mounts)


@dataclass(frozen=True)
class ContainerEnvironment:
    choice: ImageSelection
    spec: ContainerSpec
    held: Mapping[str, Any] = field(default_factory=dict)
    """The output of payload/probe.py."""

    python = Path("python3")
    nccl = None
    """An image is not looked into for its version."""

    @property
    def image(self) -> Image:
        return self.spec.image

    @property
    def parts(self) -> Mapping[str, Any]:
        """The parts that hosts compare."""
        made, runtime = self.image, self.spec.runtime
        image = {"name": made.name, "id": made.id, "digests": list(made.digests), "runtime": runtime}
        return {"image": image, "python": self.held["python"], "machine": self.held["machine"]}

    @property
    def engines(self) -> list[EngineName]:
        return [name for name in TITLES if name in self.choice.engines]

    def versions(self, names: tuple[str, ...]) -> dict[str, str]:
        return {name: self.held["versions"].get(name, "") for name in names}

    def started(self, command: Command, *reads: Path) -> Command:
        """Wrap a short command that reads these paths; it sees the processes of Ray's container."""
        ray = container.name(RAY)
        beside = ray if container_runtime.runs(self.spec.runtime, ray) else None
        mounts = (*self.spec.mounts, *(Mount(path, "what is asked") for path in reads))
        variables = tuple(Variable(each, value, "") for each, value in command.env.items())
        name = f"{container.name('ask')}-{os.getpid()}-{next(_COUNT)}"
        spec = replace(self.spec, mounts=mounts, beside=beside)
        return spec.contained(AnnotatedCommand(command.argv, (), variables), name, {}).command

    def contained(self, inner: AnnotatedCommand, role: str, *, detached: bool = False) -> AnnotatedCommand:
        return self.spec.contained(inner, container.name(role), os.environ, detached=detached)


def role(port: int) -> str:
    return f"serve-{port}"


def expected(
    choice: ImageSelection, kind: Kind, facts: Facts, allowed: HardLimits | None = None
) -> ContainerEnvironment:
    """The image without a look into it; `allowed` are the limits of this host, unless given."""
    return _environment(choice, container.host_devices(choice.runtime, kind.host, facts, allowed or limits()))


def imaged_on(
    wanted: ImageRequest | None,
    host: tuple[Facts, Kind],
    engine: EngineName,
    *,
    dry_run: bool,
    elsewhere: bool = False,
    watch: Progress = SILENT,
) -> ContainerEnvironment | None:
    """Return the image, ready to run; None if none is wanted. `elsewhere`: `host` is another host."""
    if wanted is None:
        return None
    facts, kind = host
    if elsewhere:
        choice = ImageSelection(wanted.container or "docker", Image(wanted.name(kind)))
        return expected(choice, kind, facts, container.ANY_DEVICE)
    choice = wanted.choice(kind, dry_run=dry_run, watch=watch)
    return ready(choice, host, engine, dry_run=dry_run, watch=watch)


def ready(
    choice: ImageSelection,
    host: tuple[Facts, Kind],
    engine: EngineName,
    *,
    dry_run: bool = False,
    watch: Progress = SILENT,
) -> ContainerEnvironment:
    """Check the image in the container that the engine gets; in a dry run only describe it."""
    facts, kind = host
    if dry_run:
        return expected(choice, kind, facts)
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
    found = replace(found, held=held, choice=replace(found.choice, engines=there))
    return mount_own_nccl(found, choice.nccl, watch=watch) if choice.nccl else found


def noted(table: Mapping[str, Any]) -> ContainerEnvironment:
    """The image of the cluster that this host is in, for questions: without GPUs."""
    choice = ImageSelection.of(table)
    return _environment(choice, container.own_limits(choice.runtime, limits()))


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
    spec = ContainerSpec(choice.runtime, choice.image, tuple(flags), mounts, variables)
    return ContainerEnvironment(choice, spec)


def _mounts(choice: ImageSelection) -> Iterator[Mount]:
    yield Mount(storage.state() / "ray", "Ray's logs and sockets", writable=True)
    yield Mount(payload.FOLDER, "what of medley runs in the image's Python")
    for each in choice.mounts:
        source, _, target = each.partition(":")
        path = user.expand(source).absolute()
        if not path.exists():
            raise Problem(
                f"{source} cannot be mounted", cause=f"{path} is not there", fix="--mount PATH or PATH:INSIDE"
            )
        yield Mount(path, "as --mount says", writable=True, target=Path(target or path))


def _variables() -> Iterator[Variable]:
    """Where it keeps what the next container shall find."""
    why = "models that this host has, and those to come"
    yield Variable("HF_HUB_CACHE", str(hub.find_cache().absolute()), why)
    cache, why = storage.cache() / "images", "what it compiles outlives the container"
    yield from (Variable(name, str(cache / folder), why) for name, folder in container.CACHES.items())
    token = Path(constants.HF_TOKEN_PATH)
    if token.is_file():
        yield Variable("HF_TOKEN_PATH", str(token.absolute()), "your account on the model hub")


def asked(found: ContainerEnvironment, what: str = "image") -> dict[str, Any]:
    script = payload.FOLDER / "probe.py"
    command = found.started(Command((str(found.python), str(script), what)))
    finished = process.run(command, limit_s=_LOOK_LIMIT_S)
    output = json_shape.last_table(finished.lines)
    if finished.status or output is None:
        raise container_runtime.refused(found.image, command, finished.lines)
    return output


def require_ray(found: ContainerEnvironment) -> None:
    name, what = found.image.name, f"{found.image.name} cannot take part in a cluster"
    if not found.held["programs"].get("ray"):
        raise Problem(what, cause="its PATH has no ray", fix=with_ray(name))
    version = found.versions(("ray",))["ray"]
    if not version or is_older(version, _TOKENS_SINCE):
        raise Problem(
            what,
            cause=f"its Ray is {version or 'of no known version'}; before 2.52 Ray checks no token "
            "and runs the code of anyone who can reach its ports",
            fix=with_ray(name),
        )


def mount_own_nccl(
    found: ContainerEnvironment, named: str, *, watch: Progress = SILENT
) -> ContainerEnvironment:
    """Mount the file where torch looks for its NCCL; preloading it would reach every program of the image."""
    file = user.expand(named).resolve()
    if not file.is_file():
        raise Problem(
            f"there is no NCCL at {named}",
            cause=f"{file} is not a file",
            fix="find / -name 'libnccl.so.2*' 2>/dev/null",
        )
    with watch.stage("see which NCCL torch is linked to"):
        before = _linked(found)
        if not before:
            raise Problem(
                f"{named} cannot take the place of the image's NCCL",
                cause=f"torch in {found.image.name} maps no libnccl.so: it has none, or has it inside",
                fix="leave --nccl out, or take an image whose torch is linked to NCCL (USE_SYSTEM_NCCL=1)",
            )
        why = f"in place of the image's own NCCL {version(before[0])}"
        path = Variable(
            "VLLM_NCCL_SO_PATH", before[0]["path"], "vLLM loads NCCL by itself too: the same file"
        )
        mounts = (*found.spec.mounts, *(Mount(file, why, target=Path(each["path"])) for each in before))
        spec = replace(found.spec, mounts=mounts, variables=(*found.spec.variables, path))
        found = replace(found, spec=spec)
        after = _linked(found)
    wanted = storage.hash_file(file)
    if {each["sha256"] for each in after} != {wanted}:
        raise Problem(
            f"torch in {found.image.name} does not take the NCCL of {named}",
            cause=f"it maps {', '.join(each['path'] for each in after) or 'none'}",
            fix="leave --nccl out",
        )
    watch.note(f"torch in the image maps NCCL {version(after[0])}, {file}; its own is {version(before[0])}")
    return found


def _linked(found: ContainerEnvironment) -> list[dict[str, Any]]:
    answer = asked(found, "nccl")
    if "error" in answer:
        raise Problem(
            f"torch cannot be loaded in {found.image.name}",
            cause=answer["error"],
            fix="leave --nccl out, or name one that was built for the image's system (its libc and CUDA)",
        )
    return list(answer["nccl"])


def version(library: Mapping[str, Any]) -> str:
    """22707 is 2.27.7, as NCCL counts since 2.9."""
    number = int(library["version"])
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}" if number else "of no known version"
