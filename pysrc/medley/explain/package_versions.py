"""Compare the versions of packages that a log shows with the releases that have a fault."""

import re
from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta

from medley.values import FileTable

_NAMES = {
    "vllm": "vLLM",
    "sglang": "SGLang",
    "ray": "Ray",
    "nccl": "NCCL",
    "flashinfer": "FlashInfer",
    "hfxet": "hf-xet",
}
_NUMBER = re.compile(r"\d+(?:\.\d+)*")


class AffectedReleases(FileTable):
    """Releases of a package with a fault."""

    package: Annotated[str, Meta(pattern=r"^[a-z]+\Z")]
    """The name of its figure in events.TRANSITIONS, without version_."""
    since: str
    """The first release with the fault."""
    before: str | None = None
    """The first release without the fault [default: none is known]."""
    required: bool = False
    """Whether the log must show such a version: other releases print the line for other reasons."""
    fact: str | None = None
    """A figure that the log must have too, such as thor."""


def describe_affected(releases: AffectedReleases | None, figures: Mapping[str, str]) -> str | None:
    """Return the version with the fault; empty if the log has none, None if it has another one."""
    if releases is None:
        return ""
    if releases.fact and releases.fact not in figures:
        return None
    version = figures.get(f"version_{releases.package}")
    if version is None:
        return None if releases.required else ""
    numbers = _parse(version)
    if numbers < _parse(releases.since) or (releases.before and numbers >= _parse(releases.before)):
        return None
    return f"{_NAMES.get(releases.package, releases.package)} {version}"


def _parse(version: str) -> tuple[int, ...]:
    number = _NUMBER.match(version)
    return tuple(map(int, number[0].split("."))) if number else ()
