"""A host's own NCCL in an image, as an Orin needs it: over each that torch maps, and proven to be the one."""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from medley.container import Mount
from medley.imaged import Imaged, asked
from medley.problem import Problem
from medley.variables import Variable
from medley.watch import SILENT, Watch


def mounted(found: Imaged, named: str, *, watch: Watch = SILENT) -> Imaged:
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
                cause=f"torch in {found.box.image.name} maps no libnccl.so: it has none, or has it inside",
                fix="leave --nccl out, or take an image whose torch is linked to NCCL (USE_SYSTEM_NCCL=1)",
            )
        found = _with(found, file, before)
        after = _linked(found)
    wanted = hashlib.sha256(file.read_bytes()).hexdigest()
    if {each["sha256"] for each in after} != {wanted}:
        raise Problem(
            f"torch in {found.box.image.name} does not take the NCCL of {named}",
            cause=f"it maps {', '.join(each['path'] for each in after) or 'none'}",
            fix="leave --nccl out",
        )
    watch.note(f"torch in the image maps NCCL {version(after[0])}, {file}; its own is {version(before[0])}")
    return found


def _with(found: Imaged, file: Path, linked: list[dict[str, Any]]) -> Imaged:
    why = f"in place of the image's own NCCL {version(linked[0])}"
    mounts = tuple(Mount(file, Path(each["path"]), why) for each in linked)
    told = Variable("VLLM_NCCL_SO_PATH", linked[0]["path"], "vLLM loads NCCL by itself too: the same file")
    box = found.box
    return replace(found, box=replace(box, mounts=(*box.mounts, *mounts), variables=(*box.variables, told)))


def _linked(found: Imaged) -> list[dict[str, Any]]:
    answer = asked(found, "nccl")
    if "error" in answer:
        raise Problem(
            f"torch cannot be loaded in {found.box.image.name}",
            cause=answer["error"],
            fix="leave --nccl out, or name one that was built for the image's system (its libc and CUDA)",
        )
    linked: list[dict[str, Any]] = answer["nccl"]
    return linked


def version(library: Mapping[str, Any]) -> str:
    """22707 is 2.27.7, as NCCL counts since 2.9."""
    number = int(library["version"])
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}" if number else "of no known version"
