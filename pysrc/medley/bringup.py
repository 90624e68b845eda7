"""A bring-up makes of the hosts in cluster.toml one Ray cluster, whatever of it is there already."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from medley import agreement, facts, joining, ray, source, transcript, wiring
from medley.everyone import END_LIMIT_S, Everyone, counted, withdraw
from medley.fabric import End, Wishes
from medley.problem import Problem
from medley.recognised import kind_of
from medley.variables import Variable
from medley.watch import Watch

_LOOK_LIMIT_S = 90
_BUILD_LIMIT_S = 3600
_REACH_LIMIT_S = 20
_BEGIN_LIMIT_S = 120

Table = Mapping[str, Any]


@dataclass
class Bringup:
    """The steps, in order; a host that fails one takes part in none after it."""

    everyone: Everyone
    watch: Watch
    looks: dict[str, Table] = field(default_factory=dict)
    ends: Mapping[str, End] = field(default_factory=dict)
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
        return f"{self.ends[self.head].address}:{ray.Ports().gcs}"

    def look(self) -> None:
        """Who is there, what they are, and whether they can work together at all."""
        ours = source.digest()
        for name in self.everyone.present:
            there = self.everyone.remotes[name]
            for problem in agreement.differences(name, there.greeting, ours, there.clock_ahead_s):
                self.everyone.fail(name, problem)
        self._need_head()
        with self.watch.stage(f"look at {counted(self.everyone.present)}"):
            self.looks = self.everyone.ask("look", lambda _: {}, limit_s=_LOOK_LIMIT_S)
        for name, found in self.looks.items():
            for problem in agreement.shortages(name, found):
                self.everyone.fail(name, problem)
            for line in agreement.advice(name, found):
                self.watch.note(line)
        self._need_head()

    def wire(self) -> None:
        """The wire that all share; a Problem where there is none."""
        found = {
            name: facts.facts(transcript.parse(self.looks[name]["transcript"]))
            for name in self.everyone.present
        }
        cluster = self.everyone.cluster
        kinds = {name: kind_of(each, cluster.hosts[name].kind) for name, each in found.items()}
        for name, problem in agreement.unfit(found, kinds, cluster, self.head):
            self.everyone.fail(name, problem)
            found.pop(name, None)
        self._need_head()
        wishes = cluster.wishes
        try:
            self.ends, self.variables, self.why = wiring.of_cluster(found, wishes)
        except Problem as problem:
            apart = next((name for name in found if name != self.head and _agree(found, name, wishes)), None)
            if apart is None:
                raise
            self.everyone.fail(apart, problem)
            self.wire()

    @property
    def standing(self) -> list[str]:
        """Those whose part in this cluster runs already, as it should be."""
        up = [name for name in self.everyone.present if self._stands(name)]
        return up if self.head in up else []

    @property
    def to_begin(self) -> list[str]:
        standing = self.standing
        return [name for name in self.everyone.present if name not in standing]

    def prepare(self) -> None:
        """The engine environment of each, and whether all run the same; what is missing is built."""
        with self.watch.stage("engine environments"):
            chosen = {self.head, *self.to_begin}
            self.prepared = self.everyone.ask("prepare", self.described, limit_s=_BUILD_LIMIT_S, among=chosen)
        self._need_head()
        heads = self.prepared[self.head]["terms"]
        for name, found in self.prepared.items():
            try:
                joining.require_alike(found["terms"], heads, self.at)
            except Problem as problem:
                self.everyone.fail(name, problem)

    def clear(self) -> None:
        """End what of medley's runs where it should not, or not so: it has the ports."""
        old = [name for name in self.to_begin if self.looks[name]["processes"] or self.looks[name]["units"]]
        if old:
            with self.watch.stage(f"end what runs otherwise on {', '.join(old)}"):
                self.everyone.ask("end", lambda _: {"part": True}, limit_s=END_LIMIT_S, among=old)
            self._need_head()

    def reach(self) -> None:
        """Whether all reach each other's ports, before a model hangs on one that they do not."""
        begin = self.to_begin
        with self.watch.stage("reach each other"):
            listening = self.everyone.ask(
                "listen",
                lambda name: {
                    "address": self.ends[name].address,
                    "starts": name in begin,
                    "head": name == self.head,
                },
                limit_s=_REACH_LIMIT_S,
            )
            self._need_head()
            places = {
                name: [[name, self.ends[name].address, port] for port in each["ports"]]
                for name, each in listening.items()
            }
            said = self.everyone.ask(
                "connect", lambda name: self._others(name, places), limit_s=_REACH_LIMIT_S
            )
        addresses = {name: end.address for name, end in self.ends.items()}
        for name, problem in agreement.unreached(said, self.head, addresses):
            self.everyone.fail(name, problem)
        self._need_head()

    def begin(self) -> None:
        """Start what does not run; each waits for its head by itself, so all start at once."""
        chosen = self.to_begin
        if not chosen:
            return
        token = self._token()
        self.begun = chosen
        with self.watch.stage(f"Ray on {', '.join(chosen)}"):
            self.everyone.ask(
                "begin", lambda name: self.beginning(name, token), limit_s=_BEGIN_LIMIT_S, among=chosen
            )
            answers = self.everyone.ask(
                "settle", lambda name: {"role": self.role(name)}, limit_s=_BEGIN_LIMIT_S, among=chosen
            )
        self._need_head()
        self.nodes = tuple(answers.get(self.head, {}).get("nodes", ()))
        withdraw(self.everyone, [name for name in self.begun if name in self.everyone.failed], self.watch)

    def gather(self) -> None:
        """With a head that stood before: it keeps what its new hosts told, and says who is there."""
        if self.nodes:
            return
        said = self.everyone.ask("gather", self._gathering, limit_s=_BEGIN_LIMIT_S, among=[self.head])
        self._need_head()
        self.nodes = tuple(said[self.head]["nodes"])

    def settle_accounts(self) -> None:
        """Who was to be in it and is not, though it said nothing."""
        alive = {node["address"] for node in self.nodes if node["alive"]}
        for name in self.everyone.present:
            if self.ends[name].address not in alive:
                self.everyone.fail(name, agreement.not_joined(name, self.ends[name].address, self.at))

    def foretold(self) -> Mapping[str, Table]:
        """The command that would be run on each host, and its reasons."""
        return self.everyone.ask(
            "begin", lambda name: self.beginning(name, None), limit_s=_BEGIN_LIMIT_S, among=self.to_begin
        )

    def described(self, name: str) -> Table:
        member = self.everyone.cluster.hosts[name]
        return {
            "transcript": self.looks[name]["transcript"],
            "kind": member.kind,
            "env": member.env,
            "image": self.everyone.cluster.image_of(name),
            "slots": member.slots,
            "engine": self.everyone.cluster.engine,
        }

    def beginning(self, name: str, token: str | None) -> Table:
        """What `begin` is asked; without a token nothing is begun."""
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

    def role(self, name: str) -> str:
        return "head" if name == self.head else "worker"

    def _token(self) -> str:
        """The cluster's own where it has one: new hosts join it by that."""
        if self.head in self.standing:
            kept = self.everyone.ask("token", lambda _: {}, limit_s=_LOOK_LIMIT_S, among=[self.head])
            self._need_head()
            return str(kept[self.head]["token"])
        return secrets.token_hex(32)

    def _gathered(self) -> Table:
        names = [name for name in self.everyone.present if name in self.ends]
        told = {self.ends[name].address: self.looks[name]["transcript"] for name in names}
        return {"told": told, "wanted": list(told)}

    def _gathering(self, name: str) -> Table:
        return {**self.described(name), "head": self.at, "gathered": self._gathered()}

    def _stands(self, name: str) -> bool:
        return agreement.stands(self.looks[name], self.role(name), self.at, self.ends[name].address)

    def _others(self, name: str, places: Mapping[str, list[Any]]) -> Table:
        others = [place for other, each in places.items() if other != name for place in each]
        return {"address": self.ends[name].address, "places": others}

    def _need_head(self) -> None:
        """Without it there is no cluster: its Problem is the verb's."""
        if problem := self.everyone.failed.get(self.head):
            raise problem


def _agree(found: Mapping[str, facts.Facts], without: str, wishes: Wishes) -> bool:
    """Whether the others share a wire."""
    try:
        wiring.of_cluster({name: each for name, each in found.items() if name != without}, wishes)
    except Problem:
        return False
    return True
