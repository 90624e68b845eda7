"""`medley link watch`."""

import sys
import textwrap
import time
from collections.abc import Iterator

from rich import box
from rich.live import Live
from rich.table import Table
from rich.text import Text

from medley.cli import Verb, flag, switch, terminal
from medley.cli.output import print_result
from medley.measurement.monitor.rates import Flow, Rates, compute_rates
from medley.measurement.monitor.rows import format_bits
from medley.measurement.monitor.sample import Sample
from medley.measurement.monitor.sampler import HostSampler

# Virtual links fill the screen and add little: the traffic of a VPN or a container is on a real link, too.
_HIDDEN_KINDS = {"loopback", "container", "virtual", "gadget", "tunnel"}


class LinkWatchVerb(Verb):
    interval: int = switch("--interval SECONDS", "time between lines, in seconds", (1, 3600), default=2)
    once: bool = flag("--once", "one interval only")
    everything: bool = flag("--all", "include loopback, containers and tunnels")
    as_json: bool = flag("--json", "one JSON object per interval")

    def main(self) -> None:
        intervals = self._measure_intervals()
        if sys.stdout.isatty() and not self.once and not self.as_json:
            console, first_text = terminal.create_console(sys.stdout), Text("reading counters …")
            with Live(first_text, console=console, auto_refresh=False, vertical_overflow="crop") as live:
                for rates in intervals:
                    live.update(draw_table(rates), refresh=True)
            return
        for rates in intervals:
            print_result(build_rates_table(rates), list_lines(rates), as_json=self.as_json)

    def _measure_intervals(self) -> Iterator[Rates]:
        sampler = HostSampler(self.interval)
        previous = self._select_links(sampler.sample_network())
        while True:
            time.sleep(self.interval)
            current = self._select_links(sampler.sample_network())
            yield compute_rates(first=previous, previous=previous, current=current)
            if self.once:
                return
            previous = current

    def _select_links(self, sample: Sample) -> Sample:
        links = (link for link in sample.links if self.everything or link.kind not in _HIDDEN_KINDS)
        return sample.replace(links=tuple(sorted(links, key=lambda link: link.name)))


def build_rates_table(rates: Rates) -> dict[str, object]:
    """Return the rates for --json."""
    flows = [
        {
            "name": flow.name,
            "rdma": flow.kind == "rdma",
            "in_mbit": flow.in_bytes_per_s * 8 / 1e6,
            "out_mbit": flow.out_bytes_per_s * 8 / 1e6,
            "bad": flow.bad,
            "total_bytes": flow.total_bytes,
        }
        for flow in (*rates.links, *rates.ports)
    ]
    return {"seconds": rates.seconds, "rates": flows, "tcp_retransmits": rates.retransmits}


def list_lines(rates: Rates) -> Iterator[str]:
    """Yield the lines of busy links; one line for a quiet host, so that a log shows the watch."""
    flows = (*rates.links, *rates.ports)
    for flow in flows:
        if not flow.is_quiet:
            in_text, out_text = format_bits(flow.in_bytes_per_s), format_bits(flow.out_bytes_per_s)
            yield f"{flow.name:<16} in {in_text:>11}  out {out_text:>11}"
            yield from textwrap.wrap(
                _format_errors(flow), 80, initial_indent="  ! ", subsequent_indent="  ! "
            )
    if rates.retransmits:
        yield f"{'TCP, all links':<16} {rates.retransmits} segments sent again"
    if all(flow.is_quiet for flow in flows):
        yield f"no traffic on {len(flows)} links in {rates.seconds:.0f} s"


def draw_table(rates: Rates) -> Table:
    caption = f"{rates.seconds:.0f} s; TCP sent {rates.retransmits} segments again; Ctrl-C ends it"
    table = Table(box=box.SIMPLE_HEAD, caption=caption, caption_justify="left")
    table.add_column("link", no_wrap=True, max_width=18)
    table.add_column("in", justify="right", no_wrap=True, min_width=10)
    table.add_column("out", justify="right", no_wrap=True, min_width=10)
    table.add_column("errors since the last line")
    for flow in (*rates.links, *rates.ports):
        style = "dim" if flow.is_quiet else ""
        if flow.bad:
            style = "bold red"
        cells = (
            flow.name,
            format_bits(flow.in_bytes_per_s),
            format_bits(flow.out_bytes_per_s),
            _format_errors(flow) or "none",
        )
        table.add_row(*(Text(cell, style) for cell in cells))
    return table


def _format_errors(flow: Flow) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(flow.bad.items()))
