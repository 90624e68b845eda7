"""Compare hosts before they join a cluster, and name those that cannot."""

import shlex
from collections.abc import Iterator, Mapping
from typing import Any, TypedDict

from medley.cluster.cluster_file import ClusterHost
from medley.command import quote_word
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
_COMPARED_KEYS = {"ray": "Ray", "python": "Python", "engine": "the engine"}
KindsAndHosts = Mapping[str, tuple[Kind, ClusterHost]]
"""Hosts of cluster.toml by name, each with its kind."""
MAX_CLOCK_ERROR_S = 10
"""Seconds that a clock may be off: certificates fail if clocks are hours apart; ssh takes a second."""
MIN_FREE_DISK_BYTES = 512 << 20
"""Free disk space for Ray's logs and sockets; the build of an engine environment checks its own."""


class HostState(TypedDict, total=False):
    """The answer of a host's agent to `look`."""

    transcript: str
    """The answers to the questions about facts."""
    processes: int
    """The number of processes of Ray."""
    membership: Mapping[str, Any] | None
    """The fields of Membership; None outside of a cluster."""
    units: list[dict[str, Any]]
    """The fields of UnitState of each unit."""
    boots: bool | None
    """Whether units start at boot; None if unknown."""
    user: str
    free_bytes: int
    """The free space of the disk with medley's state folder."""
    state: str
    """The path of that folder."""


def require_same_versions(
    own_terms: Mapping[str, Any], head_terms: Mapping[str, Any] | None, address: str
) -> None:
    """Raise a Problem that names both sides, unless this host and the head can share a cluster."""
    if head_terms is None:
        raise Problem(
            f"the Ray cluster at {address} is not medley's",
            cause="its head has no record of its versions, so they cannot be compared",
            fix="on the head, if you do not need that Ray: ray stop; then: medley ray-head",
        )
    _require_same_image(own_terms, head_terms)
    if differences := list(_list_differences(own_terms, head_terms)):
        raise Problem(
            f"this host ({own_terms['host']}) and the head ({head_terms['host']}) run different versions",
            cause="\n".join(differences),
            fix="start both with the same image (--image NAME), or both without one; "
            "a Jetson Orin: docs/how-to/jetson-orin.md"
            if any(side["parts"].get("image") for side in (own_terms, head_terms))
            else "use the same medley on both: git pull, or the same flake; then: medley env build",
        )


def _require_same_image(own_terms: Mapping[str, Any], head_terms: Mapping[str, Any]) -> None:
    own_image, head_image = (side["parts"].get("image") for side in (own_terms, head_terms))
    if (
        not own_image
        or not head_image
        or own_image["id"] == head_image["id"]
        or set(own_image["digests"]) & set(head_image["digests"])
    ):
        return
    if own_terms["parts"].get("machine") != head_terms["parts"].get("machine"):
        return
    name, head = quote_word(head_image["name"]), quote_word(head_terms["host"])
    raise Problem(
        f"this host ({own_terms['host']}) and the head ({head_terms['host']}) run different images",
        cause=f"{own_image['name']} is {own_image['id'][:12]} here, "
        f"{head_image['name']} is {head_image['id'][:12]} on the head",
        fix=f"copy the head's: ssh {head} {quote_word(head_image['runtime'])} save {name} | "
        f"{own_image['runtime']} load; then: --image {name}",
    )


def _list_differences(own_terms: Mapping[str, Any], head_terms: Mapping[str, Any]) -> Iterator[str]:
    for key, title in _COMPARED_KEYS.items():
        if own_terms.get(key) != head_terms.get(key):
            yield f"{title} is {own_terms.get(key)} here and {head_terms.get(key)} on the head"
    is_same_machine = own_terms["parts"].get("machine") == head_terms["parts"].get("machine")
    if is_same_machine and own_terms["parts"].get("lock") != head_terms["parts"].get("lock"):
        own_lock, head_lock = (str(side["parts"].get("lock"))[:12] for side in (own_terms, head_terms))
        yield f"the engine environment's lock is {own_lock} here and {head_lock} on the head"


def find_engine_sources(members: KindsAndHosts, engine: EngineName) -> dict[str, EngineSource]:
    """Return the engine source of each host; a host finds out whether it has Nix when it starts."""
    locks = read_locked_versions()
    return {
        name: choose_engine_source(
            kind, engine, EngineRequest(member.image, member.env), locks, has_nix_toolkit=True
        )
        for name, (kind, member) in members.items()
    }


def other_version_problem(name: str, host_digest: str, own_digest: str) -> Problem | None:
    if host_digest == own_digest:
        return None
    return Problem(
        f"{name} and this host run different versions of medley",
        cause=f"the digest of medley's source and locks is {host_digest} on {name} and {own_digest} here",
        fix="use the same on all hosts: git pull on both, or the same flake; then run this again",
    )


def clock_problem(name: str, ahead_s: float) -> Problem | None:
    if abs(ahead_s) <= MAX_CLOCK_ERROR_S:
        return None
    return Problem(
        f"the clock of {name} is off",
        cause=f"it is {abs(ahead_s):.0f} s {'ahead of' if ahead_s > 0 else 'behind'} this host's",
        fix=f"on {name}: sudo timedatectl set-ntp true; timedatectl",
    )


def disk_problem(name: str, state: HostState) -> Problem | None:
    if state["free_bytes"] >= MIN_FREE_DISK_BYTES:
        return None
    folder = quote_word(state["state"])
    return Problem(
        f"the disk of {name} is full",
        cause=f"{state['free_bytes'] >> 20} MiB free in {state['state']}, "
        f"and Ray needs {MIN_FREE_DISK_BYTES >> 20} MiB",
        fix=f"on {name}: df -h {folder}; medley env clean; or MEDLEY_STATE=/another/disk",
    )


def driver_problem(name: str, host_facts: Facts, kind: Kind) -> Problem | None:
    return drivers.find_version_problem(
        name, host_facts.driver.version, find_cuda_version(host_facts), kind.table
    )


def find_cuda_version(host_facts: Facts) -> str | None:
    """Return the newest CUDA that the driver supports, from nvidia-smi or a Jetson's L4T."""
    l4t = host_facts.board.l4t
    return host_facts.driver.cuda or (drivers.CUDA_OF_L4T.get(l4t.major) if l4t else None)


def find_member_kind(name: str, host_facts: Facts, member: ClusterHost) -> Kind:
    """Return the kind of a host; a Problem about its kind names the host and its key in cluster.toml."""
    try:
        return find_kind(host_facts, member.kind)
    except Problem as problem:
        if member.kind is None:
            raise
        raise Problem(
            f"{name} is not of the kind {member.kind}",
            cause=f"{problem.what}: {problem.cause}",
            fix=f"at [hosts.{name}] in cluster.toml, remove kind = {member.kind!r}; {problem.fix}",
        ) from problem


def list_unfit_hosts(
    facts_by_host: Mapping[str, Facts], members: KindsAndHosts, engine: EngineName, head: str
) -> Iterator[tuple[str, Problem]]:
    """Yield the hosts to leave out, before anything is downloaded or built."""
    for name, host_facts in facts_by_host.items():
        if problem := driver_problem(name, host_facts, members[name][0]):
            yield name, problem
    yield from list_engine_mismatches(members, engine, head)


def list_engine_mismatches(
    members: KindsAndHosts, engine: EngineName, head: str
) -> Iterator[tuple[str, Problem]]:
    """Yield the hosts whose engine is known to differ from the head's."""
    sources = find_engine_sources(members, engine)
    for name, source in sources.items():
        if source.absent_reason:
            fix = f"in cluster.toml, for {name}: image = or env = with this engine; or: --without {name}"
            yield name, Problem(f"{name} has no engine", cause=source.absent_reason, fix=fix)
            continue
        if source.alone_reason:
            yield (
                name,
                Problem(
                    f"{name} cannot be in a cluster", cause=source.alone_reason, fix=source.join_fix or ""
                ),
            )
            continue
        differences = source.list_differences(sources[head]) if head in sources else []
        if differences:
            fixes = (
                *([f"{source.upgrade_fix} on {name}"] if source.upgrade_fix else []),
                "the same image on all hosts",
            )
            yield (
                name,
                Problem(
                    f"{name} and {head} cannot be in one cluster",
                    cause=f"{', '.join(differences)}: {name} has {source}; {head} has {sources[head]}",
                    fix=f"{', or '.join(fixes)} (image = … in cluster.toml); or: --without {name}",
                ),
            )


def find_reboot_note(name: str, state: HostState) -> str | None:
    """Return a note if the host does not rejoin after a reboot; None if it does, or cannot."""
    if state["boots"] is not False:
        return None
    command = shlex.join(("sudo", "loginctl", "enable-linger", state["user"]))
    return f"{name} does not rejoin after a reboot; to change that: {command}"


def is_node_running(state: HostState, role: str, head: str, address: str, request: Mapping[str, Any]) -> bool:
    """Return whether the host runs its node of this cluster already, as `request` describes it."""
    membership = state["membership"]
    expected = (role, head, address, request["environment"])
    if not membership or tuple(membership[key] for key in ("role", "head", "address", "table")) != expected:
        return False
    # Only the host itself can expand ~ in a path, so the path as written counts too.
    if request["nccl"] not in (membership["nccl"], membership["nccl_written"] or membership["nccl"]):
        return False
    return any(unit["running"] for unit in state["units"] if unit["name"] == "medley-ray")


def list_unreached_hosts(
    answers: Mapping[str, Mapping[str, Any]], head: str, addresses: Mapping[str, str]
) -> Iterator[tuple[str, Problem]]:
    """Yield the hosts to leave out because a firewall is between them and another; never the head."""
    for name, answer in answers.items():
        for other, address, port, reason in answer["closed"]:
            yield (
                name if other == head else other,
                Problem(
                    f"{name} does not reach {other}",
                    cause=f"{address}:{port} from {addresses[name]}: {reason}",
                    fix=f"on {other}: sudo ufw allow from {addresses[name]}; sudo ufw status",
                ),
            )
            break
