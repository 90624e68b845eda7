"""`medley top`: live screen, web page, metrics."""

import json
import os
import select
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from shutil import get_terminal_size
from socket import gethostname

from medley.cli import flag, switch, terminal
from medley.cli.cluster_options import ClusterVerb, print_problems
from medley.cli.output import print_message
from medley.cluster import cluster_file, remote
from medley.cluster.fleet import connect_host
from medley.errors import Problem
from medley.measurement import monitor
from medley.measurement.monitor import view
from medley.measurement.monitor import web as monitor_web
from medley.measurement.monitor.metrics import format_metrics
from medley.measurement.monitor.watch import Connect, FleetWatch, HostStatus, build_table

_ONCE_EVERY_S = 1
_ONCE_LIMIT_S = 30
_SCRAPE_LIMIT_S = 10
_EXCLUDED_BY_WEB = ["--once", "--json", "--metrics-once", "--dashboard", "--alert-rules"]


class TopVerb(ClusterVerb):
    USAGE = "    {progname} [OPTIONS] [ADDRESS:PORT]\n"
    every: int = switch("--every SECONDS", "time between updates, in seconds", (1, 3600), default=2)
    once: bool = flag("--once", "one screen only")
    as_json: bool = flag("--json", "one JSON object per update")
    web: bool = flag("--web", "serve a web page and Prometheus metrics", excludes=_EXCLUDED_BY_WEB)
    opened: bool = flag("--open", "allow an address that others reach, without a key", requires=["--web"])
    metrics_once: bool = flag(
        "--metrics-once", "print the Prometheus metrics once", excludes=["--once", "--json"]
    )
    dashboard: bool = flag("--dashboard", "print a Grafana dashboard", excludes=["--once", "--json"])
    alert_rules: bool = flag(
        "--alert-rules", "print alert rules for Prometheus", excludes=["--once", "--json"]
    )

    def main(self, *places: str) -> int:
        if places[(1 if self.web else 0) :]:
            raise Problem(
                f"unexpected argument {places[-1]!r}",
                cause="one place may stand after --web; hosts are left out by --without",
                fix="medley top --web 127.0.0.1:9180",
            )
        if self.dashboard or self.alert_rules:
            file_name = "dashboard.json" if self.dashboard else "alerts.yml"
            print((Path(monitor.__file__).parent / file_name).read_text(encoding="utf-8"), end="")
            return 0
        if self.web:
            return self._serve_page(next(iter(places), None))
        every_s = _ONCE_EVERY_S if self.once or self.metrics_once else self.every
        with FleetWatch(self._list_connectors(), every_s) as watch:
            if self.metrics_once or self.once:
                return self._print_once(watch)
            if not self.as_json and can_draw():
                draw_screen(lambda: _build_screen(watch.read_statuses(), every_s))
                return 0
            watch.wait_for_rates(_ONCE_LIMIT_S)
            while True:  # for pipes, logs and terminals that can do nothing: one look after the other
                statuses = watch.read_statuses()
                print(
                    json.dumps(build_table(statuses)) if self.as_json else f"{_format_plain(statuses)}\n",
                    flush=True,
                )
                time.sleep(every_s)

    def _serve_page(self, place: str | None) -> int:
        address, every_s = monitor_web.parse_address(place), self.every
        monitor_web.require_consent(address, opened=self.opened)
        with (
            FleetWatch(self._list_connectors(), every_s) as watch,
            monitor_web.serve_page(address, watch, every_s) as page,
        ):
            print(f"{page.url}  for browsers; {page.url}metrics for Prometheus; Ctrl-C ends it", flush=True)
            if self.opened:
                print_message(monitor_web.describe_exposure(page))
            while True:
                time.sleep(3600)

    def _list_connectors(self) -> Mapping[str, Connect]:
        """Return the connection of each host; without a cluster.toml this one's."""
        if not self.cluster and cluster_file.find_cluster_file() is None:
            return {gethostname(): lambda: remote.connect_local(gethostname())}
        known_cluster = self.read_chosen_cluster()
        return {name: partial(connect_host, known_cluster, name) for name in known_cluster.hosts}

    def _print_once(self, watch: FleetWatch) -> int:
        statuses = watch.wait_for_rates(_ONCE_LIMIT_S)
        if self.as_json:
            print(json.dumps(build_table(statuses)))
            return 0
        if self.metrics_once:
            statuses = watch.sample_now(_SCRAPE_LIMIT_S)
            print(format_metrics(statuses), end="")
        else:
            print(_format_plain(statuses))
        return print_problems(status.problem for status in statuses.values() if status.problem)


def _format_plain(statuses: Mapping[str, HostStatus]) -> str:
    return view.format_plain(view.build_tables(statuses), get_terminal_size((80, 24)).columns)


def _build_screen(statuses: Mapping[str, HostStatus], every_s: float) -> view.Screen:
    return view.Screen(
        view.format_title(statuses, every_s),
        f"{time.strftime('%H:%M:%S')}  q ends",
        view.build_tables(statuses),
    )


_KEY_LIMIT_S = 0.25
"""The longest delay, in seconds, until a key or another window size takes effect."""


def can_draw() -> bool:
    """Return whether stdout is a terminal that can move its cursor."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb").lower() not in {"dumb", "unknown"}


def draw_screen(build_screen: Callable[[], view.Screen]) -> None:
    """Draw the screen again whenever its contents or the window's size change."""
    from rich.live import Live

    console = terminal.create_console(sys.stdout)
    shown: object = None
    with _hide_typing() as read_keys, Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            if shown != (current := (console.size, drawing := build_screen())):
                live.update(drawing, refresh=True)
                shown = current
            if b"q" in read_keys(_KEY_LIMIT_S).lower():
                return


@contextmanager
def _hide_typing() -> Iterator[Callable[[float], bytes]]:
    """Hide typed keys; yield a function that reads them, with a limit in seconds. Ctrl-C still interrupts."""
    if not sys.stdin.isatty():
        yield partial(_read_keys, [])
        return
    keyboard = sys.stdin.fileno()
    old_settings = termios.tcgetattr(keyboard)
    settings = termios.tcgetattr(keyboard)
    settings[3] &= ~(termios.ICANON | termios.ECHO)
    settings[6][termios.VSUSP] = b"\0"  # a shell would be shown in the middle of our screen
    termios.tcsetattr(keyboard, termios.TCSADRAIN, settings)
    try:
        yield partial(_read_keys, [keyboard])
    finally:
        # TCSAFLUSH drops unread keys, which the shell would run.
        termios.tcsetattr(keyboard, termios.TCSAFLUSH, old_settings)


def _read_keys(keyboards: list[int], limit_s: float) -> bytes:
    for keyboard in select.select(keyboards, [], [], limit_s)[0]:
        return os.read(keyboard, 64) or b"q"  # an empty read: the terminal is closed
    return b""
