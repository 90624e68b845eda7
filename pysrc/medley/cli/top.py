"""`medley top`: what all hosts, their GPUs, links, RDMA ports and engines do now, on one screen."""

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plumbum import cli

from medley.cli.clustered import Clustered, tell
from medley.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from medley.monitor.screen import Line
    from medley.monitor.watching import Connect, Seen, Watching

_ONCE_EVERY_S = 1
_ONCE_LIMIT_S = 30
_SCRAPE_LIMIT_S = 10
_ALONE = ["--once", "--json", "--metrics-once", "--dashboard"]


class Top(Clustered):
    DESCRIPTION = "Show what the hosts of cluster.toml do now: processors, GPUs, links, RDMA, Ray, engines."
    DESCRIPTION_MORE = """
On a terminal it is one live screen; q ends it. Without a cluster.toml it shows this host alone. With --web it
serves a page with the same, and /metrics for Prometheus, at a port of 127.0.0.1 that is free, or where it is
told. Beyond this host, where whoever reaches it reads along, it goes with --open alone.

Examples:
    /medley top
    /medley top --every 5
    /medley top --once --json
    /medley top --web
    /medley top --web 127.0.0.1:9180
    /medley top --dashboard > grafana.json

"""
    USAGE = "    {progname} [SWITCHES] [ADDRESS:PORT]\n"
    every = cli.SwitchAttr("--every", cli.Range(1, 3600), 2, argname="S", help="seconds between looks")
    once = cli.Flag("--once", help="show one screen, of two looks a second apart, and end")
    as_json = cli.Flag("--json", help="print one JSON object a look; with --once one")
    web = cli.Flag("--web", excludes=_ALONE, help="serve it to browsers and to Prometheus at ADDRESS:PORT")
    opened = cli.Flag("--open", requires=["--web"], help="also where others reach it, without a key")
    metrics_once = cli.Flag(
        "--metrics-once", excludes=["--once", "--json"], help="print what Prometheus scrapes"
    )
    dashboard = cli.Flag("--dashboard", excludes=["--once", "--json"], help="print a dashboard for Grafana")

    def main(self, *places: str) -> int:
        if places[(1 if self.web else 0) :]:
            raise Problem(
                f"{places[-1]!r} says nothing here",
                cause="one place may stand after --web; hosts are left out by --without",
                fix="medley top --web 127.0.0.1:9180",
            )
        if self.dashboard:
            from medley import monitor

            print((Path(monitor.__file__).parent / "dashboard.json").read_text(encoding="utf-8"), end="")
            return 0
        if self.web:
            return self._served(next(iter(places), None))
        from medley.monitor.watching import Watching

        every_s = _ONCE_EVERY_S if self.once or self.metrics_once else int(self.every)
        with Watching(self._connects(), every_s) as watching:
            if self.metrics_once:
                return self._metrics(watching)
            return self._once(watching) if self.once else self._shown(watching, every_s)

    def _served(self, place: str | None) -> int:
        from medley.monitor import web
        from medley.monitor.watching import Watching

        where = web.place(place)
        web.require_meant(where, opened=self.opened)
        every_s = int(self.every)
        with Watching(self._connects(), every_s) as watching, web.served(where, watching, every_s) as found:
            print(f"{found.url}  for browsers; {found.url}metrics for Prometheus; Ctrl-C ends it", flush=True)
            if self.opened:
                print(f"medley: {web.opens(found)}", file=sys.stderr)
            while True:
                time.sleep(3600)

    def _connects(self) -> "Mapping[str, Connect]":
        """How each host is reached; without a cluster.toml this one."""
        from functools import partial
        from socket import gethostname

        from medley import cluster, remote
        from medley.everyone import connection

        asked: Any = self.cluster
        if not asked and cluster.file() is None:
            return {gethostname(): lambda: remote.here(gethostname())}
        found = self.wanted()
        return {name: partial(connection, found, name) for name in found.hosts}

    def _once(self, watching: "Watching") -> int:
        from medley.monitor.watching import table

        seen = watching.settled(_ONCE_LIMIT_S)
        if self.as_json:
            print(json.dumps(table(seen)))
            return 0
        print(plain(seen))
        return tell(each.problem for each in seen.values() if each.problem)

    def _metrics(self, watching: "Watching") -> int:
        from medley.monitor.prometheus import metrics

        watching.settled(_ONCE_LIMIT_S)
        seen = watching.fresh(_SCRAPE_LIMIT_S)
        print(metrics(seen), end="")
        return tell(each.problem for each in seen.values() if each.problem)

    def _shown(self, watching: "Watching", every_s: float) -> int:
        from medley.cli import live

        if not self.as_json and live.is_possible():
            live.show(lambda width, height: shown(watching.seen(), every_s, width, height))
        else:
            self._printed(watching, every_s)
        return 0

    def _printed(self, watching: "Watching", every_s: float) -> None:
        """For pipes, logs and terminals that can do nothing: one look after the other."""
        from medley.monitor.watching import table

        watching.settled(_ONCE_LIMIT_S)
        while True:
            seen = watching.seen()
            print(json.dumps(table(seen)) if self.as_json else f"{plain(seen)}\n", flush=True)
            time.sleep(every_s)


def plain(seen: "Mapping[str, Seen]") -> str:
    from shutil import get_terminal_size

    from medley.monitor import screen, view

    return screen.text(screen.lines(view.tables(seen), get_terminal_size((80, 24)).columns))


def shown(seen: "Mapping[str, Seen]", every_s: float, width: int, height: int) -> "Sequence[Line]":
    """A line above it all says what it is."""
    from medley.monitor import screen, view

    head = screen.ends(view.title(seen, every_s), f"{time.strftime('%H:%M:%S')}  q ends", width)
    return [head, (), *screen.lines(view.tables(seen), width, height - 2)][:height]
