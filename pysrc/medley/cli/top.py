"""`medley top`: what all hosts, their GPUs, links, RDMA ports and engines do now, on one screen."""

import json
import time
from typing import TYPE_CHECKING, Any

from plumbum import cli

from medley.cli.clustered import Clustered, tell

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from medley.monitor.screen import Line
    from medley.monitor.watching import Connect, Seen, Watching

_ONCE_EVERY_S = 1
_ONCE_LIMIT_S = 30


class Top(Clustered):
    DESCRIPTION = "Show what the hosts of cluster.toml do now: processors, GPUs, links, RDMA, Ray, engines."
    DESCRIPTION_MORE = """
On a terminal it is one live screen; q ends it. Without a cluster.toml it shows this host alone.

Examples:
    /medley top
    /medley top --every 5
    /medley top --once
    /medley top --json

"""
    every = cli.SwitchAttr("--every", cli.Range(1, 3600), 2, argname="S", help="seconds between looks")
    once = cli.Flag("--once", help="show one screen, of two looks a second apart, and end")
    as_json = cli.Flag("--json", help="print one JSON object a look; with --once one")

    def main(self) -> int:
        from medley.cli import live
        from medley.monitor.watching import Watching

        every_s = _ONCE_EVERY_S if self.once else int(self.every)
        with Watching(self._connects(), every_s) as watching:
            if self.once:
                return self._once(watching)
            if not self.as_json and live.is_possible():
                live.show(lambda width, height: shown(watching.seen(), every_s, width, height))
            else:
                self._printed(watching, every_s)
        return 0

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
        seen = watching.settled(_ONCE_LIMIT_S)
        if self.as_json:
            print(json.dumps(table(seen)))
            return 0
        print(plain(seen))
        return tell(each.problem for each in seen.values() if each.problem)

    def _printed(self, watching: "Watching", every_s: float) -> None:
        """For pipes, logs and terminals that can do nothing: one look after the other."""
        watching.settled(_ONCE_LIMIT_S)
        while True:
            seen = watching.seen()
            print(json.dumps(table(seen)) if self.as_json else f"{plain(seen)}\n", flush=True)
            time.sleep(every_s)


def table(seen: "Mapping[str, Seen]") -> dict[str, Any]:
    return {"epoch_s": time.time(), "hosts": {name: each.table for name, each in seen.items()}}


def plain(seen: "Mapping[str, Seen]") -> str:
    from shutil import get_terminal_size

    from medley.monitor import screen, view

    return screen.text(screen.lines(view.tables(seen), get_terminal_size((80, 24)).columns))


def shown(seen: "Mapping[str, Seen]", every_s: float, width: int, height: int) -> "Sequence[Line]":
    """A line above it all says what it is."""
    from medley.monitor import screen, view

    head = screen.ends(view.title(seen, every_s), f"{time.strftime('%H:%M:%S')}  q ends", width)
    return [head, (), *screen.lines(view.tables(seen), width, height - 2)][:height]
