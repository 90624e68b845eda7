"""Compare hosts before they join a cluster, and name those that cannot."""

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from medley.cluster import ClusterHost
from medley.environment import driver as drivers
from medley.environment.engine_source import (
    EngineRequest,
    EngineSource,
    choose_engine_source,
    read_locked_versions,
)
from medley.errors import Problem
from medley.host.facts import Facts
from medley.host.kind import Kind, find_kind
from medley.schema import EngineName

# Ray itself compares versions, but reports it only in a log, and RAY_IGNORE_VERSION_MISMATCH does not help.
# Libc, machine and what is preloaded may differ between hosts of different kinds, and do.
_ALIKE = {"ray": "Ray", "python": "Python", "engine": "the engine"}
Members = Mapping[str, tuple[Kind, ClusterHost]]
"""Hosts of cluster.toml by name, each with its kind."""
CLOCK_LIMIT_S = 10
"""With clocks hours apart no certificate is valid and logs cannot be compared; ssh itself takes a second."""
LEAST = 512 << 20
"""For Ray's logs and sockets; the build of an engine environment checks its own."""


def require_alike(ours: Mapping[str, Any], heads: Mapping[str, Any] | None, address: str) -> None:
    """Raise a Problem that names both sides, unless this host and the head can share a cluster."""
    if heads is None:
        raise Problem(
            f"the Ray cluster at {address} is not medley's",
            cause="its head has no record of its versions, so they cannot be compared",
            fix="on the head, if you do not need that Ray: ray stop; then: medley ray-head",
        )
    _require_same_image(ours, heads)
    if differ := list(_differences(ours, heads)):
        raise Problem(
            f"this host ({ours['host']}) and the head ({heads['host']}) run different versions",
            cause="\n".join(differ),
            fix="start both with the same image (--image NAME), or both without one; "
            "a Jetson Orin: docs/how-to/jetson-orin.md"
            if any(side["parts"].get("image") for side in (ours, heads))
            else "use the same medley on both: git pull, or the same flake; then: medley env build",
        )


def _require_same_image(ours: Mapping[str, Any], heads: Mapping[str, Any]) -> None:
    here, there = (side["parts"].get("image") for side in (ours, heads))
    if not here or not there or here["id"] == there["id"] or set(here["digests"]) & set(there["digests"]):
        return
    if ours["parts"].get("machine") != heads["parts"].get("machine"):
        return
    name = shlex.quote(there["name"])
    raise Problem(
        f"this host ({ours['host']}) and the head ({heads['host']}) run different images",
        cause=f"{here['name']} is {here['id'][:12]} here, {there['name']} is {there['id'][:12]} on the head",
        fix=f"copy the head's: ssh {heads['host']} {there['runtime']} save {name} | {here['runtime']} load; "
        f"then: --image {name}",
    )


def _differences(ours: Mapping[str, Any], heads: Mapping[str, Any]) -> Iterator[str]:
    for key, name in _ALIKE.items():
        if ours.get(key) != heads.get(key):
            yield f"{name} is {ours.get(key)} here and {heads.get(key)} on the head"
    alike = ours["parts"].get("machine") == heads["parts"].get("machine")
    if alike and ours["parts"].get("lock") != heads["parts"].get("lock"):
        here, there = (str(side["parts"].get("lock"))[:12] for side in (ours, heads))
        yield f"the engine environment's lock is {here} here and {there} on the head"


def sources_of_members(members: Members, engine: EngineName) -> dict[str, EngineSource]:
    """Return the engine source of each host; a host finds out whether it has Nix when it starts."""
    known = read_locked_versions()
    return {
        name: choose_engine_source(
            kind, engine, EngineRequest(member.image, member.env), known, has_nix_toolkit=True
        )
        for name, (kind, member) in members.items()
    }


def other_medley(name: str, theirs: str, ours: str) -> Problem | None:
    if theirs == ours:
        return None
    return Problem(
        f"{name} and this host run different versions of medley",
        cause=f"the digest of medley's source and locks is {theirs} on {name} and {ours} here",
        fix="use the same on all hosts: git pull on both, or the same flake; then run this again",
    )


def clock_off(name: str, ahead_s: float) -> Problem | None:
    if abs(ahead_s) <= CLOCK_LIMIT_S:
        return None
    return Problem(
        f"the clock of {name} is off",
        cause=f"it is {abs(ahead_s):.0f} s {'ahead of' if ahead_s > 0 else 'behind'} this host's",
        fix=f"on {name}: sudo timedatectl set-ntp true; timedatectl",
    )


def full_disk(name: str, look: Mapping[str, Any]) -> Problem | None:
    if look["free_bytes"] >= LEAST:
        return None
    return Problem(
        f"the disk of {name} is full",
        cause=f"{look['free_bytes'] >> 20} MiB free in {look['state']}, and Ray needs {LEAST >> 20} MiB",
        fix=f"on {name}: df -h {look['state']}; medley env clean; or MEDLEY_STATE=/another/disk",
    )


def old_driver(name: str, found: Facts, kind: Kind) -> Problem | None:
    return drivers.find_version_problem(name, found.driver.version, cuda(found), kind.host)


def cuda(found: Facts) -> str | None:
    """Return the newest CUDA that the driver supports, from nvidia-smi or a Jetson's L4T."""
    l4t = found.board.l4t
    return found.driver.cuda or (drivers.CUDA_OF_L4T.get(l4t.major) if l4t else None)


def kind_of_member(name: str, found: Facts, host: ClusterHost) -> Kind:
    """Return the kind of a host; a Problem about its kind names the host and its key in cluster.toml."""
    try:
        return find_kind(found, host.kind)
    except Problem as problem:
        if host.kind is None:
            raise
        raise Problem(
            f"{name} is not of the kind {host.kind}",
            cause=f"{problem.what}: {problem.cause}",
            fix=f"at [hosts.{name}] in cluster.toml, remove kind = {host.kind!r}; {problem.fix}",
        ) from problem


def unfit(
    found: Mapping[str, Facts], members: Members, engine: EngineName, head: str
) -> Iterator[tuple[str, Problem]]:
    """Yield the hosts to leave out, before anything is downloaded or built."""
    for name, each in found.items():
        if problem := old_driver(name, each, members[name][0]):
            yield name, problem
    yield from origins(members, engine, head)


def origins(members: Members, engine: EngineName, head: str) -> Iterator[tuple[str, Problem]]:
    """Yield the hosts whose engine is known to differ from the head's."""
    of = sources_of_members(members, engine)
    for name, found in of.items():
        if found.absent_reason:
            fix = f"in cluster.toml, for {name}: image = or env = with this engine; or: --without {name}"
            yield name, Problem(f"{name} has no engine", cause=found.absent_reason, fix=fix)
            continue
        if found.alone_reason:
            yield (
                name,
                Problem(f"{name} cannot be in a cluster", cause=found.alone_reason, fix=found.join_fix or ""),
            )
            continue
        differ = found.list_differences(of[head]) if head in of else []
        if differ:
            ways = (
                *([f"{found.upgrade_fix} on {name}"] if found.upgrade_fix else []),
                "the same image on all hosts",
            )
            yield (
                name,
                Problem(
                    f"{name} and {head} cannot be in one cluster",
                    cause=f"{', '.join(differ)}: {name} has {found}; {head} has {of[head]}",
                    fix=f"{', or '.join(ways)} (image = … in cluster.toml); or: --without {name}",
                ),
            )


def advice(name: str, look: Mapping[str, Any]) -> str | None:
    """Return a note about a setting that should be changed and does not stop the host."""
    if look["boots"] is not False:
        return None
    return (
        f"{name} does not rejoin after a reboot; to change that: sudo loginctl enable-linger {look['user']}"
    )


def stands(look: Mapping[str, Any], role: str, head: str, address: str, described: Mapping[str, Any]) -> bool:
    """Whether the host runs its part of this cluster already, as `described`."""
    found = look["membership"]
    wanted = (role, head, address, described["environment"])
    same = found and tuple(found[each] for each in ("role", "head", "address", "table")) == wanted
    # Only the host itself can expand ~ in a path, so the path as written counts too.
    same = same and described["nccl"] in (found["nccl"], found["nccl_written"] or found["nccl"])
    return bool(same and any(unit["running"] for unit in look["units"] if unit["name"] == "medley-ray"))


def unreached(
    said: Mapping[str, Mapping[str, Any]], head: str, addresses: Mapping[str, str]
) -> Iterator[tuple[str, Problem]]:
    """Yield the hosts to leave out because a firewall is between them and another; never the head."""
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
