"""Bring a cluster up: the steps of `medley up`."""

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import cast

from medley import transcript
from medley.cluster import checks, self_command
from medley.cluster.checks import HostState
from medley.cluster.fleet import (
    END_LIMIT_S,
    BuildFields,
    Fleet,
    Table,
    end_started_processes,
    format_host_count,
)
from medley.command import Variable
from medley.environment import engine_source
from medley.errors import Problem
from medley.host import facts
from medley.network import ports
from medley.network.fabric import per_host
from medley.network.fabric.choice import Endpoint, NetworkOptions
from medley.progress import Progress

_FACTS_LIMIT_S = 90
_ENVIRONMENT_LIMIT_S = 3600
_REACH_LIMIT_S = 20
_RAY_START_LIMIT_S = 120


@dataclass
class Bringup:
    """The steps of `medley up`, in the order in which cli/cluster.py calls them.

    A host that fails in a step is left out of the later ones.
    """

    fleet: Fleet
    progress: Progress
    host_states: dict[str, HostState] = field(default_factory=dict)
    endpoints: Mapping[str, Endpoint] = field(default_factory=dict)
    """The address and interface of each host in the network that all share."""
    network_variables: Mapping[str, tuple[Variable, ...]] = field(default_factory=dict)
    network_reasons: tuple[str, ...] = ()
    """Why this network was chosen."""
    prepare_answers: dict[str, Table] = field(default_factory=dict)
    """The answer to `prepare` of each host, whose `terms` must agree."""
    started_hosts: list[str] = field(default_factory=list)
    """The hosts on which this run starts Ray, also those where that failed."""
    nodes: tuple[Table, ...] = ()
    """The nodes of Ray, as `payload/ray_state.py` lists them; empty before the head listed them."""

    @property
    def head(self) -> str:
        return self.fleet.cluster.head

    @property
    def head_address(self) -> str:
        return f"{self.endpoints[self.head].address}:{ports.RayPorts.gcs}"

    def check_hosts(self) -> None:
        own_digest = self_command.compute_source_digest()
        for name in self.fleet.answering_hosts:
            remote = self.fleet.remotes[name]
            clock_problem = checks.clock_problem(name, remote.clock_ahead_s)
            version_problem = checks.other_version_problem(name, remote.greeting["medley"], own_digest)
            if problem := clock_problem or version_problem:
                self.fleet.failed[name] = problem
        self._require_head()
        with self.progress.stage(f"check {format_host_count(self.fleet.answering_hosts)}"):
            states = self.fleet.ask("look", limit_s=_FACTS_LIMIT_S)
        self.host_states = cast("dict[str, HostState]", states)
        for name, state in self.host_states.items():
            if problem := checks.disk_problem(name, state):
                self.fleet.failed[name] = problem
            if reboot_note := checks.find_reboot_note(name, state):
                self.progress.note(reboot_note)
        self._require_head()

    def choose_network(self) -> None:
        """Choose the network that all hosts share; raise a Problem if there is none."""
        cluster, host_states = self.fleet.cluster, self.host_states
        facts_by_host = {
            name: facts.read_facts(transcript.parse_transcript(host_states[name]["transcript"]))
            for name in self.fleet.answering_hosts
        }
        members = {
            name: (checks.find_member_kind(name, host_facts, cluster.hosts[name]), cluster.merge_host(name))
            for name, host_facts in facts_by_host.items()
        }
        for name, problem in checks.list_unfit_hosts(facts_by_host, members, cluster.engine, self.head):
            self.fleet.failed[name] = problem
            facts_by_host.pop(name, None)
        self._require_head()
        engine_sources = checks.find_engine_sources(
            {name: members[name] for name in facts_by_host}, cluster.engine
        )
        options = cluster.network_options.replace(
            nccl_version=engine_source.find_oldest_nccl(cluster.engine, engine_sources.values()),
        )
        try:
            self.endpoints, self.network_variables, self.network_reasons = (
                per_host.choose_new_cluster_network(facts_by_host, options)
            )
        except Problem as problem:
            workers = (name for name in facts_by_host if name != self.head)
            removable_hosts = (
                name for name in workers if _is_network_possible_without(name, facts_by_host, options)
            )
            incompatible = next(removable_hosts, None)
            if incompatible is None:
                raise
            self.fleet.failed[incompatible] = problem
            self.choose_network()

    @property
    def running_hosts(self) -> list[str]:
        """The hosts that already run their node of this cluster as cluster.toml describes it."""
        running = [name for name in self.fleet.answering_hosts if self._is_running(name)]
        return running if self.head in running else []

    def _is_running(self, name: str) -> bool:
        address, request = self.endpoints[name].address, self.build_host_request(name)
        return checks.is_node_running(
            self.host_states[name], self.get_role(name), self.head_address, address, request
        )

    @property
    def hosts_to_start(self) -> list[str]:
        running = self.running_hosts
        return [name for name in self.fleet.answering_hosts if name not in running]

    def prepare_environments(self) -> None:
        """Find or build the engine environment of each host, and require that all run the same."""
        with self.progress.stage("engine environments"):
            names = {self.head, *self.hosts_to_start}
            self.prepare_answers = self._ask_hosts(
                "prepare", self.build_host_request, _ENVIRONMENT_LIMIT_S, names
            )
        head_terms = self.prepare_answers[self.head]["terms"]
        for name, answer in self.prepare_answers.items():
            with self.fleet.record_failure(name):
                checks.require_same_versions(answer["terms"], head_terms, self.head_address)

    def end_mismatched_processes(self) -> None:
        """End medley's processes that do not match cluster.toml, because they hold the ports."""
        mismatched = [
            name
            for name in self.hosts_to_start
            if self.host_states[name]["processes"] or self.host_states[name]["units"]
        ]
        if mismatched:
            with self.progress.stage(f"end what does not match cluster.toml on {', '.join(mismatched)}"):
                self._ask_hosts("end", lambda _: {"part": True}, END_LIMIT_S, mismatched)

    def check_ports(self) -> None:
        """Check that all hosts reach each other's ports, because a model would hang otherwise."""
        starting_hosts = self.hosts_to_start
        addresses = {name: endpoint.address for name, endpoint in self.endpoints.items()}
        with self.progress.stage("check ports between the hosts"):
            answers = self.fleet.test_ports(
                addresses,
                lambda name: {"starts": name in starting_hosts, "head": name == self.head},
                _REACH_LIMIT_S,
            )
        self._require_head()
        self.fleet.failed.update(checks.list_unreached_hosts(answers, self.head, addresses))
        self._require_head()

    def start_ray(self) -> None:
        """Start Ray where it does not run; each worker waits for the head, so all start together."""
        names = self.hosts_to_start
        if not names:
            return
        token = self._fetch_token()
        self.started_hosts = names
        with self.progress.stage(f"Ray on {', '.join(names)}"):
            self._request_start(names, token=token)
            answers = self._ask_hosts(
                "settle", lambda name: {"role": self.get_role(name)}, _RAY_START_LIMIT_S, names
            )
        self.nodes = tuple(answers.get(self.head, {}).get("nodes", ()))
        end_started_processes(
            self.fleet, [name for name in self.started_hosts if name in self.fleet.failed], self.progress
        )

    def register_hosts(self) -> None:
        """Send the facts of new hosts to a head that ran before, and read its nodes."""
        if self.nodes:
            return
        request = {
            **self.build_host_request(self.head),
            "head": self.head_address,
            "gathered": self._build_gather_table(),
        }
        answers = self._ask_hosts("gather", lambda _: request, _RAY_START_LIMIT_S, [self.head])
        self.nodes = tuple(answers[self.head]["nodes"])

    def fail_absent_hosts(self) -> None:
        """Fail the hosts that did not join the cluster and reported no problem."""
        alive = {node["address"] for node in self.nodes if node["alive"]}
        for name in self.fleet.answering_hosts:
            if (address := self.endpoints[name].address) not in alive:
                problem = Problem(
                    f"{name} did not join the cluster",
                    cause=f"Ray runs on {name}, and the head at {self.head_address} does not list {address}",
                    fix=f"medley logs {name}; then: medley up",
                )
                self.fleet.failed[name] = problem

    def plan_commands(self) -> Mapping[str, Table]:
        return self._request_start(self.hosts_to_start, token=None)

    def build_host_request(self, name: str) -> Table:
        member = self.fleet.cluster.hosts[name]
        return {
            "transcript": self.host_states[name]["transcript"],
            "kind": member.kind,
            "env": member.env,
            "nccl": None if self.fleet.cluster.describe_image(name) else member.nccl,
            "environment": self.fleet.cluster.merge_environment(name),
            "image": self.fleet.cluster.describe_image(name),
            "slots": member.slots,
            "engine": self.fleet.cluster.engine,
        }

    def _request_start(self, names: list[str], *, token: str | None) -> dict[str, Table]:
        """Start Ray on these hosts; a dry run has no token, and returns only the commands."""

        def build_request(name: str) -> Table:
            endpoint = self.endpoints[name]
            gathered = {"gathered": self._build_gather_table()} if name == self.head else {}
            return {
                **self.build_host_request(name),
                "role": self.get_role(name),
                "address": endpoint.address,
                "interface": endpoint.interface,
                "head": self.head_address,
                "variables": [
                    [variable.name, variable.value, variable.why] for variable in self.network_variables[name]
                ],
                "token": token,
                "dry": token is None,
                **gathered,
            }

        return self.fleet.ask("begin", build_request, limit_s=_RAY_START_LIMIT_S, hosts=names)

    def get_role(self, name: str) -> str:
        return "head" if name == self.head else "worker"

    def _fetch_token(self) -> str:
        if self.head in self.running_hosts:
            return str(
                self._ask_hosts("token", lambda _: {}, _FACTS_LIMIT_S, [self.head])[self.head]["token"]
            )
        return secrets.token_hex(32)

    def _build_gather_table(self) -> Table:
        endpoints, host_names = self.endpoints, self.fleet.answering_hosts
        transcripts = {
            endpoints[name].address: self.host_states[name]["transcript"]
            for name in host_names
            if name in endpoints
        }
        return {"told": transcripts, "wanted": list(transcripts)}

    def _ask_hosts(
        self, request: str, build_fields: BuildFields, limit_s: float, names: Iterable[str] | None = None
    ) -> dict[str, Table]:
        answers = self.fleet.ask(request, build_fields, limit_s=limit_s, hosts=names)
        self._require_head()
        return answers

    def _require_head(self) -> None:
        if problem := self.fleet.failed.get(self.head):
            raise problem


def _is_network_possible_without(
    left_out_host: str, facts_by_host: Mapping[str, facts.Facts], options: NetworkOptions
) -> bool:
    """Return whether the other hosts share a network."""
    try:
        per_host.choose_new_cluster_network(
            {name: host_facts for name, host_facts in facts_by_host.items() if name != left_out_host}, options
        )
    except Problem:
        return False
    return True
