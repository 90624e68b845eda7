"""Choose the image that a host runs, and put the host's own NCCL into it."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from medley.command import Variable
from medley.environment import container, container_image, container_runtime
from medley.environment.container import Image, Mount, Runtime
from medley.environment.container_image import ContainerEnvironment, ImageSelection, asked
from medley.environment.engine_source import default_image
from medley.errors import Problem
from medley.host.facts import Facts
from medley.host.kind import Kind
from medley.progress import SILENT, Progress
from medley.schema import EngineName


def mount_own_nccl(
    found: ContainerEnvironment, named: str, *, watch: Progress = SILENT
) -> ContainerEnvironment:
    """The same, with the file where torch looks for its NCCL; a Problem unless torch then maps it.

    Preloading it instead would map it into every program of the image, and torch's own beside it where the
    two have other names.
    """
    file = Path(named).expanduser().resolve()
    if not file.is_file():
        raise Problem(
            f"there is no NCCL at {named}",
            cause=f"{file} is no file",
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
    wanted = hashlib.sha256(file.read_bytes()).hexdigest()
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


def wanted_image(table: Mapping[str, Any]) -> ImageRequest:
    """Of the JSON that one medley sends another."""
    return ImageRequest(table["image"], table["container"], table["nccl"], tuple(table["mounts"]))


def imaged_on(
    wanted: ImageRequest | None,
    host: tuple[Facts, Kind],
    engine: EngineName,
    *,
    dry_run: bool,
    elsewhere: bool = False,
    watch: Progress = SILENT,
) -> ContainerEnvironment | None:
    """Return the image to run from, ready for use; None where none is wanted.

    `elsewhere`: these are the facts of another host, so nothing is asked of this one.
    """
    if wanted is None:
        return None
    facts, kind = host
    if elsewhere:
        choice = ImageSelection(wanted.container or "docker", Image(wanted.name(kind)))
        return container_image.expected(choice, kind, facts, container.ANY_DEVICE)
    choice = wanted.choice(kind, dry_run=dry_run, watch=watch)
    return ready_image(choice, host, engine, dry_run=dry_run, watch=watch)


def ready_image(
    choice: ImageSelection,
    host: tuple[Facts, Kind],
    engine: EngineName,
    *,
    dry_run: bool,
    watch: Progress = SILENT,
) -> ContainerEnvironment:
    """The image inspected, with a host's own NCCL in it where one is named; dry, without a look into it."""
    facts, kind = host
    if dry_run:
        return container_image.expected(choice, kind, facts)
    found = container_image.ready(choice, kind, facts, engine=engine, watch=watch)
    return mount_own_nccl(found, choice.nccl, watch=watch) if choice.nccl else found
