"""Agreement is what hosts must have alike before one cluster can be made of them, and what each must have."""

from collections.abc import Iterator, Mapping
from typing import Any

from medley import driver as drivers
from medley import origin
from medley.cluster import Cluster, Member
from medley.facts import Facts
from medley.kind import Kind
from medley.problem import Problem
from medley.tables import Engine

CLOCK_LIMIT_S = 10
"""Hours apart no certificate is valid and no log can be read beside another; ssh itself takes a second."""
LEAST = 512 << 20
"""For Ray's logs and sockets; what an engine environment takes is seen when it is built."""


def differences(name: str, greeting: Mapping[str, Any], ours: str, ahead_s: float) -> Iterator[Problem]:
    """What keeps the host from being asked any more; `ours` is the digest of our source."""
    if greeting["medley"] != ours:
        yield Problem(
            f"{name} runs another medley than this host",
            cause=f"the text of medley and its locks is {greeting['medley']} there and {ours} here",
            fix="use the same on all hosts: git pull in both, or the same flake; then the same again",
        )
    if abs(ahead_s) > CLOCK_LIMIT_S:
        yield Problem(
            f"the clock of {name} is off",
            cause=f"it is {abs(ahead_s):.0f} s {'ahead of' if ahead_s > 0 else 'behind'} this host's",
            fix=f"on {name}: sudo timedatectl set-ntp true; timedatectl",
        )


def shortages(name: str, look: Mapping[str, Any]) -> Iterator[Problem]:
    """What the host has too little of to take part."""
    if look["free_bytes"] < LEAST:
        yield Problem(
            f"the disk of {name} is full",
            cause=f"{look['free_bytes'] >> 20} MiB left at {look['state']}, and Ray needs {LEAST >> 20}",
            fix=f"on {name}: df -h {look['state']}; medley env clean; or MEDLEY_STATE=/another/disk",
        )


def driver(name: str, found: Facts, kind: Kind) -> Iterator[Problem]:
    """A driver that is older than the CUDA of this kind's engines."""
    problem = drivers.too_old(name, found.driver.version, cuda(found), kind.host)
    if problem:
        yield problem


def cuda(found: Facts) -> str | None:
    """What the driver runs at most: as nvidia-smi says, or on a Jetson, where it may not, as L4T does."""
    l4t = found.board.l4t
    return found.driver.cuda or (drivers.cuda_of_l4t(l4t.major) if l4t else None)


def unfit(
    found: Mapping[str, Facts], kinds: Mapping[str, Kind], cluster: Cluster, head: str
) -> Iterator[tuple[str, Problem]]:
    """Whom to leave out by what is known of it, before anything is fetched or built."""
    members = {name: (kinds[name], cluster.member(name)) for name in found}
    for name, each in found.items():
        yield from ((name, problem) for problem in driver(name, each, kinds[name]))
    yield from origins(members, cluster.engine, head)


def origins(
    members: Mapping[str, tuple[Kind, Member]], engine: Engine, head: str
) -> Iterator[tuple[str, Problem]]:
    """Hosts whose engine is known to be another than the head's."""
    of = origin.of_members(members, engine)
    for name, found in of.items():
        if found.alone:
            yield name, Problem(f"{name} cannot be in a cluster", cause=found.alone, fix=found.able or "")
            continue
        differ = found.differences(of[head]) if head in of else []
        if differ:
            ways = (*([f"{found.upgrade} on {name}"] if found.upgrade else []), "the same image on all hosts")
            yield (
                name,
                Problem(
                    f"{name} and {head} cannot be in one cluster",
                    cause=f"{', '.join(differ)}: {name} has {found}; {head} has {of[head]}",
                    fix=f"{', or '.join(ways)} (image = … in cluster.toml); until then: --without {name}",
                ),
            )


def advice(name: str, look: Mapping[str, Any]) -> Iterator[str]:
    """What is no hindrance, and better otherwise."""
    if look["boots"] is False:
        user = look["user"]
        yield f"{name}: it does not come back by itself after a reboot: sudo loginctl enable-linger {user}"


def stands(look: Mapping[str, Any], role: str, head: str, address: str) -> bool:
    """Whether the host's part in this cluster runs already, as it should be."""
    found = look["membership"]
    same = found and (found["role"], found["head"], found["address"]) == (role, head, address)
    return bool(same and any(unit["running"] for unit in look["units"] if unit["name"] == "medley-ray"))


def unreached(
    said: Mapping[str, Mapping[str, Any]], head: str, addresses: Mapping[str, str]
) -> Iterator[tuple[str, Problem]]:
    """Whom to leave out because a firewall is between it and another: not the head."""
    for name, each in said.items():
        for other, address, port, why in each["closed"]:
            yield (
                name if other == head else other,
                Problem(
                    f"{name} does not reach {other}",
                    cause=f"{address}:{port} from {addresses[name]}: {why}",
                    fix=f"on {other}: sudo ufw allow from {addresses[name]}; sudo ufw status",
                ),
            )
            break


def not_joined(name: str, address: str, at: str) -> Problem:
    return Problem(
        f"{name} is not among the hosts of its cluster",
        cause=f"Ray runs on it, and the head at {at} does not see {address}",
        fix=f"medley logs {name}; then medley up again",
    )
