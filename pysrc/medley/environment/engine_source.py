"""Decide where a host's engine comes from: a lock, an image or the user's own; and its versions."""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from medley import config
from medley.errors import Problem
from medley.host.kind import Kind
from medley.schema import TITLES, EngineName, Model

# Hosts of one cluster must have these alike: Ray refuses another Ray or Python, its ranks another engine.
_ALIKE: Mapping[str, str] = {**dict(TITLES.items()), "ray": "Ray", "python": "Python"}
_SHOWN: Mapping[str, str] = {**_ALIKE, "cuda": "CUDA"}
OWN = "VENV"
OWN_NCCL = "VLLM_NCCL_SO_PATH"
"""A user's own NCCL, which vLLM opens; torch takes the one that is preloaded."""
_PIN = re.compile(r"^([\w.-]+)==([^ ;\\]+)", re.MULTILINE)
_NCCL = re.compile(r"^nvidia-nccl-cu\d+$")

Versions = Mapping[str, str]
"""By `vllm`, `sglang`, `ray`, `python`, `cuda` and `nccl`; unknown ones are missing."""


@dataclass(frozen=True)
class EngineRequest:
    image: str | None = None
    environment: str | None = None


@dataclass(frozen=True)
class EngineSource:
    typed: tuple[str, ...]
    """The switches that choose it."""
    name: str = OWN
    versions: Versions = field(default_factory=dict)
    source: str = ""
    """Of an image: where its versions are published."""
    image: bool = False
    device: str = "cuda"
    upgrade: str | None = None
    """How such a host would get a lock of medley's."""
    alone: str | None = None
    """Why its host cannot be in a cluster."""
    able: str | None = None
    """How it could be."""
    lacks: str | None = None
    """Why its engine cannot serve the model that is asked for."""
    absent: str | None = None
    """Why its host has no engine at all."""

    def __str__(self) -> str:
        shown = ", ".join(f"{_SHOWN[key]} {value}" for key, value in self.versions.items() if key in _SHOWN)
        return f"{self.name}: {shown}" if shown else self.name

    @property
    def unsaid(self) -> list[str]:
        """Unknown versions that must be alike in a cluster."""
        return [_ALIKE[key] for key in ("ray", "python") if key not in self.versions and not self.alone]

    def differences(self, other: "EngineSource") -> list[str]:
        """Why the two cannot be in one cluster, as far as is known."""
        alone = dict.fromkeys(each.alone for each in (self, other) if each.alone)
        return [*alone] or [
            f"{title} {self.versions[key]} and {other.versions[key]}"
            for key, title in _ALIKE.items()
            if key in self.versions and key in other.versions and self.versions[key] != other.versions[key]
        ]


def engine_source(
    kind: Kind,
    engine: EngineName,
    asked: EngineRequest,
    locked: Mapping[str, Versions],
    *,
    images: bool = True,
    pinned: bool = False,
) -> EngineSource:
    """`images`: it may be one; `pinned`: Nix brings the toolkit, with an NCCL where the wheels' fails."""
    host, name, held = kind.host, asked.environment, kind.host.container.holds
    offered = host.environments.get(engine)
    if asked.image not in {None, "default"}:
        return EngineSource(("--image", str(asked.image)), str(asked.image), image=True, device=host.device)
    if name and name not in locked:
        return EngineSource(("--env", name), name, device=host.device)
    # An image that holds engines, and not this one, is none for it.
    has_engine = engine in held or not any(each in held for each in TITLES)
    replaces = host.container.image and offered is None and host.no_environment and images and has_engine
    if not name and (asked.image or replaces):
        return _of_image(kind)
    if name or offered:
        found, typed = str(name or offered), ("--env", name) if name else ()
        lone = no_nccl(kind) if needs_nccl(kind) and not pinned else None
        alone, able = (lone.cause, lone.fix) if lone else (None, None)
        return EngineSource(typed, found, locked.get(found, {}), device=host.device, alone=alone, able=able)
    absent = f"there is neither an engine environment nor an image of {TITLES[engine]} for {host.title}"
    if host.container.image and has_engine and not images:
        absent = f"{host.title} has {TITLES[engine]} in an image only, and images need Ray"
    if kind.no_image_reason:
        absent = f"{absent}: {kind.no_image_reason}"
    return EngineSource(("--env", OWN), device=host.device, upgrade=host.upgrade, absent=absent)


def needs_nccl(kind: Kind) -> bool:
    """Whether the NCCL of the wheels fails on such a host."""
    return kind.host.toolkit is not None and kind.host.toolkit.nccl


def no_nccl(kind: Kind) -> Problem:
    """Of ranks that would talk to other hosts over the NCCL of the wheels."""
    return Problem(
        "an engine out of our lock cannot talk to other hosts here",
        cause=f"the NCCL that PyPI has crashes on {kind.host.title}: NVML knows no peer-to-peer there",
        fix="nix run .#ray-head, which compiles one that starts; or build one by hand "
        "(docs/how-to/jetson-orin.md): --nccl FILE, or nccl = in cluster.toml",
    )


def default_image(kind: Kind) -> str:
    if not kind.host.container.image:
        raise Problem(
            f"there is no image for hosts of the kind {kind.name}",
            cause=kind.no_image_reason or f"hosts/{kind.name}.toml names none",
            fix="--image NAME, of one that holds vLLM and Ray",
        )
    return kind.host.container.image


def _of_image(kind: Kind) -> EngineSource:
    host, held = kind.host, kind.host.container
    return EngineSource(
        ("--image", "default"),
        default_image(kind),
        {str(name): version for name, version in held.holds.items()},
        held.source or "",
        image=True,
        device=host.device,
        upgrade=host.upgrade,
        alone=f"{default_image(kind)} has no Ray" if "ray" in held.lacks else None,
        able=f"one image with Ray in it on all of them: {with_ray(default_image(kind))}",
    )


def with_ray(image: str) -> str:
    """The command that adds Ray to an image, of the version in our locks."""
    version = locked()["vllm-cuda"]["ray"]
    lines = rf"FROM {image}\nRUN python3 -m pip install ray=={version}\n"
    return f"printf '{lines}' | docker build -t vllm-ray - && medley ray-head --image vllm-ray"


def locked() -> dict[str, Versions]:
    """The versions in each lock, by its name."""
    recipes, locks = config.recipes(), config.files("locks", ".txt")
    return {
        name: {**_pinned(locks[name].read_text(encoding="utf-8"), recipe.alias), "python": recipe.python}
        for name, recipe in recipes.items()
        if name in locks
    }


def _pinned(lock: str, alias: Mapping[str, str]) -> dict[str, str]:
    versions = pins(lock)
    found = {name: versions.get(name) or versions.get(alias.get(name, "")) for name in (*TITLES, "ray")}
    found["nccl"] = next((version for name, version in versions.items() if _NCCL.match(name)), None)
    return {name: version.partition("+")[0] for name, version in found.items() if version}


@lru_cache(maxsize=16)
def pins(lock: str) -> Mapping[str, str]:
    """Every version in a lock, read once per process, because each hypothetical host asks for some."""
    return dict(_PIN.findall(lock))


def is_pinned() -> bool:
    """Return whether Nix brings the CUDA toolkit of this process."""
    return any(os.environ.get(name) for name in ("MEDLEY_FLAKE", "MEDLEY_TOOLKIT"))


def brings_nvcc(lock: str) -> bool:
    """Return whether the nvcc of this lock accepts its CUDA headers: both of one minor version."""
    files = config.files("locks", ".txt")
    found = pins(files[lock].read_text(encoding="utf-8")) if lock in files else {}
    nvcc, headers = (numbers(found.get(f"nvidia-cuda-{name}", ""))[:2] for name in ("nvcc", "runtime"))
    return bool(nvcc) and nvcc == headers


def nccl(engine: EngineName, sources: Iterable[EngineSource] = ()) -> tuple[int, ...]:
    """The oldest NCCL of these hosts' engines; where one is not known, that of the engine's lock counts."""
    lock = config.files("locks", ".txt")[f"{engine}-cuda"].read_text(encoding="utf-8")
    of_lock = _pinned(lock, {})["nccl"]
    return min((numbers(each.versions.get("nccl", of_lock)) for each in sources), default=numbers(of_lock))


def unknown(model: Model | None, engine: EngineName, version: str | None) -> str | None:
    """Why an engine of this version lacks the model; None where it has it, or that is unknown."""
    first = model.since.get(engine) if model else None
    if first is None or not version or not is_older(version, first):
        return None
    return f"{TITLES[engine]} {version} does not know this model, {first} is the first that does"


def is_older(version: str, release: str) -> bool:
    """Whether a version comes before a release, as PEP 440 orders them: a candidate comes before its release.

    An image's own name of a version, which PEP 440 does not know, counts by its numbers.
    """
    from packaging.version import InvalidVersion, Version  # noqa: PLC0415 - 30 ms, and few verbs compare

    try:
        return Version(version) < Version(release)
    except InvalidVersion:
        return numbers(version) < numbers(release)


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0]))
