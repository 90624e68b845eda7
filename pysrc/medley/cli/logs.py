"""`medley logs`: what the cluster's units say, of all hosts together."""

import sys
import threading
from typing import TYPE_CHECKING

from plumbum import cli

from medley.cli.clustered import Clustered, tell
from medley.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Callable

_COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "red")


class Logs(Clustered):
    DESCRIPTION = "Show what Ray and the served model say on the hosts of cluster.toml, together, by time."
    DESCRIPTION_MORE = """
Without a cluster.toml it shows those of this host.

Examples:
    /medley logs
    /medley logs spark-2 -n 200
    /medley logs -f

"""
    USAGE = "    {progname} [SWITCHES] [HOST...]\n"
    follow = cli.Flag(["-f", "--follow"], help="go on with what comes, until Ctrl-C")
    lines = cli.SwitchAttr(
        ["-n", "--lines"], cli.Range(0, 100_000), 40, argname="N", help="so many of each host"
    )

    def main(self, *hosts: str) -> int:
        from medley.everyone import Everyone

        found = self.wanted(alone=True)
        if unknown := [name for name in hosts if name not in found.hosts]:
            raise Problem(
                f"the cluster has no host {unknown[0]}",
                cause=f"its hosts are {', '.join(found.hosts)}",
                fix=f"medley logs {next(iter(found.hosts))}",
            )
        if hosts:
            found = found.without(tuple(name for name in found.hosts if name not in hosts))
        show = _Shown(list(found.hosts), sort=not self.follow)
        with Everyone(found, on_note=show.line) as everyone:
            asked = {"lines": self.lines, "follow": self.follow}
            everyone.ask("log", lambda _: asked, limit_s=float("inf") if self.follow else 60)
            show.rest()
            return tell(everyone.failed.values())


class _Shown:
    """Each line with its host before it; sorted by time where all are there before the first is printed."""

    def __init__(self, hosts: list[str], *, sort: bool) -> None:
        self._width = max(map(len, hosts))
        self._paint = _painted(hosts)
        self._kept: list[tuple[str, str]] | None = [] if sort else None
        self._lock = threading.Lock()

    def line(self, host: str, text: str) -> None:
        with self._lock:
            if self._kept is None:
                self._print(host, text)
            else:
                self._kept.append((host, text))

    def rest(self) -> None:
        for host, text in sorted(self._kept or (), key=lambda each: each[1].partition(" ")[0]):
            self._print(host, text)

    def _print(self, host: str, text: str) -> None:
        print(f"{self._paint(host)}{' ' * (self._width - len(host))}  {text}", flush=True)


def _painted(hosts: list[str]) -> "Callable[[str], str]":
    """The host's name in its colour, where that is a terminal which wants some."""
    from medley.cli.terminal import console as terminal

    console = terminal(sys.stdout)
    if not console.is_terminal or console.no_color:
        return lambda host: host
    colours = {host: _COLOURS[at % len(_COLOURS)] for at, host in enumerate(hosts)}

    def paint(host: str) -> str:
        with console.capture() as said:
            console.print(host, style=colours[host], end="")
        return said.get()

    return paint
