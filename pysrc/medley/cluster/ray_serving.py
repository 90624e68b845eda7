"""Serve over a Ray cluster: wait for its hosts, choose slots, and check where the ranks are."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from medley import config, transcript
from medley.cluster import membership, ray
from medley.cluster.membership import Membership
from medley.command import Variable, quote_path
from medley.engine.hidden_variables import build_hidden_names_variable
from medley.engine.launch import ENGINES
from medley.environment import user_nccl
from medley.errors import Problem
from medley.host import facts
from medley.host.kind import SiteHost, match_kind
from medley.planner import Layout, devices, list_devices
from medley.planner.site import Site
from medley.process import wait_until
from medley.progress import Progress
from medley.schema import DEFAULT_ENGINE, EngineName
from medley.transcript import Transcript
from medley.values import Value

_POLL_INTERVAL_S = 2


def find_cluster(host_count: int | None) -> Membership | None:
    """Return the cluster to serve over; None without one, and for a worker that serves by itself."""
    ray_cluster = membership.find_membership()
    if host_count == 1 and (ray_cluster is None or ray_cluster.role != "head"):
        return None
    if ray_cluster is None and (host_count or 1) > 1:
        raise Problem(
            f"this host is not in a cluster of {host_count} hosts",
            cause="it is not the head of a cluster",
            fix="medley init HOST HOST  # names the hosts; then: medley up",
        )
    if ray_cluster and ray_cluster.role != "head":
        raise Problem(
            "this host is a worker of a cluster, and a model is served from its head",
            cause=f"the head is {ray_cluster.head}",
            fix="run medley serve there, or serve only on this host: --hosts 1",
        )
    return ray_cluster


def list_nodes(ray_cluster: Membership) -> list[Mapping[str, Any]]:
    """Return all hosts that Ray lists, including lost ones."""
    return list(ray_cluster.ask("read")["nodes"])


def choose_engine(ray_cluster: Membership, requested_engine: EngineName | None) -> EngineName:
    engines = ray_cluster.find_engine_environment().engines
    if requested_engine and requested_engine not in engines:
        raise Problem(
            f"this cluster has no {ENGINES[requested_engine].TITLE}",
            cause=f"it runs {ray_cluster.environment}, which has {' and '.join(engines) or 'no engine'}",
            fix="on all hosts: medley ray-stop; then start it again: "
            f"medley ray-head --engine {requested_engine}",
        )
    return requested_engine or (engines or [DEFAULT_ENGINE])[0]


def wait_for_site(ray_cluster: Membership, host_count: int | None, wait_s: float, progress: Progress) -> Site:
    """Wait for `host_count` hosts with free slots; return them with the facts they sent when they joined."""
    nodes = _wait_for_nodes(ray_cluster, host_count, wait_s, progress)
    if nodes[0]["address"] != ray_cluster.address:
        raise Problem(
            "this host has no free slot, and the first rank must run here",
            cause="another model uses it",
            fix="medley status  # shows that model; end it: medley stop",
        )
    transcripts, addresses = read_transcripts(ray_cluster)
    hosts = {name: facts.read_facts(host_transcript) for name, host_transcript in transcripts.items()}
    names = {address: name for name, address in addresses.items()}
    slots = {node["address"]: node["free"] for node in nodes}
    if hosts_without_facts := set(slots) - set(names):
        raise Problem(
            f"{', '.join(sorted(hosts_without_facts))} sent no facts",
            cause="it did not join with this medley's ray-worker",
            fix="on it: medley ray-stop; medley ray-worker HEAD",
        )
    known_kinds, rank_order = config.load_hosts(), tuple(names[address] for address in slots)
    return Site(
        hosts={name: SiteHost(hosts[name], match_kind(hosts[name], known_kinds)) for name in rank_order},
        rank_order=rank_order,
        free_slots={names[address]: free for address, free in slots.items()},
        busy_slots={names[node["address"]]: node["slots"] - node["free"] for node in nodes},
        addresses={name: addresses[name] for name in rank_order},
        measurements=devices.read_measurements(),
        has_user_engine=ray_cluster.image is not None,
        nccl_version=user_nccl.read_versions(Path(ray_cluster.nccl))[0]
        if ray_cluster.nccl
        else ray_cluster.find_engine_environment().nccl_version,
    )


class SlotUse(Value):
    """The slots that a layout uses at each host's address, in the order of ranks, and the free ones."""

    used: Mapping[str, int]
    free: Mapping[str, int]


def count_slots(layout: Layout, site: Site) -> SlotUse:
    """Count the slots that a layout uses on each host of a cluster."""
    ranks = Counter(device.host for device in list_devices(layout))
    spare = {name: free - ranks[name] for name, free in site.free_slots.items()}
    return SlotUse(
        {site.addresses[name]: ranks[name] for name in site.rank_order if ranks[name]},
        {site.addresses[name]: count for name, count in spare.items() if count},
    )


def _wait_for_nodes(
    ray_cluster: Membership, host_count: int | None, wait_s: float, progress: Progress
) -> list[Mapping[str, Any]]:
    listed_nodes: list[Mapping[str, Any]] = []
    free_nodes: list[Mapping[str, Any]] = []
    needed = host_count or 1

    def is_complete() -> bool:
        listed_nodes[:] = list_nodes(ray_cluster)
        free_nodes[:] = ray.sort_by_rank_order(listed_nodes, ray_cluster.address)
        return len(free_nodes) >= needed

    with progress.stage(f"wait for {host_count or 'the'} hosts"):
        if wait_until(is_complete, wait_s, every_s=_POLL_INTERVAL_S):
            return free_nodes
    node_texts = ", ".join(
        f"{node['name']} ({node['address']}, {node['free']} free slots)" for node in free_nodes
    )
    busy_hosts = [
        node["name"] for node in listed_nodes if node["alive"] and node["slots"] and not node["free"]
    ]
    raise Problem(
        f"{needed} {'host is' if needed == 1 else 'hosts are'} needed, and {len(free_nodes)} are available",
        cause=f"after {wait_s:.0f} s: {node_texts or 'none'}"
        + (f"; another model uses every slot of {', '.join(busy_hosts)}" if busy_hosts else ""),
        fix=f"medley up starts the hosts of cluster.toml; by hand, on each missing host: "
        f"medley ray-worker HEAD; or over these: --hosts {len(free_nodes)}"
        if free_nodes
        else "end the other model (medley status shows it), or start missing hosts: medley up; without "
        "cluster.toml: medley ray-worker HEAD",
    )


def require_weights(ray_cluster: Membership, folder: Path) -> None:
    """Raise a Problem that names the hosts without this model's folder."""
    file = folder / "config.json"
    if hosts_without := ray_cluster.ask("lacking", ray_cluster.address, str(file))["lacking"]:
        quoted_folder = quote_path(folder)
        raise Problem(
            f"{', '.join(hosts_without)} does not have this model",
            cause=f"{file} is missing there, and every host reads its own copy",
            fix=f"medley pull {quoted_folder}; or copy it by hand: "
            f"rsync -a {quoted_folder}/ HOST:{quoted_folder}/",
        )


def list_variables(
    engine: EngineName, address: str, token: Path, network_variables: Collection[Variable]
) -> Iterator[Variable]:
    """Yield the variables that an engine needs to start its ranks over Ray; `address`: HOST:PORT of Ray."""
    yield from ray.list_client_variables(token)
    yield Variable("RAY_ADDRESS", address, "use this cluster instead of starting another")
    yield from network_variables
    yield build_hidden_names_variable(engine)
    yield from ENGINES[engine].list_ray_variables(address.partition(":")[0], network_variables)


def read_transcripts(ray_cluster: Membership) -> tuple[dict[str, Transcript], dict[str, str]]:
    """Return the transcripts that living hosts sent when they joined, and their addresses."""
    answer = ray_cluster.ask("read")
    names = {node["address"]: f"{node['name']} ({node['address']})" for node in answer["nodes"]}
    transcripts = {
        names[address]: transcript.parse_transcript(text) for address, text in answer["told"].items()
    }
    return transcripts, {names[address]: address for address in answer["told"]}


def list_ranks(ray_cluster: Membership) -> list[tuple[int, int, str]]:
    return ray.parse_ranks(ray_cluster.ask("ranks")["ranks"])


def require_rank_order(
    running_ranks: list[tuple[int, int, str]], expected: Mapping[str, int], tensor_parallel: int
) -> None:
    """Require the ranks where the plan has them, because it splits the layers by rank."""
    rank_addresses = [address for address, slots in expected.items() for _ in range(slots)]
    planned_ranks = [
        (rank // tensor_parallel, rank % tensor_parallel, address)
        for rank, address in enumerate(rank_addresses)
    ]
    if running_ranks != planned_ranks:
        raise Problem(
            "the ranks do not run where the plan has them",
            cause=f"planned: {_format_ranks(planned_ranks)}; running: {_format_ranks(running_ranks)}",
            fix="try again; if that fails: medley ray-stop on all hosts, then start the cluster again",
        )


def _format_ranks(ranks: list[tuple[int, int, str]]) -> str:
    return ", ".join(f"stage {stage} rank {rank} on {address}" for stage, rank, address in ranks) or "none"
