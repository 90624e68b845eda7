"""`medley up`, `down`, `status`."""

import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from medley import cluster, serving
from medley.cli import flag, terminal
from medley.cli.cluster_options import Clustered, print_problems, tables
from medley.cli.output import format_table, print_result, say
from medley.cli.progress import start_progress as progress
from medley.cluster import device_probe, membership, ray_serving, status
from medley.cluster.bringup import Bringup
from medley.cluster.fleet import Fleet, end_started_processes
from medley.network import http_client, tcp


class UpVerb(Clustered):
    dry_run: bool = flag("--dry-run", "print the command of each host; start nothing")
    as_json: bool = flag("--json", "one JSON object: hosts, addresses, slots, problems")

    def main(self) -> int:
        seen = progress()
        with Fleet(self.wanted(), seen) as fleet:
            bringup = Bringup(fleet, seen)
            try:
                self._steps(bringup)
            except BaseException:
                end_started_processes(fleet, bringup.started_hosts, seen)
                raise
            if not self.dry_run:
                self._show(bringup)
            return print_problems(fleet.failed.values())

    def _steps(self, bringup: Bringup) -> None:
        bringup.check_hosts()
        bringup.choose_network()
        for line in bringup.why:
            say(line)
        if self.dry_run:
            told = bringup.plan_commands()
            print_result(told, _commands(told), as_json=self.as_json)
            return
        if bringup.hosts_to_start:
            bringup.prepare_environments()
            bringup.end_mismatched()
            bringup.check_ports()
        bringup.start_ray()
        bringup.register_hosts()
        bringup.fail_absent_hosts()

    def _show(self, bringup: Bringup) -> None:
        failed = bringup.fleet.failed
        slots = {node["address"]: node["slots"] for node in bringup.nodes if node["alive"]}
        hosts = {
            name: {"address": end.address, "slots": slots[end.address]}
            for name, end in bringup.endpoints.items()
            if end.address in slots
        }
        rows = []
        for name in bringup.fleet.cluster.hosts:
            end = bringup.endpoints.get(name)
            place = (end.address, end.interface, str(slots.get(end.address, "-"))) if end else ("-", "-", "-")
            state = "failed" if name in failed else "up" if name in bringup.started_hosts else "was up"
            rows.append((name, bringup.get_role(name), *place, state))
        more = "\nnext: medley serve MODEL, medley status, medley down"
        found = {"head": bringup.head_address, "hosts": hosts, "problems": tables(failed)}
        lines = format_table(("HOST", "ROLE", "ADDRESS", "INTERFACE", "SLOTS", "STATE"), rows)
        print_result(found, [*lines, *([] if failed else [more])], as_json=self.as_json)


def _commands(told: Mapping[str, Any]) -> Iterator[str]:
    for name, each in told.items():
        yield f"{name}: {each['command']}\n"
        yield from (f"    {what}\n        {why}" for what, why in each["why"])
    if not told:
        yield "everything is already running"


class DownVerb(Clustered):
    as_json: bool = flag("--json", "one JSON object: ended processes by host, problems")

    def main(self) -> int:
        seen, found = progress(), cluster.read_cluster(self.cluster)
        with Fleet(found.drop_hosts(tuple(self.without)), seen) as fleet, seen.stage("end the cluster"):
            ended = fleet.ask("end", lambda _: {"part": False}, limit_s=180)
        lines = (
            f"{name}: {'stopped' if each['ended'] else 'medley was not running'}"
            + (f", still running: {each['left']}" if each["left"] else "")
            for name, each in ended.items()
        )
        print_result({"ended": ended, "problems": tables(fleet.failed)}, lines, as_json=self.as_json)
        return print_problems(fleet.failed.values())


class StatusVerb(Clustered):
    watch: bool = flag("--watch", "refresh every 3 seconds, until Ctrl-C")
    as_json: bool = flag("--json", "one JSON object; with --watch one per line")

    def main(self) -> int:
        if not self.cluster and cluster.find_file() is None:
            self._here()
            return 0
        with Fleet(self.wanted()) as fleet:
            while True:
                text = "\n".join(self._lines(fleet))
                if self.watch and sys.stdout.isatty() and not self.as_json:
                    terminal.clear_screen()
                print(text, flush=True)
                if not self.watch:
                    return 0 if self.as_json else print_problems(fleet.failed.values())
                time.sleep(3)

    def _lines(self, fleet: Fleet) -> list[str]:
        head = fleet.cluster.head
        told = fleet.ask("tell", lambda name: {"nodes": name == head}, limit_s=45)
        found = list(status.list_host_statuses(fleet.cluster, told, fleet.failed))
        if self.as_json:
            return [json.dumps({"head": head, "hosts": told, "problems": tables(fleet.failed)})]
        closed = self._closed(fleet, status.list_lost_workers(found, told), told)
        more = list(status.list_findings(found, told, closed, head))
        return [*format_table(status.HEADINGS, found), *([""] if more else []), *more]

    def _closed(self, fleet: Fleet, lost: Iterable[str], told: Mapping[str, Any]) -> dict[str, str]:
        """Of hosts that the head lost, why they do not reach it."""
        asked = {}
        for name in lost:
            if part := told[name]["membership"]:
                address, port = part["head"].split(":")
                asked[name] = {"address": part["address"], "places": [["head", address, int(port)]]}
        said = fleet.ask("connect", lambda name: asked[name], limit_s=10, hosts=list(asked))
        return {name: each["closed"][0][-1] for name, each in said.items() if each["closed"]}

    def _here(self) -> None:
        found, server = membership.find_membership(), serving.find_newest_server()
        nodes = ray_serving.list_nodes(found) if found else []
        serves = server and {"url": server.url, "model": server.model}
        known = {
            "role": found and found.role,
            "head": found and found.head,
            "nodes": nodes,
            "serving": serves,
        }
        part = f"the {found.role} of the cluster at {found.head}" if found else "in no cluster"
        how = f" ({server.state})" if server and server.state != "ready" else ""
        served = f"serving {server.model} at {server.url}{how}" if server else "nothing is served here"
        if server and (own := http_client.parse_url(server.url)).port in tcp.list_reachable_ports():
            name = tcp.find_outward_address() if tcp.is_loopback(own.host) else own.host
            served += f"\nopen to the network: {own.copy_with(host=name)}"
        drawn = (
            format_table(("ADDRESS", "HOST", "ROLE", "SLOTS", "FREE", "STATE"), map(_row, nodes))
            if nodes
            else ()
        )
        lines = (f"this host is {part}", *drawn, served, *device_probe.list_slow_findings())
        print_result(known, lines, as_json=self.as_json)


def _row(node: Mapping[str, Any]) -> tuple[str, ...]:
    role, state = ("head" if node["head"] else "worker"), ("alive" if node["alive"] else "gone")
    return node["address"], node["name"], role, str(node["slots"]), str(node["free"]), state
