"""`medley logs`, `stop`: verbs about a running server."""

import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from medley import json_shape
from medley.cli import Verb, flag, group, switch
from medley.cli.cluster_options import ClusterVerb, HeadChoice, print_problems, require_hosts, run_at_head
from medley.cli.output import print_line
from medley.cli.progress import start_progress
from medley.cli.terminal import create_console
from medley.cluster import cluster_file
from medley.cluster.events import Event
from medley.cluster.fleet import Fleet
from medley.errors import Problem
from medley.serving import server_end, server_records
from medley.unusable_file import has_skipped_file

_COLORS = ("cyan", "green", "yellow", "magenta", "blue", "red")


class LogsVerb(ClusterVerb):
    USAGE = "    {progname} [OPTIONS] [HOST...]\n"
    follow: bool = flag("-f, --follow", "print new lines until Ctrl-C")
    lines: int = switch("-n, --lines N", "lines per host", (0, 100_000), default=40)
    events: bool = flag("--events", "print what happened to servers and units, with reasons")
    as_json: bool = flag("--json", "one JSON object per event", requires=["--events"])

    def main(self, *hosts: str) -> int:
        known_cluster = self.read_chosen_cluster(can_be_local=True)
        if hosts and cluster_file.find_cluster_file(self.cluster) is None:
            raise Problem(
                f"{hosts[0]!r} is one word too many",
                cause="words are hosts of cluster.toml, and there is none: logs prints those of this host",
                fix="medley logs",
            )
        require_hosts(known_cluster, hosts, f"medley logs {next(iter(known_cluster.hosts))}")
        if hosts:
            known_cluster = known_cluster.drop_hosts(
                tuple(name for name in known_cluster.hosts if name not in hosts)
            )
        width, paint = max(map(len, known_cluster.hosts)), _create_painter(list(known_cluster.hosts))
        stored_lines: list[tuple[str, str]] = []

        def print_host_line(host: str, text: str) -> None:
            """Print a line after its host; with --events leave out other lines, from another medley."""
            event = json_shape.parse_object(text) if self.events else None
            if self.events and not (event and json_shape.has_type(event, Event)):
                return
            if self.as_json:
                print_line(json.dumps({"host": host, **(event or {})}))
                return
            line = _format_event(event) if event else text
            print_line(f"{paint(host)}{' ' * (width - len(host))}  {line}")

        def store_line(host: str, text: str) -> None:
            stored_lines.append((host, text))

        with Fleet(known_cluster, on_note=print_host_line if self.follow else store_line) as fleet:
            fields = {"lines": self.lines, "follow": self.follow}
            request, limit_s = "events" if self.events else "log", float("inf") if self.follow else 60
            fleet.ask(request, lambda _: fields, limit_s=limit_s)
            # An event begins with its time, as a line of a log does.
            end_of_time = "," if self.events else " "
            for host, text in sorted(stored_lines, key=lambda line: line[1].partition(end_of_time)[0]):
                print_host_line(host, text)
            return print_problems(fleet.failed.values())


def _format_event(table: Mapping[str, Any]) -> str:
    time_text = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(table["at_s"]))
    return f"{time_text} {table['kind']:<8} {table['subject']}: {table['text']}"


def _create_painter(hosts: list[str]) -> Callable[[str], str]:
    """Return a function that colors a host's name, if the terminal shows colors."""
    console = create_console(sys.stdout)
    if not console.is_terminal or console.no_color:
        return lambda host: host
    colors = {host: _COLORS[index % len(_COLORS)] for index, host in enumerate(hosts)}

    def paint(host: str) -> str:
        with console.capture() as captured:
            console.print(host, style=colors[host], end="")
        return captured.get()

    return paint


class StopVerb(Verb):
    head_choice: HeadChoice = group(HeadChoice)
    port: int | None = switch("--port PORT", "port of the server to stop [default: all]", (1, 65_535))
    now: bool = flag("--now", "do not wait for running requests")

    def main(self, *models: str) -> int:
        if models:
            ports = [server.port for server in server_records.list_servers() if server.model == models[0]]
            raise Problem(
                f"{models[0]!r} is one word too many",
                cause="stop ends every server of this host, or the one on a port",
                fix=f"medley stop --port {ports[0]}" if ports else "medley stop",
            )
        if head := self.head_choice.find_remote_head():
            return run_at_head(head)
        count = server_end.end_servers(self.port, start_progress(), is_immediate=self.now)
        print(f"ended {count} server{'s' if count != 1 else ''}" if count else "nothing is served here")
        return int(has_skipped_file())  # a record that cannot be read may be that of another server
