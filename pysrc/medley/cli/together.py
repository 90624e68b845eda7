"""A model over hosts that join it by `medley join`, each with a process of the engine's own: its head."""

import os
from contextlib import suppress
from dataclasses import dataclass
from socket import gethostname
from typing import TYPE_CHECKING

from medley import (
    attending,
    carry,
    dialect,
    measured,
    meeting,
    part,
    port,
    sealed,
    survey,
    token,
    tools,
    wiring,
)
from medley.cli.progress import watch
from medley.cli.served import say
from medley.engines import ENGINES
from medley.fabric import Wishes, fabric
from medley.kind import Kind
from medley.launch import Launch, Tools, launch
from medley.meeting import Meeting
from medley.nodes import RANKS_PORT, nodes
from medley.problem import Problem
from medley.recognised import answers, kind_of, recognised
from medley.site import Site
from medley.variables import Variable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from medley.facts import Facts
    from medley.layout.shapes import Layout
    from medley.plan import Plan
    from medley.recipe import Order

_WAIT_S = 300
_PORTS = 79


@dataclass(frozen=True)
class Together:
    order: "Order"
    hosts: int
    wait_s: float | None
    join_port: int
    kind: str | None
    environment: str | None
    planned: "Callable[[Order, Site], tuple[Layout, Plan]]"
    make: "Callable[..., Launch]" = launch
    """What a host starts, out of its part of the plan."""
    script: str | None = None
    """The name of one that runs instead of a server, to its end."""

    def start(self, started: "Callable[[Launch, Meeting], int]") -> int:
        """Until it ends, with whoever has come by then; returns its exit code."""
        facts, kind = recognised(self.kind, answers())
        engine = ENGINES[self.order.wanted.engine]
        chosen = tools.ready(
            kind, self.environment, engine=self.order.wanted.engine, joins=True, watch=watch()
        )
        dialect.require_known(engine, chosen.binary, self.order.extra, watch=watch())
        secret = token.made()
        head = gethostname()
        terms = {
            **part.terms(part.environment(chosen)),
            "engine_name": self.order.wanted.engine,
            "model": self.order.weights.name,
            "target": self.order.weights.target,
            "beside": self.order.beside.table(),
            "script": self.script,
        }
        met = Meeting(self.join_port, sealed.read(secret), terms, watch())
        try:
            _invite(self, head, facts, str(secret))
            with watch().stage(f"wait for {self.hosts - 1} more"):
                members = met.wait(self.hosts - 1, _WAIT_S if self.wait_s is None else self.wait_s)
            found = {head: facts, **{each.name: each.facts for each in members}}
            launches = self._launches(found, kind, chosen)
            for each in members:
                own = launches.get(each.name)
                if own and own.plan.nodes:
                    each.rank = own.plan.nodes.rank
                    each.send({"order": {**attending.as_table(own.reasoned), "files": dict(own.files)}})
            return started(launches[head], met)
        finally:
            met.end()

    def _launches(self, found: "Mapping[str, Facts]", kind: Kind, chosen: Tools) -> "dict[str, Launch]":
        """What each host starts."""
        wanted = self.order.wanted
        addresses = {host: end.address for host, end in fabric(found, wanted.wishes).ends.items()}
        site = _site(found, kind, addresses)
        layout, plan = self.planned(self.order, site)
        head = next(iter(found))
        made = {}
        for host, own in nodes(plan, layout, addresses, _free_port(addresses[head])).items():
            environ = os.environ if host == head else {}
            _, wired = wiring.of_all(site.facts, addresses, host, wanted.wishes, environ)
            more = () if host == head else tuple(_carried(os.environ))
            made[host] = self.make(
                ENGINES[wanted.engine],
                self.order.weights,
                site.hosts[host][1].host,
                own,
                self.order.serving,
                tools=chosen if host == head else Tools(chosen.binary),
                environ=environ,
                cluster=(*more, *wired),
                extra=self.order.extra,
                beside=self.order.beside,
            )
        return made


def _carried(environ: "Mapping[str, str]") -> "Iterator[Variable]":
    """What the user set on the head for engine, NCCL and hub, as Ray would carry it; no token goes along."""
    away = set(carry.stays(environ))
    for name, value in sorted(environ.items()):
        if name not in away and not name.endswith("_TOKEN"):
            yield Variable(name, value, "set by you on the head")


def _site(found: "Mapping[str, Facts]", kind: Kind, addresses: "Mapping[str, str]") -> Site:
    """These hosts as a cluster: the head first, and all their devices free."""
    head, *others = found
    hosts = {head: (found[head], kind), **{name: (found[name], kind_of(found[name])) for name in others}}
    counts = dict.fromkeys(hosts, 0)
    for device in survey.devices(hosts, measured.NOTHING):
        counts[device.host] += 1
    return Site(hosts, tuple(hosts), counts, dict.fromkeys(hosts, 0), dict(addresses), measured.read())


def _invite(asked: Together, head: str, own: "Facts", secret: str) -> None:
    wired = wiring.of_head(head, own, Wishes(), os.environ)
    at = wired.end.address if asked.join_port == meeting.PORT else f"{wired.end.address}:{asked.join_port}"
    say(f"on each of the {asked.hosts - 1} other hosts:")
    say(f"    ssh {wired.end.address} cat {secret} | medley join {at} --token-file -")


def _free_port(address: str) -> int:
    for number in range(RANKS_PORT, RANKS_PORT + _PORTS):
        with suppress(Problem):
            port.require_free(address, number)
            return number
    return port.free()
