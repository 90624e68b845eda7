"""Serve over a Ray cluster: wait for its hosts, choose slots, and check where the ranks are."""

import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medley import config, transcript
from medley.cluster import membership, ray
from medley.cluster.membership import Membership
from medley.command import Variable
from medley.engine import build_hidden_names_variable
from medley.engine.launch import ENGINES
from medley.environment import own_nccl
from medley.errors import Problem
from medley.host import facts
from medley.host.kind import match_kind
from medley.planner import Layout, devices, list_devices
from medley.planner.topology import Topology
from medley.process import wait_until
from medley.progress import Progress
from medley.schema import DEFAULT_ENGINE, EngineName
from medley.transcript import Transcript

_LOOK_EVERY_S = 2


def cluster(hosts: int | None) -> Membership | None:
    """Return the cluster to serve over; None without one, and for a worker that serves by itself."""
    found = membership.noted()
    if hosts == 1 and (found is None or found.role != "head"):
        return None
    if found is None and (hosts or 1) > 1:
        raise Problem(
            f"this host is not in a cluster of {hosts} hosts",
            cause="it is not the head of a cluster",
            fix="medley init HOST HOST  # names the hosts; then: medley up",
        )
    if found and found.role != "head":
        raise Problem(
            "this host is a worker of a cluster, and a model is served from its head",
            cause=f"the head is {found.head}",
            fix="run medley serve there, or serve only on this host: --hosts 1",
        )
    return found


def nodes(found: Membership) -> list[Mapping[str, Any]]:
    """Return all hosts that Ray lists, including lost ones."""
    return list(found.ask("read")["nodes"])


def engine(found: Membership, asked: EngineName | None) -> EngineName:
    there = found.engine_environment().engines
    if asked and asked not in there:
        raise Problem(
            f"this cluster has no {ENGINES[asked].TITLE}",
            cause=f"it runs {found.environment}, which has {' and '.join(there) or 'no engine'}",
            fix=f"on all hosts: medley ray-stop; then start it again: medley ray-head --engine {asked}",
        )
    return asked or (there or [DEFAULT_ENGINE])[0]


def site(found: Membership, wanted: int | None, wait_s: float, watch: Progress) -> Topology:
    """Wait for `wanted` hosts with free slots; returns them with the facts they gave when they joined."""
    nodes = _present(found, wanted, wait_s, watch)
    if nodes[0]["address"] != found.address:
        raise Problem(
            "this host has no free slot, and the first rank must run here",
            cause="another model uses it",
            fix="medley status  # shows that model; end it: medley stop",
        )
    transcripts, addresses = told(found)
    hosts = {name: facts.read_facts(each) for name, each in transcripts.items()}
    names = {address: name for name, address in addresses.items()}
    slots = {node["address"]: node["free"] for node in nodes}
    if silent := set(slots) - set(names):
        raise Problem(
            f"{', '.join(sorted(silent))} sent no facts",
            cause="it did not join with this medley's ray-worker",
            fix="on it: medley ray-stop; medley ray-worker HEAD",
        )
    known, order = config.hosts(), tuple(names[address] for address in slots)
    return Topology(
        hosts={name: (hosts[name], match_kind(hosts[name], known)) for name in order},
        rank_order=order,
        free_slots={names[address]: free for address, free in slots.items()},
        busy_slots={names[node["address"]]: node["slots"] - node["free"] for node in nodes},
        addresses={name: addresses[name] for name in order},
        measurements=devices.read_measurements(),
        has_own_engine=found.image is not None,
        nccl_version=own_nccl.read_versions(Path(found.nccl))[0]
        if found.nccl
        else found.engine_environment().nccl,
    )


@dataclass(frozen=True)
class SlotUse:
    """How many slots of each host's address a layout uses, in the order of ranks, and how many stay free."""

    used: Mapping[str, int]
    spare: Mapping[str, int]


def count_slots(layout: Layout, site: Topology) -> SlotUse:
    """Count the slots that a layout uses on each host of a cluster."""
    ranks = Counter(device.host for device in list_devices(layout))
    spare = {name: free - ranks[name] for name, free in site.free_slots.items()}
    return SlotUse(
        {site.addresses[name]: ranks[name] for name in site.rank_order if ranks[name]},
        {site.addresses[name]: count for name, count in spare.items() if count},
    )


def _present(
    found: Membership, wanted: int | None, wait_s: float, watch: Progress
) -> list[Mapping[str, Any]]:
    known: list[Mapping[str, Any]] = []
    present: list[Mapping[str, Any]] = []
    needed = wanted or 1

    def complete() -> bool:
        known[:] = nodes(found)
        present[:] = ray.in_order_of_ranks(known, found.address)
        return len(present) >= needed

    with watch.stage(f"wait for {wanted or 'the'} hosts"):
        if wait_until(complete, wait_s, every_s=_LOOK_EVERY_S):
            return present
    here = ", ".join(f"{node['name']} ({node['address']}, {node['free']} free slots)" for node in present)
    busy = [node["name"] for node in known if node["alive"] and node["slots"] and not node["free"]]
    raise Problem(
        f"{needed} {'host is' if needed == 1 else 'hosts are'} needed, and {len(present)} are available",
        cause=f"after {wait_s:.0f} s: {here or 'none'}"
        + (f"; another model uses every slot of {', '.join(busy)}" if busy else ""),
        fix=f"medley up starts the hosts of cluster.toml; by hand, on each missing host: "
        f"medley ray-worker HEAD; or over these: --hosts {len(present)}"
        if present
        else "end the other model (medley status shows it), or start missing hosts: medley up; without "
        "cluster.toml: medley ray-worker HEAD",
    )


def require_weights(found: Membership, folder: Path) -> None:
    """Raise a Problem that names the hosts without this model's folder."""
    file = folder / "config.json"
    if lacking := found.ask("lacking", found.address, str(file))["lacking"]:
        typed = shlex.quote(str(folder))
        raise Problem(
            f"{', '.join(lacking)} does not have this model",
            cause=f"{file} is missing there, and every host reads its own copy",
            fix=f"medley pull {typed}; or copy it by hand: rsync -a {typed}/ HOST:{typed}/",
        )


def list_variables(
    engine: EngineName, address: str, token: Path, network_variables: Collection[Variable]
) -> Iterator[Variable]:
    """Yield the variables that an engine needs to start its ranks over Ray; `address`: HOST:PORT of Ray."""
    yield from ray.variables(token)
    yield Variable("RAY_ADDRESS", address, "use this cluster instead of starting another")
    yield from network_variables
    yield build_hidden_names_variable(engine)
    yield from ENGINES[engine].list_ray_variables(address.partition(":")[0], network_variables)


def told(found: Membership) -> tuple[dict[str, Transcript], dict[str, str]]:
    """Return the transcripts that living hosts sent when they joined, and their addresses."""
    said = found.ask("read")
    names = {node["address"]: f"{node['name']} ({node['address']})" for node in said["nodes"]}
    texts = {names[address]: transcript.parse(text) for address, text in said["told"].items()}
    return texts, {names[address]: address for address in said["told"]}


def ranks(found: Membership) -> list[tuple[int, int, str]]:
    return ray.ranks(found.ask("ranks")["ranks"])


def require_order(seen: list[tuple[int, int, str]], expected: Mapping[str, int], tensor: int) -> None:
    """Require the ranks where the plan has them, because it splits the layers by rank."""
    places = [address for address, slots in expected.items() for _ in range(slots)]
    planned = [(rank // tensor, rank % tensor, address) for rank, address in enumerate(places)]
    if seen != planned:
        raise Problem(
            "the ranks do not run where the plan has them",
            cause=f"planned: {_listed(planned)}; running: {_listed(seen)}",
            fix="try again; if that fails: medley ray-stop on all hosts, then start the cluster again",
        )


def _listed(ranks: list[tuple[int, int, str]]) -> str:
    return ", ".join(f"stage {stage} rank {rank} on {address}" for stage, rank, address in ranks) or "none"
