"""An origin is where a host has its engine from, a lock or an image, and the versions that are in it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from medley import config
from medley.kind import Kind
from medley.problem import Problem
from medley.tables import TITLES, Engine, Model

if TYPE_CHECKING:
    from medley.cluster import Member

# What hosts of one cluster must have alike: Ray refuses another Ray or Python, its ranks another engine.
_ALIKE: Mapping[str, str] = {**dict(TITLES.items()), "ray": "Ray", "python": "Python"}
_SHOWN: Mapping[str, str] = {**_ALIKE, "cuda": "CUDA"}
OWN = "VENV"
OWN_NCCL = "VLLM_NCCL_SO_PATH"
"""A user's own NCCL, which vLLM opens; torch takes the one that is preloaded."""
_PIN = re.compile(r"^([\w.-]+)==([^ ;\\]+)", re.MULTILINE)

Versions = Mapping[str, str]
"""By `vllm`, `sglang`, `ray`, `python` and `cuda`; what nobody says is not there."""


@dataclass(frozen=True)
class Asked:
    """What the user named, for every host."""

    image: str | None = None
    environment: str | None = None


@dataclass(frozen=True)
class Origin:
    typed: tuple[str, ...]
    """The switches that lead to it."""
    name: str = OWN
    versions: Versions = field(default_factory=dict)
    source: str = ""
    """Who says so, of an image."""
    image: bool = False
    device: str = "cuda"
    upgrade: str | None = None
    """What would give such a host a lock of ours."""
    alone: str | None = None
    """Why its host cannot be in a cluster."""
    able: str | None = None
    """What to do so that it can."""
    lacks: str | None = None
    """Why its engine cannot serve the model that is asked for."""

    def __str__(self) -> str:
        said = ", ".join(f"{_SHOWN[key]} {value}" for key, value in self.versions.items())
        return f"{self.name}: {said}" if said else self.name

    @property
    def unsaid(self) -> list[str]:
        """Of what must be alike, that which nobody says."""
        wanted = [key for key in ("ray", "python") if key not in self.versions and not self.alone]
        return [_ALIKE[key] for key in wanted]

    def differences(self, other: "Origin") -> list[str]:
        """What is known to keep the two from one cluster."""
        alone = dict.fromkeys(each.alone for each in (self, other) if each.alone)
        return [*alone] or [
            f"{title} {self.versions[key]} and {other.versions[key]}"
            for key, title in _ALIKE.items()
            if key in self.versions and key in other.versions and self.versions[key] != other.versions[key]
        ]


def origin(
    kind: Kind,
    engine: Engine,
    asked: Asked,
    locked: Mapping[str, Versions],
    *,
    images: bool = True,
    pinned: bool = False,
) -> Origin:
    """`images`: it may be one; `pinned`: Nix brings the toolkit, with an NCCL where the wheels' fails."""
    host = kind.host
    lone = no_nccl(kind) if needs_nccl(kind) and not pinned else None
    alone, able = (lone.cause, lone.fix) if lone else (None, None)
    named, default = asked.image, host.container.image
    offered = host.environments.get(engine)
    if named not in {None, "default"}:
        return Origin(("--image", str(named)), str(named), image=True, device=host.device)
    if asked.environment:
        name = asked.environment
        if name not in locked:
            return Origin(("--env", name), name, device=host.device)
        return Origin(("--env", name), name, locked[name], device=host.device, alone=alone, able=able)
    if named or (default and offered is None and host.no_environment and images and _has(kind, engine)):
        return _of_image(kind)
    if offered:
        known = locked.get(offered, {})
        return Origin((), offered, known, device=host.device, alone=alone, able=able)
    return Origin(("--env", OWN), device=host.device, upgrade=host.upgrade)


def needs_nccl(kind: Kind) -> bool:
    """Whether the NCCL of the wheels does not start on such a host."""
    return kind.host.toolkit is not None and kind.host.toolkit.nccl


def no_nccl(kind: Kind) -> Problem:
    """Of ranks that would talk to other hosts over the NCCL of the wheels."""
    return Problem(
        "an engine out of our lock cannot talk to other hosts here",
        cause=f"the NCCL that PyPI has ends on {kind.host.title}: NVML knows no peer-to-peer there",
        fix="nix run .#ray-head, which compiles one that starts; or build one by hand (docs/orin.md): "
        f"export {OWN_NCCL}=FILE LD_PRELOAD=FILE, or out of an image --nccl FILE",
    )


def default_image(kind: Kind) -> str:
    if not kind.host.container.image:
        raise Problem(
            f"there is no image for hosts of the kind {kind.name}",
            cause=f"hosts/{kind.name}.toml names none",
            fix="--image NAME, of one that holds vLLM and Ray",
        )
    return kind.host.container.image


def _of_image(kind: Kind) -> Origin:
    host, held = kind.host, kind.host.container
    said = {str(name): version for name, version in held.holds.items()}
    return Origin(
        ("--image", "default"),
        default_image(kind),
        said,
        held.source or "",
        image=True,
        device=host.device,
        upgrade=host.upgrade,
        alone=f"{default_image(kind)} has no Ray" if "ray" in held.lacks else None,
        able=f"one image with Ray in it on all of them: {with_ray(default_image(kind))}",
    )


def with_ray(image: str) -> str:
    """What makes an image with Ray out of one that has none, of the version in our locks."""
    version = locked()["vllm-cuda"]["ray"]
    lines = rf"FROM {image}\nRUN python3 -m pip install ray=={version}\n"
    return f"printf '{lines}' | docker build -t vllm-ray - && medley ray-head --image vllm-ray"


def _has(kind: Kind, engine: Engine) -> bool:
    """An image that is said to hold engines, and not this one, is none for it."""
    said = kind.host.container.holds
    return engine in said or not any(each in said for each in TITLES)


def locked() -> dict[str, Versions]:
    """What is in each lock, by its name."""
    recipes, locks = config.recipes(), config.files("locks", ".txt")
    return {
        name: {
            **_pinned(locks[name].read_text(encoding="utf-8"), recipes[name].alias),
            "python": recipes[name].python,
        }
        for name in recipes
        if name in locks
    }


def _pinned(lock: str, alias: Mapping[str, str]) -> dict[str, str]:
    pins = dict(_PIN.findall(lock))
    found = {name: pins.get(name) or pins.get(alias.get(name, "")) for name in (*TITLES, "ray")}
    return {name: version.partition("+")[0] for name, version in found.items() if version}


def unknown(model: Model | None, engine: Engine, version: str | None) -> str | None:
    """Why an engine of this version does not know the model; None where it does, or nobody says."""
    first = model.since.get(engine) if model else None
    if first is None or not version or numbers(version) >= numbers(first):
        return None
    return f"{TITLES[engine]} {version} does not know this model, {first} is the first that does"


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0]))


def of_members(members: Mapping[str, tuple[Kind, "Member"]], engine: Engine) -> dict[str, Origin]:
    """Of hosts in cluster.toml; whether one has Nix, it says itself when its part begins."""
    known = locked()
    return {
        name: origin(kind, engine, Asked(member.image, member.env), known, pinned=True)
        for name, (kind, member) in members.items()
    }
