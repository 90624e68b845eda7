"""`medley ray-head`, `ray-worker`, `ray-stop`, `join`: this host's part of a cluster."""

import os
import shlex
import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from socket import gethostname
from typing import Any

from medley import credentials, transcript
from medley.cli import Verb, flag, group, switch
from medley.cli.launch_options import ContainerOptions
from medley.cli.output import build_dry_run_problem, create_output, print_command, print_message, print_result
from medley.cli.progress import start_progress
from medley.cluster import checks, device_probe, membership, node, ray_watch
from medley.cluster.node import NodeSpec
from medley.command import Command
from medley.environment import container_image, engine_source, tools
from medley.environment.tools import NO_TOOLS
from medley.errors import Problem
from medley.host import facts
from medley.host.facts import Facts
from medley.host.kind import Kind, SiteHost, detect_host, load_answers
from medley.network import secure_channel
from medley.network.fabric import per_host
from medley.network.fabric.choice import NetworkOptions
from medley.network.fabric.per_host import HostNetwork
from medley.network.ports import RENDEZVOUS_PORT, RayPorts
from medley.schema import (
    DEFAULT_ENGINE,
    EngineName,
)
from medley.serving.native import receive_terms, run_worker
from medley.transcript import Transcript, format_transcript

_RESTART_LIMIT_S = 24 * 3600
"""The longest wait, in seconds, for a head that restarts its model."""


@dataclass(frozen=True)
class TokenOptions:
    file: str | None = switch("--token-file FILE", "the head's token; - is standard input")

    def store(self) -> Path:
        """Store the token; return its file, which replaces an earlier one once the head accepts it."""
        if self.file is None:
            return credentials.require_token()
        if self.file == "-":
            return credentials.store_token(sys.stdin.read(), "standard input")
        return credentials.store_token(credentials.read_api_key(Path(self.file)), self.file)


@dataclass(frozen=True)
class NodeOptions:
    container: ContainerOptions = group(ContainerOptions)
    link: str | None = switch("--link LINK", "interface, address or network to use")
    exclude: tuple[str, ...] = switch("--exclude INTERFACE", "interface to ignore")
    kind: str | None = switch("--kind KIND", "kind of this host, such as spark [default: detected]")
    environment: str | None = switch("--env ENV", "engine environment, or virtualenv with Ray and vLLM")
    engine: EngineName = switch("--engine ENGINE", "vllm or sglang", default=DEFAULT_ENGINE)
    slots: int | None = switch("--slots N", "ranks of this host [default: one per GPU]", (1, 64))
    stay: bool = flag("--stay", "wait until Ray ends; Ctrl-C ends it")
    dry_run: bool = flag("--dry-run", "print the command with its reasons; start nothing")

    def build_network_options(self, nccl: tuple[int, ...]) -> NetworkOptions:
        return NetworkOptions(self.link, frozenset(self.exclude), nccl_version=nccl)

    def prepare_node(self, host: SiteHost, *, dry_run: bool = False, is_other_host: bool = False) -> NodeSpec:
        """Return this host as a node of a cluster, its environment or image ready for use."""
        image_request, engine = self.container.build_image_request(), self.engine
        image = container_image.prepare_requested_image(
            image_request,
            host,
            engine,
            dry_run=dry_run,
            is_other_host=is_other_host,
            progress=start_progress(),
        )
        host_facts, kind = host
        host_tools = NO_TOOLS
        if image is None:
            environment, nccl = self.environment, self.container.nccl
            host_tools = tools.prepare_tools(
                kind,
                environment,
                engine=engine,
                is_multi_host=True,
                nccl=nccl,
                dry_run=dry_run,
                progress=start_progress(),
            )
        path = os.environ.get("PATH", "")
        return node.build_node_spec(
            host_facts,
            kind,
            host_tools,
            slots=self.slots,
            path=path,
            engine=engine,
            container_environment=image,
        )

    def stay_if_requested(self, started: Command) -> None:
        """With --stay wait until the running Ray ends."""
        if self.stay:
            idle = device_probe.build_idle_check(
                lambda: [process.pid for process in membership.find_processes()]
            )
            with device_probe.probe_daily(started, idle, print_message):
                ray_watch.wait_until_ray_ends()


class RayHeadVerb(Verb):
    node_options: NodeOptions = group(NodeOptions)
    dashboard: bool = flag("--dashboard", "start Ray's dashboard, on 127.0.0.1")
    replayed: str | None = switch("--from FILE", "transcript of a host; only with --dry-run")
    as_json: bool = flag("--json", "one JSON object: address, token file, slots; or the command")

    def main(self) -> None:
        options = self.node_options
        if not options.dry_run:
            membership.require_no_membership()
        if self.replayed and not options.dry_run:
            raise build_dry_run_problem("ray-head", "--from FILE")
        host_transcript = load_answers(self.replayed)
        host = detect_host(options.kind, host_transcript)
        network_options = options.build_network_options(engine_source.find_oldest_nccl(options.engine))
        host_network = per_host.choose_head_network(gethostname(), host.facts, network_options, os.environ)
        for line in host_network.describe():
            print_message(line)
        own_node = options.prepare_node(
            host, dry_run=options.dry_run, is_other_host=self.replayed is not None
        )
        secret = credentials.find_token_file() if options.dry_run else credentials.ensure_token()
        start = own_node.wrap_start(
            own_node.build_head_command(host_network, secret, dashboard=self.dashboard)
        )
        if options.dry_run:
            print_command(start.command, start.list_reasons(), as_json=self.as_json)
            return
        device_probe.probe_at_start(start.command, print_message)
        endpoint = host_network.endpoint
        head_address = f"{endpoint.address}:{RayPorts.gcs}"
        member = own_node.build_membership("head", head_address, endpoint, secret)
        with (
            start_progress().stage(f"Ray head at {head_address}"),
            membership.start_ray(start.command, member),
        ):
            terms = {**own_node.collect_terms(), "address": endpoint.address}
            member.send_facts(host_transcript, own_terms=terms)
        self._print_joining(endpoint.address, str(secret), own_node.slots)
        if self.dashboard and not self.as_json:
            print(f"Ray's dashboard: http://127.0.0.1:{RayPorts.dashboard} (RAY_AUTH token: {secret})")
        options.stay_if_requested(start.command)

    def _print_joining(self, address: str, secret: str, slots: int) -> None:
        engine_words = (
            f" --engine {self.node_options.engine}" if self.node_options.engine != DEFAULT_ENGINE else ""
        )
        file = shlex.quote(secret)
        text = (
            f"Ray head at {address}, {slots} slot{'s' if slots != 1 else ''} here. On each other host:\n\n"
            f"    ssh {address} cat {file} | medley ray-worker {address} --token-file -{engine_words}\n\n"
            "medley status shows who has joined; medley ray-stop ends it."
        )
        print_result({"head": address, "token": secret, "slots": slots}, [text], as_json=self.as_json)


class RayWorkerVerb(Verb):
    USAGE = "    {progname} [OPTIONS] HEAD\n"
    node_options: NodeOptions = group(NodeOptions)
    token_file: TokenOptions = group(TokenOptions)
    as_json: bool = flag("--json", "one JSON object: head, address, slots; or the command")

    def main(self, head: str) -> None:
        options = self.node_options
        if not options.dry_run:
            membership.require_no_membership()
        secret = self.token_file.store()
        host_transcript = load_answers()
        host_facts, kind = detect_host(options.kind, host_transcript)
        typed_address = f"{ray_watch.require_listening(head, RayPorts.gcs, host_facts.net)}:{RayPorts.gcs}"
        own_node = options.prepare_node(SiteHost(host_facts, kind))
        head_state = membership.read_cluster_state(own_node.environment, secret, typed_address)
        checks.require_same_versions(own_node.collect_terms(), head_state["note"], typed_address)
        host_network = self._choose_network(host_facts, head_state, own_node.nccl)
        for line in host_network.describe():
            print_message(line)
        secret = credentials.keep_token(secret)
        # By the network that both are on, whatever address of the head was typed.
        head_address = f"{head_state['note']['address']}:{RayPorts.gcs}"
        start = own_node.wrap_start(own_node.build_worker_command(host_network, secret, head_address))
        if options.dry_run:
            print_command(start.command, start.list_reasons(), as_json=self.as_json)
            return
        device_probe.probe_at_start(start.command, print_message)
        endpoint = host_network.endpoint
        member = own_node.build_membership("worker", head_address, endpoint, secret)
        with start_progress().stage(f"join {head_address}"), membership.start_ray(start.command, member):
            ray_watch.require_reach(member)
            member.send_facts(host_transcript)
        table = {"head": head_address, "address": endpoint.address, "slots": own_node.slots}
        place = f"{head_address} as {endpoint.address} ({endpoint.interface}) with {own_node.slots} slot(s)"
        print_result(table, [f"joined {place}; medley ray-stop leaves it"], as_json=self.as_json)
        options.stay_if_requested(start.command)

    def _choose_network(
        self, host_facts: Facts, head_state: Mapping[str, Any], nccl: tuple[int, ...]
    ) -> HostNetwork:
        """Return the network between this host and the head, whose facts are in the head's state."""
        note, here = head_state["note"], gethostname()
        name = here if here != note["host"] else f"{here} (here)"
        head_facts = facts.read_facts(transcript.parse_transcript(head_state["told"][note["address"]]))
        hosts = {note["host"]: head_facts, name: host_facts}
        return per_host.choose_worker_network(
            hosts,
            name,
            per_host.HeadAddress(note["host"], note["address"]),
            self.node_options.build_network_options(nccl),
            os.environ,
        )


class RayStopVerb(Verb):
    def main(self) -> None:
        with start_progress().stage("end Ray here"):
            count = membership.end_ray()
        print(f"ended {count} processes" if count else "no Ray of medley's runs here")


class JoinVerb(Verb):
    USAGE = "    {progname} [OPTIONS] HEAD[:PORT]\n"
    token_file: TokenOptions = group(TokenOptions)
    kind: str | None = switch("--kind KIND", "kind of this host, such as spark [default: detected]")
    environment: str | None = switch("--env ENV", "engine environment or virtualenv to use")
    nccl: str | None = switch("--nccl FILE", "libnccl.so.2 to use instead of the engine's own")
    wait: int = switch(
        "--wait SECONDS", "time limit for the head to listen, in seconds", (0, 86_400), default=60
    )
    dry_run: bool = flag("--dry-run", "print the part of this host, and leave")

    def main(self, head: str) -> None:
        name, colon, number = head.partition(":")
        if number.count(":"):
            raise Problem(
                f"{head} is an IPv6 address",
                cause="hosts join a model over IPv4",
                fix="medley join 192.168.1.10  # the head's IPv4 address: ip -4 -brief address; or its name",
            )
        if colon and not number.isdecimal():
            what = f"{head} is not a host or HOST:PORT"
            raise Problem(what, cause=f"{number!r} is not a port", fix=f"medley join {name}")
        port = int(number) if colon else RENDEZVOUS_PORT
        if not self.dry_run:
            membership.require_no_membership()  # its devices are that cluster's
        secret = self.token_file.store()
        host_transcript = load_answers()
        kind = detect_host(self.kind, host_transcript).kind
        wait_s: float = self.wait
        while self._run_part((name, port), secret, wait_s, kind, host_transcript):
            secret, wait_s = credentials.find_token_file(), _RESTART_LIMIT_S

    def _run_part(
        self,
        head_address: tuple[str, int],
        secret: Path,
        wait_s: float,
        kind: Kind,
        host_transcript: Transcript,
    ) -> bool:
        """Run this host's part once; return whether the head starts the model again."""
        name, port = head_address
        with start_progress().stage(f"meet {name}:{port}"):
            channel = secure_channel.connect_to_head(name, port, secret, wait_s)
        with closing(channel):
            credentials.keep_token(secret)
            terms = receive_terms(channel)
            if self.dry_run:
                action = f"runs {terms['script']} with" if terms["script"] else "serves"
                what = f"{terms['model']} with {terms['engine']}, which this host would run"
                print(f"{terms['host']} {action} {what}")
                return False
            channel.send({"host": gethostname(), "facts": format_transcript(host_transcript)})
            place = f"{name}:{port}"
            return run_worker(
                channel, terms, kind, self.environment, nccl=self.nccl, head=place, output=create_output()
            )
