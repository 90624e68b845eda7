"""Bring a cluster up: the steps of `medley up`."""

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from medley import transcript
from medley.cluster import checks, self_command
from medley.cluster.fleet import END_LIMIT_S, Asked, Fleet, Table, counted, withdraw
from medley.command import Variable
from medley.environment import engine_source
from medley.errors import Problem
from medley.host import facts
from medley.network import ports
from medley.network.fabric import per_host
from medley.network.fabric.types import Endpoint, NetworkOptions
from medley.progress import Progress

_LOOK_LIMIT_S = 90
_BUILD_LIMIT_S = 3600
_REACH_LIMIT_S = 20
_BEGIN_LIMIT_S = 120


@dataclass
class Bringup:
    """The steps of `medley up`, in order; a host that fails one takes part in none after it."""

    everyone: Fleet
    watch: Progress
    looks: dict[str, Table] = field(default_factory=dict)
    ends: Mapping[str, Endpoint] = field(default_factory=dict)
    variables: Mapping[str, tuple[Variable, ...]] = field(default_factory=dict)
    why: tuple[str, ...] = ()
    prepared: dict[str, Table] = field(default_factory=dict)
    begun: list[str] = field(default_factory=list)
    nodes: tuple[Table, ...] = ()

    @property
    def head(self) -> str:
        return self.everyone.cluster.head

    @property
    def at(self) -> str:
        return f"{self.ends[self.head].address}:{ports.RayPorts.gcs}"

    def look(self) -> None:
        ours = self_command.source_digest()
        for name in self.everyone.present:
            there = self.everyone.remotes[name]
            problem = checks.clock_off(name, there.clock_ahead_s)
            if problem := problem or checks.other_medley(name, there.greeting["medley"], ours):
                self.everyone.failed[name] = problem
        self._need_head()
        with self.watch.stage(f"check {counted(self.everyone.present)}"):
            self.looks = self.everyone.ask("look", limit_s=_LOOK_LIMIT_S)
        for name, found in self.looks.items():
            if problem := checks.full_disk(name, found):
                self.everyone.failed[name] = problem
            if advice := checks.advice(name, found):
                self.watch.note(advice)
        self._need_head()

    def wire(self) -> None:
        """Choose the network that all hosts share; raise a Problem where there is none."""
        cluster, looks = self.everyone.cluster, self.looks
        found = {
            name: facts.read_facts(transcript.parse(looks[name]["transcript"]))
            for name in self.everyone.present
        }
        members = {
            name: (checks.kind_of_member(name, each, cluster.hosts[name]), cluster.member(name))
            for name, each in found.items()
        }
        for name, problem in checks.unfit(found, members, cluster.engine, self.head):
            self.everyone.failed[name] = problem
            found.pop(name, None)
        self._need_head()
        origins = checks.sources_of_members({name: members[name] for name in found}, cluster.engine)
        wishes = replace(
            cluster.wishes, nccl=engine_source.find_oldest_nccl(cluster.engine, origins.values())
        )
        try:
            self.ends, self.variables, self.why = per_host.choose_new_cluster_network(found, wishes)
        except Problem as problem:
            apart = next(
                (name for name in found if name != self.head and _share_network(found, name, wishes)), None
            )
            if apart is None:
                raise
            self.everyone.failed[apart] = problem
            self.wire()

    @property
    def standing(self) -> list[str]:
        """The hosts that run their part of this cluster already, as cluster.toml has it."""
        up = [
            name
            for name in self.everyone.present
            if checks.stands(
                self.looks[name], self.role(name), self.at, self.ends[name].address, self.described(name)
            )
        ]
        return up if self.head in up else []

    @property
    def to_begin(self) -> list[str]:
        standing = self.standing
        return [name for name in self.everyone.present if name not in standing]

    def prepare(self) -> None:
        """Find or build the engine environment of each host, and require that all run the same."""
        with self.watch.stage("engine environments"):
            chosen = {self.head, *self.to_begin}
            self.prepared = self._ask("prepare", self.described, _BUILD_LIMIT_S, chosen)
        heads = self.prepared[self.head]["terms"]
        for name, found in self.prepared.items():
            with self.everyone.failing(name):
                checks.require_alike(found["terms"], heads, self.at)

    def clear(self) -> None:
        """End medley's processes that do not match cluster.toml, because they hold the ports."""
        old = [name for name in self.to_begin if self.looks[name]["processes"] or self.looks[name]["units"]]
        if old:
            with self.watch.stage(f"end what does not match cluster.toml on {', '.join(old)}"):
                self._ask("end", lambda _: {"part": True}, END_LIMIT_S, old)

    def reach(self) -> None:
        """Check that all hosts reach each other's ports, because a model would hang otherwise."""
        begin, addresses = self.to_begin, {name: end.address for name, end in self.ends.items()}
        with self.watch.stage("check ports between the hosts"):
            said = self.everyone.reach(
                addresses, lambda name: {"starts": name in begin, "head": name == self.head}, _REACH_LIMIT_S
            )
        self._need_head()
        self.everyone.failed.update(checks.unreached(said, self.head, addresses))
        self._need_head()

    def begin(self) -> None:
        """Start Ray where it does not run; each worker waits for the head, so all start together."""
        chosen = self.to_begin
        if not chosen:
            return
        token = self._token()
        self.begun = chosen
        with self.watch.stage(f"Ray on {', '.join(chosen)}"):
            self._ask_begin(token, chosen)
            answers = self._ask("settle", lambda name: {"role": self.role(name)}, _BEGIN_LIMIT_S, chosen)
        self.nodes = tuple(answers.get(self.head, {}).get("nodes", ()))
        withdraw(self.everyone, [name for name in self.begun if name in self.everyone.failed], self.watch)

    def gather(self) -> None:
        """Give a head that ran before the facts of its new hosts, and ask for its nodes."""
        if self.nodes:
            return
        asked = {**self.described(self.head), "head": self.at, "gathered": self._gathered()}
        said = self._ask("gather", lambda _: asked, _BEGIN_LIMIT_S, [self.head])
        self.nodes = tuple(said[self.head]["nodes"])

    def settle_accounts(self) -> None:
        """Fail the hosts that did not join the cluster and reported no problem."""
        alive = {node["address"] for node in self.nodes if node["alive"]}
        for name in self.everyone.present:
            if (address := self.ends[name].address) not in alive:
                problem = Problem(
                    f"{name} did not join the cluster",
                    cause=f"Ray runs on {name}, and the head at {self.at} does not list {address}",
                    fix=f"medley logs {name}; then: medley up",
                )
                self.everyone.failed[name] = problem

    def foretold(self) -> Mapping[str, Table]:
        return self._ask_begin(None, self.to_begin)

    def described(self, name: str) -> Table:
        member = self.everyone.cluster.hosts[name]
        return {
            "transcript": self.looks[name]["transcript"],
            "kind": member.kind,
            "env": member.env,
            "nccl": None if self.everyone.cluster.image_of(name) else member.nccl,
            "environment": self.everyone.cluster.environment_of(name),
            "image": self.everyone.cluster.image_of(name),
            "slots": member.slots,
            "engine": self.everyone.cluster.engine,
        }

    def _ask_begin(self, token: str | None, among: list[str]) -> dict[str, Table]:
        """Start Ray on these hosts; without a token, return only its commands."""

        def asked(name: str) -> Table:
            end = self.ends[name]
            more = {"gathered": self._gathered()} if name == self.head else {}
            return {
                **self.described(name),
                "role": self.role(name),
                "address": end.address,
                "interface": end.interface,
                "head": self.at,
                "variables": [[each.name, each.value, each.why] for each in self.variables[name]],
                "token": token,
                "dry": token is None,
                **more,
            }

        return self.everyone.ask("begin", asked, limit_s=_BEGIN_LIMIT_S, among=among)

    def role(self, name: str) -> str:
        return "head" if name == self.head else "worker"

    def _token(self) -> str:
        if self.head in self.standing:
            return str(self._ask("token", lambda _: {}, _LOOK_LIMIT_S, [self.head])[self.head]["token"])
        return secrets.token_hex(32)

    def _gathered(self) -> Table:
        ends, present = self.ends, self.everyone.present
        told = {ends[name].address: self.looks[name]["transcript"] for name in present if name in ends}
        return {"told": told, "wanted": list(told)}

    def _ask(
        self, errand: str, asked: Asked, limit_s: float, among: Iterable[str] | None = None
    ) -> dict[str, Table]:
        answers = self.everyone.ask(errand, asked, limit_s=limit_s, among=among)
        self._need_head()
        return answers

    def _need_head(self) -> None:
        if problem := self.everyone.failed.get(self.head):
            raise problem


def _share_network(found: Mapping[str, facts.Facts], without: str, wishes: NetworkOptions) -> bool:
    try:
        per_host.choose_new_cluster_network(
            {name: each for name, each in found.items() if name != without}, wishes
        )
    except Problem:
        return False
    return True
