"""`medley up`, `down`, `status`."""

import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from medley.cli import flag, terminal
from medley.cli.cluster_options import ClusterVerb, build_problem_tables, print_problems
from medley.cli.output import format_table, print_message, print_result
from medley.cli.progress import start_progress
from medley.cluster import cluster_file, device_probe, membership, ray_serving, status
from medley.cluster.bringup import Bringup
from medley.cluster.fleet import Fleet, end_started_processes
from medley.network import http_client, tcp
from medley.serving import server_records


class UpVerb(ClusterVerb):
    dry_run: bool = flag("--dry-run", "print the command of each host; start nothing")
    as_json: bool = flag("--json", "one JSON object: hosts, addresses, slots, problems")

    def main(self) -> int:
        progress = start_progress()
        with Fleet(self.read_chosen_cluster(), progress) as fleet:
            bringup = Bringup(fleet, progress)
            try:
                self._start_cluster(bringup)
            except BaseException:
                end_started_processes(fleet, bringup.started_hosts, progress)
                raise
            if not self.dry_run:
                self._print_hosts(bringup)
            return print_problems(fleet.failed.values())

    def _start_cluster(self, bringup: Bringup) -> None:
        bringup.check_hosts()
        bringup.choose_network()
        for line in bringup.network_reasons:
            print_message(line)
        if self.dry_run:
            commands = bringup.plan_commands()
            print_result(commands, _list_command_lines(commands), as_json=self.as_json)
            return
        if bringup.hosts_to_start:
            bringup.prepare_environments()
            bringup.end_mismatched_processes()
            bringup.check_ports()
        bringup.start_ray()
        bringup.register_hosts()
        bringup.fail_absent_hosts()

    def _print_hosts(self, bringup: Bringup) -> None:
        failed = bringup.fleet.failed
        slots = {node["address"]: node["slots"] for node in bringup.nodes if node["alive"]}
        hosts = {
            name: {"address": end.address, "slots": slots[end.address]}
            for name, end in bringup.endpoints.items()
            if end.address in slots
        }
        rows = []
        for name in bringup.fleet.cluster.hosts:
            endpoint = bringup.endpoints.get(name)
            place = (
                (endpoint.address, endpoint.interface, str(slots.get(endpoint.address, "-")))
                if endpoint
                else ("-", "-", "-")
            )
            state = "up" if name in bringup.started_hosts else "was up"
            if name in failed:
                state = "failed"
            rows.append((name, bringup.get_role(name), *place, state))
        next_line = "\nnext: medley serve MODEL, medley status, medley down"
        result = {"head": bringup.head_address, "hosts": hosts, "problems": build_problem_tables(failed)}
        lines = format_table(("HOST", "ROLE", "ADDRESS", "INTERFACE", "SLOTS", "STATE"), rows)
        print_result(result, [*lines, *([] if failed else [next_line])], as_json=self.as_json)


def _list_command_lines(commands: Mapping[str, Any]) -> Iterator[str]:
    for name, command in commands.items():
        yield f"{name}: {command['command']}\n"
        yield from (f"    {what}\n        {why}" for what, why in command["why"])
    if not commands:
        yield "everything is already running"


class DownVerb(ClusterVerb):
    as_json: bool = flag("--json", "one JSON object: ended processes by host, problems")

    def main(self) -> int:
        progress, full_cluster = start_progress(), cluster_file.read_cluster(self.cluster)
        left_cluster = full_cluster.drop_hosts(tuple(self.without))
        with Fleet(left_cluster, progress) as fleet, progress.stage("end the cluster"):
            ended = fleet.ask("end", lambda _: {"part": False}, limit_s=180)
        lines = (
            f"{name}: {'stopped' if answer['ended'] else 'medley was not running'}"
            + (f", still running: {answer['left']}" if answer["left"] else "")
            for name, answer in ended.items()
        )
        print_result(
            {"ended": ended, "problems": build_problem_tables(fleet.failed)}, lines, as_json=self.as_json
        )
        return print_problems(fleet.failed.values())


class StatusVerb(ClusterVerb):
    watch: bool = flag("--watch", "refresh every 3 seconds, until Ctrl-C")
    as_json: bool = flag("--json", "one JSON object; with --watch one per line")

    def main(self) -> int:
        if not self.cluster and cluster_file.find_cluster_file() is None:
            self._print_local_status()
            return 0
        with Fleet(self.read_chosen_cluster()) as fleet:
            while True:
                text = "\n".join(self._list_lines(fleet))
                if self.watch and sys.stdout.isatty() and not self.as_json:
                    terminal.clear_screen()
                print(text, flush=True)
                if not self.watch:
                    return 0 if self.as_json else print_problems(fleet.failed.values())
                time.sleep(3)

    def _list_lines(self, fleet: Fleet) -> list[str]:
        head = fleet.cluster.head
        answers = fleet.ask("tell", lambda name: {"nodes": name == head}, limit_s=45)
        host_statuses = list(status.list_host_statuses(fleet.cluster, answers, fleet.failed))
        if self.as_json:
            return [
                json.dumps({"head": head, "hosts": answers, "problems": build_problem_tables(fleet.failed)})
            ]
        refusals = self._find_refusals(fleet, status.list_lost_workers(host_statuses, answers), answers)
        findings = list(status.list_findings(host_statuses, answers, refusals, head))
        return [*format_table(status.HEADINGS, host_statuses), *([""] if findings else []), *findings]

    def _find_refusals(
        self, fleet: Fleet, lost_hosts: Iterable[str], answers: Mapping[str, Any]
    ) -> dict[str, str]:
        """Return by host why hosts that the head lost do not reach it."""
        requests = {}
        for name in lost_hosts:
            if member := answers[name]["membership"]:
                address, port = member["head"].split(":")
                requests[name] = {"address": member["address"], "places": [["head", address, int(port)]]}
        replies = fleet.ask("connect", lambda name: requests[name], limit_s=10, hosts=list(requests))
        return {name: reply["closed"][0][-1] for name, reply in replies.items() if reply["closed"]}

    def _print_local_status(self) -> None:
        member, server = membership.find_membership(), server_records.find_newest_server()
        nodes = ray_serving.list_nodes(member) if member else []
        serves = server and {"url": server.url, "model": server.model}
        result = {
            "role": member and member.role,
            "head": member and member.head,
            "nodes": nodes,
            "serving": serves,
        }
        membership_text = f"the {member.role} of the cluster at {member.head}" if member else "in no cluster"
        state_text = f" ({server.state})" if server and server.state != "ready" else ""
        server_text = (
            f"serving {server.model} at {server.url}{state_text}" if server else "nothing is served here"
        )
        if server and (own := http_client.parse_url(server.url)).port in tcp.list_reachable_ports():
            name = tcp.find_outward_address() if tcp.is_loopback(own.host) else own.host
            server_text += f"\nopen to the network: {own.copy_with(host=name)}"
        node_lines = (
            format_table(("ADDRESS", "HOST", "ROLE", "SLOTS", "FREE", "STATE"), map(_build_node_row, nodes))
            if nodes
            else ()
        )
        lines = (
            f"this host is {membership_text}",
            *node_lines,
            server_text,
            *device_probe.list_slow_findings(),
        )
        print_result(result, lines, as_json=self.as_json)


def _build_node_row(node: Mapping[str, Any]) -> tuple[str, ...]:
    role, state = ("head" if node["head"] else "worker"), ("alive" if node["alive"] else "gone")
    return node["address"], node["name"], role, str(node["slots"]), str(node["free"]), state
