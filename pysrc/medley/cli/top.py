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

from medley import cluster
from medley.cli import flag, switch, terminal
from medley.cli.cluster_options import Clustered, print_problems
from medley.cli.output import say
from medley.cluster import remote
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
_ALONE = ["--once", "--json", "--metrics-once", "--dashboard", "--alert-rules"]


class TopVerb(Clustered):
    USAGE = "    {progname} [OPTIONS] [ADDRESS:PORT]\n"
    every: int = switch("--every SECONDS", "time between updates, in seconds", (1, 3600), default=2)
    once: bool = flag("--once", "one screen only")
    as_json: bool = flag("--json", "one JSON object per update")
    web: bool = flag("--web", "serve a web page and Prometheus metrics", excludes=_ALONE)
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
            shipped = "dashboard.json" if self.dashboard else "alerts.yml"
            print((Path(monitor.__file__).parent / shipped).read_text(encoding="utf-8"), end="")
            return 0
        if self.web:
            return self._served(next(iter(places), None))
        every_s = _ONCE_EVERY_S if self.once or self.metrics_once else self.every
        with FleetWatch(self._connects(), every_s) as watching:
            if self.metrics_once or self.once:
                return self._once(watching)
            if not self.as_json and is_possible():
                show(lambda: _screen(watching.read_statuses(), every_s))
                return 0
            watching.wait_for_rates(_ONCE_LIMIT_S)
            while True:  # for pipes, logs and terminals that can do nothing: one look after the other
                seen = watching.read_statuses()
                print(json.dumps(build_table(seen)) if self.as_json else f"{_plain(seen)}\n", flush=True)
                time.sleep(every_s)

    def _served(self, place: str | None) -> int:
        where, every_s = monitor_web.parse_address(place), self.every
        monitor_web.require_consent(where, opened=self.opened)
        with (
            FleetWatch(self._connects(), every_s) as watching,
            monitor_web.serve_page(where, watching, every_s) as found,
        ):
            print(f"{found.url}  for browsers; {found.url}metrics for Prometheus; Ctrl-C ends it", flush=True)
            if self.opened:
                say(monitor_web.describe_exposure(found))
            while True:
                time.sleep(3600)

    def _connects(self) -> Mapping[str, Connect]:
        """How each host is reached; without a cluster.toml this one."""
        if not self.cluster and cluster.find_file() is None:
            return {gethostname(): lambda: remote.connect_local(gethostname())}
        found = self.wanted()
        return {name: partial(connect_host, found, name) for name in found.hosts}

    def _once(self, watching: FleetWatch) -> int:
        seen = watching.wait_for_rates(_ONCE_LIMIT_S)
        if self.as_json:
            print(json.dumps(build_table(seen)))
            return 0
        if self.metrics_once:
            seen = watching.sample_now(_SCRAPE_LIMIT_S)
            print(format_metrics(seen), end="")
        else:
            print(_plain(seen))
        return print_problems(each.problem for each in seen.values() if each.problem)


def _plain(seen: Mapping[str, HostStatus]) -> str:
    return view.format_plain(view.build_tables(seen), get_terminal_size((80, 24)).columns)


def _screen(seen: Mapping[str, HostStatus], every_s: float) -> view.Screen:
    return view.Screen(
        view.format_title(seen, every_s), f"{time.strftime('%H:%M:%S')}  q ends", view.build_tables(seen)
    )


_LOOK_EVERY_S = 0.25
"""How soon a key or another size of the window is seen."""


def is_possible() -> bool:
    """Whether stdout is a terminal that knows how to move its cursor."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb").lower() not in {"dumb", "unknown"}


def show(screen: Callable[[], view.Screen]) -> None:
    """Draw what the function returns whenever it or the window's size differs."""
    from rich.live import Live

    console = terminal.create_console(sys.stdout)
    shown: object = None
    with _unseen_typing() as typed, Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            if shown != (now := (console.size, found := screen())):
                live.update(found, refresh=True)
                shown = now
            if b"q" in typed(_LOOK_EVERY_S).lower():
                return


@contextmanager
def _unseen_typing() -> Iterator[Callable[[float], bytes]]:
    """Keys come at once and are not shown; the function waits so long for some. Ctrl-C interrupts as ever."""
    if not sys.stdin.isatty():
        yield partial(_typed, [])
        return
    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    changed = termios.tcgetattr(keyboard)
    changed[3] &= ~(termios.ICANON | termios.ECHO)
    changed[6][termios.VSUSP] = b"\0"  # a shell would be shown in the middle of our screen
    termios.tcsetattr(keyboard, termios.TCSADRAIN, changed)
    try:
        yield partial(_typed, [keyboard])
    finally:
        # What was typed to us is not for the shell.
        termios.tcsetattr(keyboard, termios.TCSAFLUSH, before)


def _typed(keyboards: list[int], limit_s: float) -> bytes:
    for keyboard in select.select(keyboards, [], [], limit_s)[0]:
        return os.read(keyboard, 64) or b"q"  # the terminal is gone
    return b""
