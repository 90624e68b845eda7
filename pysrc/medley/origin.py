"""An origin is where a host has its engine from, a lock or an image, and the versions that are in it."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import TYPE_CHECKING

from medley import config
from medley.kind import Kind
from medley.layout.shapes import Link
from medley.layout.wires import LinkOf
from medley.layout.words import listed
from medley.problem import Problem
from medley.tables import TITLES, Engine

if TYPE_CHECKING:
    from medley.cluster import Member
    from medley.placement import Wanted
    from medley.site import Site

# What hosts of one cluster must have alike: Ray refuses another Ray or Python, its ranks another engine.
_ALIKE: Mapping[str, str] = {**dict(TITLES.items()), "ray": "Ray", "python": "Python"}
_SHOWN: Mapping[str, str] = {**_ALIKE, "cuda": "CUDA"}
_OWN = "VENV"
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
    name: str = _OWN
    versions: Versions = field(default_factory=dict)
    source: str = ""
    """Who says so, of an image."""
    image: bool = False
    device: str = "cuda"
    upgrade: str | None = None
    """What would give such a host a lock of ours."""

    def __str__(self) -> str:
        said = ", ".join(f"{_SHOWN[key]} {value}" for key, value in self.versions.items())
        return f"{self.name}: {said}" if said else self.name

    @property
    def unsaid(self) -> list[str]:
        """Of what must be alike, that which nobody says."""
        wanted = [key for key in ("ray", "python") if key not in self.versions]
        return [_ALIKE[key] for key in wanted]

    def differences(self, other: "Origin") -> list[str]:
        """What is known to keep the two from one cluster."""
        return [
            f"{title} {self.versions[key]} and {other.versions[key]}"
            for key, title in _ALIKE.items()
            if key in self.versions and key in other.versions and self.versions[key] != other.versions[key]
        ]


def origins(
    hosts: Mapping[str, Kind], engine: Engine, asked: Asked, locked: Mapping[str, Versions], *, images: bool
) -> dict[str, Origin]:
    """Of each host; `images`: whether what starts the ranks can start them out of one."""
    return {name: origin(kind, engine, asked, locked, images=images) for name, kind in hosts.items()}


def origin(
    kind: Kind, engine: Engine, asked: Asked, locked: Mapping[str, Versions], *, images: bool = True
) -> Origin:
    host = kind.host
    named, default = asked.image, host.container.image
    offered = host.environments.get(engine)
    if named not in {None, "default"}:
        return Origin(("--image", str(named)), str(named), image=True, device=host.device)
    if asked.environment:
        name = asked.environment
        return Origin(("--env", name), name, locked.get(name, {}), device=host.device)
    if named or (default and offered is None and host.no_environment and images and _has(kind, engine)):
        return _of_image(kind)
    if offered:
        return Origin((), offered, locked.get(offered, {}), device=host.device)
    return Origin(("--env", _OWN), device=host.device, upgrade=host.upgrade)


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
    )


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


def chosen(site: "Site", wanted: "Wanted", asked: Asked) -> "Site":
    """The site with the origins of its hosts; those of a running cluster agree already."""
    if site.order:
        return site
    kinds = {name: kind for name, (_, kind) in site.hosts.items()}
    images = wanted.launcher != "mp"
    return replace(site, origins=origins(kinds, wanted.engine, asked, locked(), images=images))


def of_members(members: Mapping[str, tuple[Kind, "Member"]], engine: Engine) -> dict[str, Origin]:
    """Of hosts in cluster.toml."""
    known = locked()
    return {
        name: origin(kind, engine, Asked(member.image, member.env), known)
        for name, (kind, member) in members.items()
    }


def joined(link_of: LinkOf, of: Mapping[str, Origin]) -> LinkOf:
    """The links of those that can be in one cluster; of others, what differs."""

    def link(one: str, other: str) -> Link | str | None:
        differ = of[one].differences(of[other]) if one in of and other in of else []
        return f"cannot be in one cluster: {', '.join(differ)}" if differ else link_of(one, other)

    return link


def apart(of: Mapping[str, Origin]) -> Iterator[str]:
    """What the user should know of hosts with GPUs that cannot be in one cluster, and the way round."""
    for one, other in combinations(groups(of), 2):
        first, second = of[one[0]], of[other[0]]
        differ = first.differences(second)
        if differ and first.device == second.device:
            yield (
                f"{listed(one)} and {listed(other)} cannot be in one cluster: {', '.join(differ)} "
                f"({first.name}, {second.name}); together they need {_way(of, one, other)}"
            )


def remedies(of: Mapping[str, Origin]) -> Iterator[str]:
    """The same, for who asked for a layout over them."""
    for one, other in combinations(groups(of), 2):
        if of[one[0]].differences(of[other[0]]) and of[one[0]].device == of[other[0]].device:
            yield f"{listed(one)} with {listed(other)}: {_way(of, one, other)}"


def groups(of: Mapping[str, Origin]) -> list[list[str]]:
    """Hosts of one origin, in the order of names."""
    found: dict[tuple[str, ...], list[str]] = {}
    for name in sorted(of):
        found.setdefault((of[name].name, *of[name].typed, of[name].device), []).append(name)
    return list(found.values())


def _way(of: Mapping[str, Origin], *pair: Iterable[str]) -> str:
    ways = [
        f"{upgrade} on {listed(names)}"
        for names in map(list, pair)
        if (upgrade := of[names[0]].upgrade) is not None
    ]
    return " or ".join((*ways, "one image on all of them (--image NAME)"))


def reasons(of: Mapping[str, Origin], used: Iterable[str]) -> Iterator[str]:
    """For a plan: which image its hosts run out of, and who says what is in it."""
    for names in groups({name: of[name] for name in used if name in of}):
        found = of[names[0]]
        if found.image:
            source = f", by {found.source}" if found.source else ""
            unsaid = f"; nobody says which {' and '.join(found.unsaid)} it has" if found.unsaid else ""
            yield f"{listed(names)}: out of the image {found}{source}{unsaid}"
        elif found.name == _OWN:
            yield f"{listed(names)}: no lock has this engine for it; VENV is a virtualenv of your own"
