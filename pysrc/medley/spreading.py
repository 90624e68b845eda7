"""Spreading is serving over the cluster this host heads: its hosts, and where the ranks came to be."""

import contextlib
import shlex
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medley import config, facts, imaged, measured, membership, ray, recipe, transcript, venv, wiring
from medley.engines import ENGINES
from medley.facts import Facts
from medley.imaged import Imaged
from medley.kind import kind
from medley.layout.shapes import Layout
from medley.layout.words import devices
from medley.membership import Membership
from medley.placement import Wanted
from medley.problem import Problem
from medley.site import Site
from medley.tables import Engine
from medley.transcript import Transcript
from medley.variables import Variable
from medley.venv import Environment
from medley.watch import Watch

_LOOK_EVERY_S = 2
_ASK_LIMIT_S = 10


def cluster(hosts: int | None) -> Membership | None:
    """The cluster to serve over, or None where this host is in none, or is a worker told to serve alone.

    A head that serves alone is still in it, so that its slot is taken.
    """
    found = membership.noted()
    if hosts == 1 and (found is None or found.role != "head"):
        return None
    if found is None and (hosts or 1) > 1:
        raise Problem(
            f"there is no cluster of {hosts} hosts here",
            cause="this host heads none",
            fix="medley ray-head, then medley ray-worker on each other host",
        )
    if found and found.role != "head":
        raise Problem(
            "this host is a worker of a cluster, and a model is served from its head",
            cause=f"the head is {found.head}",
            fix="run medley serve there, or serve on this host alone: --hosts 1",
        )
    return found


def environment(found: Membership) -> Environment | Imaged:
    """The one whose Ray runs: the engine must be of the same."""
    if found.image:
        return imaged.noted(found.image)
    there = venv.at(Path(found.environment))
    if there is None:
        raise Problem(
            "the engine environment of this cluster is gone",
            cause=f"{found.environment} is not there any more",
            fix="medley ray-stop, then start the cluster again",
        )
    return there


def nodes(found: Membership) -> list[Mapping[str, Any]]:
    """The hosts that Ray knows of, those that are gone too."""
    return list(membership.ask(environment(found), Path(found.token), "read", found.head)["nodes"])


def engine(found: Membership, asked: Engine | None) -> Engine:
    """The one whose environment this cluster runs."""
    there = imaged.engines(environment(found))
    if asked and asked not in there:
        raise Problem(
            f"this cluster has no {ENGINES[asked].TITLE}",
            cause=f"it runs {found.environment}, which has {' and '.join(there) or 'no engine'}",
            fix=f"on all hosts medley ray-stop, then start it anew: medley ray-head --engine {asked}",
        )
    return asked or (there or ["vllm"])[0]


def site(found: Membership, wanted: int | None, wait_s: float, watch: Watch) -> Site:
    """The hosts with free slots, once there are `wanted`, as they told of themselves when they joined."""
    nodes = _present(found, wanted, wait_s, watch)
    if nodes[0]["address"] != found.address:
        raise Problem(
            "this host has no free slot, and the first rank must be here",
            cause="another model has it",
            fix="end that one: medley status names it",
        )
    hosts, addresses = told(found)
    names = {address: name for name, address in addresses.items()}
    slots = {node["address"]: node["free"] for node in nodes}
    if silent := set(slots) - set(names):
        raise Problem(
            f"{', '.join(sorted(silent))} told nothing of itself",
            cause="it was not joined by this medley's ray-worker",
            fix="on it: medley ray-stop, then medley ray-worker HEAD",
        )
    known, order = config.hosts(), tuple(names[address] for address in slots)
    return Site(
        hosts={name: (hosts[name], kind(hosts[name], known)) for name in order},
        order=order,
        slots={names[address]: free for address, free in slots.items()},
        busy={names[node["address"]]: node["slots"] - node["free"] for node in nodes},
        addresses={name: addresses[name] for name in order},
        measured=measured.read(),
    )


@dataclass(frozen=True)
class Taken:
    """Who takes part: ranks of each host by address, in order of ranks, and slots to leave alone."""

    slots: Mapping[str, int]
    spare: Mapping[str, int]


def taken(layout: Layout, site: Site) -> Taken:
    ranks = Counter(device.host for device in devices(layout))
    spare = {name: free - ranks[name] for name, free in site.slots.items()}
    return Taken(
        {site.addresses[name]: ranks[name] for name in site.order if ranks[name]},
        {site.addresses[name]: count for name, count in spare.items() if count},
    )


def _present(found: Membership, wanted: int | None, wait_s: float, watch: Watch) -> list[Mapping[str, Any]]:
    deadline = time.monotonic() + wait_s
    with watch.stage(f"wait for {wanted or 'the'} hosts"):
        while True:
            said = nodes(found)
            present = ray.in_order_of_ranks(said, found.address)
            if len(present) >= (wanted or 1):
                return present
            if time.monotonic() > deadline:
                raise _too_few(present, said, wanted or 1, wait_s)
            time.sleep(_LOOK_EVERY_S)


def held(found: Membership, spare: Mapping[str, int]) -> contextlib.AbstractContextManager[None]:
    """Keep Ray from placing ranks on the slots that are not to take part: it would choose by itself."""
    return membership.held(environment(found), Path(found.token), found.head, found.address, spare)


def require_weights(found: Membership, folder: Path) -> None:
    """A Problem that names the hosts which lack a model that is a folder here."""
    file = folder / "config.json"
    said = membership.ask(
        environment(found), Path(found.token), "lacking", found.head, found.address, str(file)
    )
    if said["lacking"]:
        typed = shlex.quote(str(folder))
        raise Problem(
            f"{', '.join(said['lacking'])} has not this model",
            cause=f"there is no {file} there, and every host reads its own copy",
            fix=f"medley pull {typed}; or bring it there by hand: rsync -a {typed}/ HOST:{typed}/",
        )


def settings(
    found: Membership, site: Site, wanted: Wanted, environ: Mapping[str, str], watch: Watch
) -> Iterator[Variable]:
    """What the engine needs that places its ranks on the hosts of this site, and lets them talk."""
    fabric, wired = wiring.of_all(site.facts, site.addresses, site.order[0], wanted.wishes, environ)
    for line in (*fabric.why, *(f"{each.what}: {each.cause}; {each.fix}" for each in fabric.findings)):
        watch.note(line)
    yield from recipe.over_ray(wanted.engine, found.head, Path(found.token), wired)


def told(found: Membership) -> tuple[dict[str, Facts], dict[str, str]]:
    """The facts of the cluster's living hosts, as they told them when they joined, and their addresses."""
    said, addresses = _told(found)
    return {name: facts.facts(each) for name, each in said.items()}, addresses


def transcripts(found: Membership) -> dict[str, Transcript]:
    """What they told, as they told it."""
    return _told(found)[0]


def _told(found: Membership) -> tuple[dict[str, Transcript], dict[str, str]]:
    said = membership.ask(environment(found), Path(found.token), "read", found.head)
    names = {node["address"]: f"{node['name']} ({node['address']})" for node in said["nodes"]}
    texts = {names[address]: transcript.parse(text) for address, text in said["told"].items()}
    return texts, {names[address]: address for address in said["told"]}


def ranks(found: Membership) -> list[tuple[int, int, str]]:
    """Pipeline stage, tensor rank and address of each rank that runs."""
    said = membership.ask(environment(found), Path(found.token), "ranks", found.head)
    return ray.ranks(said["ranks"])


def require_order(seen: list[tuple[int, int, str]], expected: Mapping[str, int], tensor: int) -> None:
    """A Problem unless the ranks came where the plan has them, for its layers are cut by that."""
    places = [address for address, slots in expected.items() for _ in range(slots)]
    planned = [(rank // tensor, rank % tensor, address) for rank, address in enumerate(places)]
    if seen != planned:
        raise Problem(
            "the ranks are not where they were planned",
            cause=f"planned {_said(planned)}; they are {_said(seen)}",
            fix="try again; if it stays so: medley ray-stop on all hosts, and start the cluster anew",
        )


def _said(ranks: list[tuple[int, int, str]]) -> str:
    return (
        ", ".join(f"stage {stage} rank {tensor} on {address}" for stage, tensor, address in ranks) or "none"
    )


def _too_few(
    present: list[Mapping[str, Any]], all_: list[Mapping[str, Any]], wanted: int, wait_s: float
) -> Problem:
    here = ", ".join(f"{node['name']} ({node['address']}, {node['free']} free slots)" for node in present)
    busy = [node["name"] for node in all_ if node["alive"] and node["slots"] and not node["free"]]
    return Problem(
        f"{wanted} hosts are needed, and {len(present)} are here",
        cause=f"after {wait_s:.0f} s there are {here or 'none'}"
        + (f"; every slot of {', '.join(busy)} is taken by another model" if busy else ""),
        fix=f"medley up brings back those of cluster.toml; by hand, on each host that is missing: "
        f"medley ray-worker HEAD; or over these: --hosts {len(present)}"
        if present
        else "end the other model (medley status names it), or bring hosts back: medley up; without "
        "cluster.toml: medley ray-worker HEAD",
    )
