"""`medley link watch`: what each link and RDMA port carries now, and what goes wrong on it."""

import dataclasses
import json
import sys
import textwrap
import time
from typing import TYPE_CHECKING

from plumbum import cli

from medley.cli.verb import Verb

if TYPE_CHECKING:  # imported by main alone, to keep `medley --help` fast
    from collections.abc import Iterator

    from rich.table import Table

    from medley.link.traffic import Rate, Traffic

# What is no wire says little here and fills the screen; a VPN's and a container's traffic is on a wire, too.
_HIDDEN = {"loopback", "container", "virtual", "gadget", "tunnel"}


class Watch(Verb):
    DESCRIPTION = "Show what each link and RDMA port carries, its errors, drops and retransmits."
    DESCRIPTION_MORE = """
On a terminal a live table; elsewhere a line for each link that carried something. Ctrl-C ends it.
RDMA does not show in the counters of its Ethernet link, so RoCE ports have lines of their own.

Examples:
    /medley link watch
    /medley link watch --once
    /medley link watch --json --interval 5

"""
    interval = cli.SwitchAttr("--interval", cli.Range(1, 3600), 2, argname="S", help="seconds between lines")
    once = cli.Flag("--once", help="show one interval, and end")
    everything = cli.Flag("--all", help="loopback, containers and tunnels, too")
    as_json = cli.Flag("--json", help="print one JSON object an interval")

    def main(self) -> None:
        found = self._intervals()
        if self.as_json:
            for each in found:
                print(json.dumps(dataclasses.asdict(each)), flush=True)
        elif sys.stdout.isatty() and not self.once:
            _live(found)
        else:
            for each in found:
                for line in lines(each):
                    print(line, flush=True)

    def _intervals(self) -> "Iterator[Traffic]":
        from medley import machine
        from medley.facts import net
        from medley.link import traffic

        kinds = {link.name: link.kind for link in net.net(machine.ask(net.QUESTIONS)).links}
        before = traffic.reading(machine.ask(traffic.QUESTIONS))
        while True:
            time.sleep(self.interval)
            after = traffic.reading(machine.ask(traffic.QUESTIONS))
            found = traffic.traffic(before, after)
            shown = tuple(
                rate
                for rate in found.rates
                if rate.rdma or self.everything or kinds.get(rate.name) not in _HIDDEN
            )
            yield dataclasses.replace(found, rates=shown)
            if self.once:
                return
            before = after


def lines(found: "Traffic") -> "Iterator[str]":
    """Of a quiet host one line, too, so that a log shows that it was watched."""
    for rate in found.rates:
        if not rate.quiet:
            yield f"{rate.name:<16} in {_speed(rate.in_mbit):>11}  out {_speed(rate.out_mbit):>11}"
            yield from textwrap.wrap(_bad(rate), 80, initial_indent="  ! ", subsequent_indent="  ! ")
    if found.tcp_retransmits:
        yield f"{'TCP, all links':<16} {found.tcp_retransmits} segments sent again"
    if all(rate.quiet for rate in found.rates):
        yield f"no traffic on {len(found.rates)} links in {found.seconds:.0f} s"


def _live(found: "Iterator[Traffic]") -> None:
    from rich.live import Live
    from rich.text import Text

    from medley.cli import terminal

    console = terminal.console(sys.stdout)
    waiting = Text("reading counters …")
    with Live(waiting, console=console, auto_refresh=False, vertical_overflow="crop") as live:
        for each in found:
            live.update(table(each), refresh=True)


def table(found: "Traffic") -> "Table":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    caption = f"{found.seconds:.0f} s; TCP sent {found.tcp_retransmits} segments again; Ctrl-C ends it"
    table = Table(box=box.SIMPLE_HEAD, caption=caption, caption_justify="left")
    table.add_column("link", no_wrap=True, max_width=18)
    table.add_column("in", justify="right", no_wrap=True, min_width=10)
    table.add_column("out", justify="right", no_wrap=True, min_width=10)
    table.add_column("errors since the last line")
    for rate in found.rates:
        style = "bold red" if rate.bad else "dim" if rate.quiet else ""
        bad = Text(_bad(rate) or "none", style=style)
        table.add_row(
            Text(rate.name, style),
            *(Text(_speed(each), style) for each in (rate.in_mbit, rate.out_mbit)),
            bad,
        )
    return table


def _bad(rate: "Rate") -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(rate.bad.items()))


def _speed(mbit: float) -> str:
    """0 only where nothing went."""
    if mbit >= 1000:  # noqa: PLR2004 - of the unit
        return f"{mbit / 1000:.1f} Gb/s"
    if mbit >= 1:
        return f"{mbit:.1f} Mb/s"
    return f"{mbit * 1000:.1f} kb/s" if mbit else "0"
