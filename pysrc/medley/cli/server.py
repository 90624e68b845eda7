"""`medley logs`, `stop`: verbs about a running server."""

import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from medley import cluster, json_shape, serving
from medley.cli import Verb, flag, group, switch
from medley.cli.cluster_options import AtHead, Clustered, print_problems, require_hosts, typed_at
from medley.cli.output import print_line
from medley.cli.progress import start_progress
from medley.cli.terminal import create_console as terminal
from medley.cluster.events import Event
from medley.cluster.fleet import Fleet
from medley.errors import Problem
from medley.unusable_file import is_left_out

_COLORS = ("cyan", "green", "yellow", "magenta", "blue", "red")


class LogsVerb(Clustered):
    USAGE = "    {progname} [OPTIONS] [HOST...]\n"
    follow: bool = flag("-f, --follow", "print new lines until Ctrl-C")
    lines: int = switch("-n, --lines N", "lines per host", (0, 100_000), default=40)
    events: bool = flag("--events", "print what happened to servers and units, with reasons")
    as_json: bool = flag("--json", "one JSON object per event", requires=["--events"])

    def main(self, *hosts: str) -> int:
        found = self.wanted(alone=True)
        if hosts and cluster.find_file(self.cluster) is None:
            raise Problem(
                f"{hosts[0]!r} is one word too many",
                cause="words are hosts of cluster.toml, and there is none: logs prints those of this host",
                fix="medley logs",
            )
        require_hosts(found, hosts, f"medley logs {next(iter(found.hosts))}")
        if hosts:
            found = found.drop_hosts(tuple(name for name in found.hosts if name not in hosts))
        width, paint = max(map(len, found.hosts)), _painted(list(found.hosts))
        kept: list[tuple[str, str]] = []

        def show(host: str, text: str) -> None:
            """With the host before it; what is not an event, of a host with another medley, is left out."""
            event = json_shape.table(text) if self.events else None
            if self.events and not (event and json_shape.fits(event, Event)):
                return
            if self.as_json:
                print_line(json.dumps({"host": host, **(event or {})}))
                return
            said = _event(event) if event else text
            print_line(f"{paint(host)}{' ' * (width - len(host))}  {said}")

        def keep(host: str, text: str) -> None:
            kept.append((host, text))

        with Fleet(found, on_note=show if self.follow else keep) as everyone:
            asked = {"lines": self.lines, "follow": self.follow}
            errand, limit_s = "events" if self.events else "log", float("inf") if self.follow else 60
            everyone.ask(errand, lambda _: asked, limit_s=limit_s)
            ends = "," if self.events else " "  # an event begins with its time, as a line of a log does
            for host, text in sorted(kept, key=lambda each: each[1].partition(ends)[0]):
                show(host, text)
            return print_problems(everyone.failed.values())


def _event(table: Mapping[str, Any]) -> str:
    when = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(table["at_s"]))
    return f"{when} {table['kind']:<8} {table['subject']}: {table['text']}"


def _painted(hosts: list[str]) -> Callable[[str], str]:
    """The host's name in its colour, where that is a terminal which wants some."""
    console = terminal(sys.stdout)
    if not console.is_terminal or console.no_color:
        return lambda host: host
    colors = {host: _COLORS[at % len(_COLORS)] for at, host in enumerate(hosts)}

    def paint(host: str) -> str:
        with console.capture() as said:
            console.print(host, style=colors[host], end="")
        return said.get()

    return paint


class StopVerb(Verb):
    at_head: AtHead = group(AtHead)
    port: int | None = switch("--port PORT", "port of the server to stop [default: all]", (1, 65_535))
    now: bool = flag("--now", "do not wait for running requests")

    def main(self, *models: str) -> int:
        if models:
            ports = [server.port for server in serving.list_servers() if server.model == models[0]]
            raise Problem(
                f"{models[0]!r} is one word too many",
                cause="stop ends every server of this host, or the one on a port",
                fix=f"medley stop --port {ports[0]}" if ports else "medley stop",
            )
        if head := self.at_head.elsewhere():
            return typed_at(head)
        count = serving.end_servers(self.port, start_progress(), is_immediate=self.now)
        print(f"ended {count} server{'s' if count != 1 else ''}" if count else "nothing is served here")
        return int(is_left_out())  # a record that cannot be read may be that of another server
