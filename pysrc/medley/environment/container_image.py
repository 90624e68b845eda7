"""Use a container image in place of an engine environment: choose it, inspect it, run it.

`host/kind_image.py` has the image of a kind of host.
"""

import itertools
import os
import re
import resource
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from huggingface_hub import constants
from msgspec import field

from medley import json_shape, process, storage, user
from medley.command import AnnotatedCommand, Command, Flag, Variable
from medley.environment import container, container_runtime, payload
from medley.environment.container import ContainerSpec, HardLimits, Image, Mount, Runtime
from medley.environment.engine_source import format_ray_image_command, is_older
from medley.errors import Problem
from medley.host.facts import Facts
from medley.host.kind import Kind, SiteHost
from medley.host.kind_image import get_default_image
from medley.model import hub
from medley.progress import SILENT, Progress
from medley.schema import TITLES, EngineName
from medley.values import Value

_PROBE_LIMIT_S = 300  # importing torch, the first time, from a slow disk
_CAP_SYS_RESOURCE = 24
_FIRST_RAY_WITH_TOKENS = "2.52"
"""The first Ray with RAY_AUTH_MODE=token (Ray's documentation, "Ray token authentication")."""
RAY_ROLE = "ray"
_PROBE_NUMBERS = itertools.count(1)


class ImageSelection(Value):
    """The user's choice of an image, stored while the cluster lasts; its fields are keys of that table."""

    runtime: Runtime
    image: Image
    nccl: str | None = None
    """The path of an NCCL on this host, which replaces the image's own."""
    mounts: tuple[str, ...] = ()
    """The user's mounts, each `PATH` or `PATH:INSIDE`."""
    engines: tuple[str, ...] = ()

    @classmethod
    def parse(cls, table: Mapping[str, Any]) -> "ImageSelection":
        return msgspec.convert(table, cls)

    @property
    def table(self) -> dict[str, Any]:
        return self.to_table()


class ImageRequest(Value):
    image: str
    """The image's name, or `default`: the image in the kind's table of hosts/."""
    container: Runtime | None = None
    nccl: str | None = None
    mounts: tuple[str, ...] = ()

    def choose_name(self, kind: Kind) -> str:
        return get_default_image(kind) if self.image == "default" else self.image

    def select_image(self, kind: Kind, *, dry_run: bool, progress: Progress = SILENT) -> ImageSelection:
        """Return the image on this host; in a dry run it may not be fetched yet."""
        name = self.choose_name(kind)
        runtime = container_runtime.choose_runtime(self.container, name)
        image = container_runtime.find_image(runtime, name)
        if dry_run and image is None:
            progress.note(f"{name} is not here, and would be fetched first: {runtime} pull {name}")
        return ImageSelection(runtime, image or Image(name), self.nccl, self.mounts)


class ContainerEnvironment(Value):
    selection: ImageSelection
    spec: ContainerSpec
    contents: Mapping[str, Any] = field(default_factory=dict)
    """The output of payload/probe.py."""

    python = Path("python3")
    nccl_version = None
    """Unknown: medley does not read the version of an image's NCCL."""

    @property
    def image(self) -> Image:
        return self.spec.image

    @property
    def parts(self) -> Mapping[str, Any]:
        """The parts that hosts compare."""
        image, runtime = self.image, self.spec.runtime
        table = {"name": image.name, "id": image.id, "digests": list(image.digests), "runtime": runtime}
        return {"image": table, "python": self.contents["python"], "machine": self.contents["machine"]}

    @property
    def engines(self) -> list[EngineName]:
        return [name for name in TITLES if name in self.selection.engines]

    def find_versions(self, names: tuple[str, ...]) -> dict[str, str]:
        return {name: self.contents["versions"].get(name, "") for name in names}

    def wrap_command(self, command: Command, *read_paths: Path) -> Command:
        """Wrap a short command that reads these paths; it sees the processes of Ray's container."""
        ray_container = container.name_container(RAY_ROLE)
        pid_container = (
            ray_container if container_runtime.is_running(self.spec.runtime, ray_container) else None
        )
        mounts = (*self.spec.mounts, *(Mount(path, "what is asked") for path in read_paths))
        variables = tuple(Variable(name, value, "") for name, value in command.env.items())
        name = f"{container.name_container('ask')}-{os.getpid()}-{next(_PROBE_NUMBERS)}"
        spec = self.spec.replace(mounts=mounts, pid_container=pid_container)
        return spec.wrap(AnnotatedCommand(command.argv, (), variables), name, {}).command

    def wrap_launch(
        self, annotated: AnnotatedCommand, role: str, *, detached: bool = False
    ) -> AnnotatedCommand:
        return self.spec.wrap(annotated, container.name_container(role), os.environ, detached=detached)


def name_serving_role(port: int) -> str:
    return f"serve-{port}"


def plan_image_environment(
    selection: ImageSelection, kind: Kind, facts: Facts, hard_limits: HardLimits | None = None
) -> ContainerEnvironment:
    """Return the environment without starting the image; `hard_limits` default to those of this host."""
    return _build_environment(
        selection,
        container.list_host_flags(selection.runtime, kind.table, facts, hard_limits or read_hard_limits()),
    )


def prepare_requested_image(
    request: ImageRequest | None,
    host: SiteHost,
    engine: EngineName,
    *,
    dry_run: bool,
    is_other_host: bool = False,
    progress: Progress = SILENT,
) -> ContainerEnvironment | None:
    """Return the checked image; None without a request. `is_other_host`: `host` is not this host."""
    if request is None:
        return None
    facts, kind = host
    if is_other_host:
        selection = ImageSelection(request.container or "docker", Image(request.choose_name(kind)))
        return plan_image_environment(selection, kind, facts, container.UNLIMITED)
    selection = request.select_image(kind, dry_run=dry_run, progress=progress)
    return prepare_image(selection, host, engine, dry_run=dry_run, progress=progress)


def prepare_image(
    selection: ImageSelection,
    host: SiteHost,
    engine: EngineName,
    *,
    dry_run: bool = False,
    progress: Progress = SILENT,
) -> ContainerEnvironment:
    """Fetch the image and probe it in a container like the engine's; in a dry run only describe it."""
    facts, kind = host
    if dry_run:
        return plan_image_environment(selection, kind, facts)
    image = container_runtime.fetch_image(
        selection.runtime, selection.image.name, facts.system, progress=progress
    )
    environment = plan_image_environment(selection.replace(image=image), kind, facts)
    for variable in environment.spec.variables:
        if variable.name in {*container.CACHE_FOLDERS, "HF_HUB_CACHE"}:
            storage.make_folder(Path(variable.value))
    storage.make_folder(storage.find_state_folder() / "ray")
    with progress.stage(f"look into {selection.image.name} ({environment.image.short_id})"):
        contents = probe_image(environment)
    engines = tuple(name for name in TITLES if contents["programs"].get(name))
    if engine not in engines:
        raise Problem(
            f"{environment.image.name} holds no {TITLES[engine]}",
            cause=f"its PATH has no {engine}; its Python is {contents['python']}",
            fix=f"take an image with {TITLES[engine]} in it",
        )
    environment = environment.replace(
        contents=contents, selection=environment.selection.replace(engines=engines)
    )
    return mount_user_nccl(environment, selection.nccl, progress=progress) if selection.nccl else environment


def restore_environment(table: Mapping[str, Any]) -> ContainerEnvironment:
    """Return the image of the cluster that this host is in, for short commands: without GPUs."""
    selection = ImageSelection.parse(table)
    return _build_environment(selection, container.list_limit_flags(selection.runtime, read_hard_limits()))


def read_hard_limits() -> HardLimits:
    def read_limit(resource_number: int) -> int | None:
        value = resource.getrlimit(resource_number)[1]
        return None if value == resource.RLIM_INFINITY else value

    status = Path("/proc/self/status").read_text(encoding="utf-8")
    capabilities = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return HardLimits(
        read_limit(resource.RLIMIT_NOFILE),
        read_limit(resource.RLIMIT_NPROC),
        read_limit(resource.RLIMIT_MEMLOCK),
        can_raise=bool(capabilities and int(capabilities[1], 16) >> _CAP_SYS_RESOURCE & 1),
    )


def _build_environment(selection: ImageSelection, flags: Iterable[Flag]) -> ContainerEnvironment:
    mounts, variables = tuple(_list_mounts(selection)), tuple(_list_variables())
    spec = ContainerSpec(selection.runtime, selection.image, tuple(flags), mounts, variables)
    return ContainerEnvironment(selection, spec)


def _list_mounts(selection: ImageSelection) -> Iterator[Mount]:
    yield Mount(storage.find_state_folder() / "ray", "Ray's logs and sockets", is_writable=True)
    yield Mount(payload.FOLDER, "what of medley runs in the image's Python")
    for mount in selection.mounts:
        source, _, target = mount.partition(":")
        path = user.expand_home(source).absolute()
        if not path.exists():
            raise Problem(
                f"{source} cannot be mounted", cause=f"{path} is not there", fix="--mount PATH or PATH:INSIDE"
            )
        yield Mount(path, "as --mount says", is_writable=True, target=Path(target or path))


def _list_variables() -> Iterator[Variable]:
    """Yield the variables of the caches that outlive a container."""
    why = "models that this host has, and those to come"
    yield Variable("HF_HUB_CACHE", str(hub.find_cache_folder().absolute()), why)
    cache, why = storage.find_cache_folder() / "images", "what it compiles outlives the container"
    yield from (Variable(name, str(cache / folder), why) for name, folder in container.CACHE_FOLDERS.items())
    token = Path(constants.HF_TOKEN_PATH)
    if token.is_file():
        yield Variable("HF_TOKEN_PATH", str(token.absolute()), "your account on the model hub")


def probe_image(environment: ContainerEnvironment, topic: str = "image") -> dict[str, Any]:
    script = payload.FOLDER / "probe.py"
    command = environment.wrap_command(Command((str(environment.python), str(script), topic)))
    finished = process.run(command, limit_s=_PROBE_LIMIT_S)
    output = json_shape.parse_last_object(finished.lines)
    if finished.status or output is None:
        raise container_runtime.build_refused_start_problem(environment.image, command, finished.lines)
    return output


def require_ray(environment: ContainerEnvironment) -> None:
    name, problem = environment.image.name, f"{environment.image.name} cannot take part in a cluster"
    if not environment.contents["programs"].get("ray"):
        raise Problem(problem, cause="its PATH has no ray", fix=format_ray_image_command(name))
    version = environment.find_versions(("ray",))["ray"]
    if not version or is_older(version, _FIRST_RAY_WITH_TOKENS):
        raise Problem(
            problem,
            cause=f"its Ray is {version or 'of no known version'}; "
            f"before {_FIRST_RAY_WITH_TOKENS} Ray checks no token "
            "and runs the code of anyone who can reach its ports",
            fix=format_ray_image_command(name),
        )


def mount_user_nccl(
    environment: ContainerEnvironment, user_path: str, *, progress: Progress = SILENT
) -> ContainerEnvironment:
    """Mount the file where torch looks for its NCCL; preloading it would reach every program of the image."""
    file = user.expand_home(user_path).resolve()
    if not file.is_file():
        raise Problem(
            f"there is no NCCL at {user_path}",
            cause=f"{file} is not a file",
            fix="find / -name 'libnccl.so.2*' 2>/dev/null",
        )
    with progress.stage("see which NCCL torch is linked to"):
        image_libraries = _find_linked_nccl(environment)
        if not image_libraries:
            raise Problem(
                f"{user_path} cannot take the place of the image's NCCL",
                cause=f"torch in {environment.image.name} loads no libnccl.so: "
                "NCCL is linked in statically, or missing",
                fix="leave --nccl out, or take an image whose torch is linked to NCCL (USE_SYSTEM_NCCL=1)",
            )
        why = f"in place of the image's own NCCL {format_nccl_version(image_libraries[0])}"
        variable = Variable(
            "VLLM_NCCL_SO_PATH", image_libraries[0]["path"], "vLLM loads NCCL by itself too: the same file"
        )
        mounts = (
            *environment.spec.mounts,
            *(Mount(file, why, target=Path(library["path"])) for library in image_libraries),
        )
        spec = environment.spec.replace(mounts=mounts, variables=(*environment.spec.variables, variable))
        environment = environment.replace(spec=spec)
        mounted_libraries = _find_linked_nccl(environment)
    sha256 = storage.hash_file(file)
    if {library["sha256"] for library in mounted_libraries} != {sha256}:
        raise Problem(
            f"torch in {environment.image.name} does not take the NCCL of {user_path}",
            cause=f"it maps {', '.join(library['path'] for library in mounted_libraries) or 'none'}",
            fix="leave --nccl out",
        )
    progress.note(
        f"torch in the image maps NCCL {format_nccl_version(mounted_libraries[0])}, {file}; "
        f"its own is {format_nccl_version(image_libraries[0])}"
    )
    return environment


def _find_linked_nccl(environment: ContainerEnvironment) -> list[dict[str, Any]]:
    answer = probe_image(environment, "nccl")
    if "error" in answer:
        raise Problem(
            f"torch cannot be loaded in {environment.image.name}",
            cause=answer["error"],
            fix="leave --nccl out, or name one that was built for the image's system (its libc and CUDA)",
        )
    return list(answer["nccl"])


def format_nccl_version(library: Mapping[str, Any]) -> str:
    """Return NCCL's version number as text: 22707 is 2.27.7, as NCCL counts since 2.9."""
    number = int(library["version"])
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}" if number else "of no known version"
