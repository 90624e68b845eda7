"""`medley link setup`, `watch`."""

import sys
import textwrap
import time
from collections.abc import Iterator
from typing import Literal

from plumbum import cli
from rich import box
from rich.live import Live
from rich.table import Table
from rich.text import Text

from medley import process
from medley.cli import Verb, flag, switch, terminal
from medley.cli.output import print_result
from medley.cli.terminal import require_root
from medley.errors import Problem
from medley.host import facts
from medley.measurement.monitor.rates import Flow, Rates, compute_rates
from medley.measurement.monitor.rows import format_bits
from medley.measurement.monitor.sample import Sample
from medley.measurement.monitor.sampler import HostSampler
from medley.network import link_apply, link_setup
from medley.network.link_backends import Change
from medley.network.link_setup import RING_HOSTS, LinkRequest, LinkSetting


class LinkSetupVerb(Verb):
    interface: str | None = switch("--interface NAME", "link to set up [default: the fastest]")
    address: str | None = switch("--address CIDR", "address of the link, such as 192.168.100.10/24")
    mtu: int | None = switch("--mtu N", "MTU in bytes [default: 9000 from 25 Gbit/s]", (576, 65_535))
    number: int | None = switch("--number N", "last number of this host's addresses", (1, 254))
    ring: int | None = switch("--ring N", "place of this host in a ring of three hosts", (1, RING_HOSTS))
    manager: Literal["netplan", "networkmanager", "nixos", "ip"] | None = switch(
        "--with PROGRAM",
        "netplan, networkmanager, nixos, or ip (until the next boot)",
        check=cli.Set("netplan", "networkmanager", "nixos", "ip", case_sensitive=True),
    )
    undo: bool = flag("--undo", "undo the last change")
    yes: bool = flag("--yes", "do not ask")
    dry_run: bool = flag("--dry-run", "print the change; change nothing")
    force: bool = flag("--force", "change the link of --interface even if you use it")

    def main(self) -> int:
        if self.undo:
            require_root("change links")
            print(f"taken back: {link_apply.undo_change(force=self.force)}")
            return 0
        host_facts = facts.read_facts(process.ask_host(facts.QUESTIONS))
        request = LinkRequest(
            self.interface, self.address, self.mtu, self.number, self.ring, force=self.force
        )
        settings = link_setup.choose_settings(
            host_facts, request, link_setup.find_protected_links(host_facts, link_apply.list_ssh_sessions())
        )
        for setting in settings:
            line = f"{setting.interface}  {setting.address}  MTU {setting.mtu}  ({setting.why})"
            print(line, file=sys.stderr)
        open_settings = tuple(item for item in settings if not item.is_applied)
        if not open_settings:
            print("all of it is so already")
            return 0
        change = self._build_change(open_settings)
        if change.manual_text or self.dry_run:
            return 0
        require_root("change links")
        if not self.yes and not _ask_consent():
            print("nothing was changed")
            return 1
        link_apply.apply_change(change)
        if failed_settings := link_apply.wait_for_settings(open_settings):
            raise Problem(
                "the change was made, and the links are not as it says",
                cause=", ".join(
                    f"{each.interface} has not {each.address} with MTU {each.mtu}" for each in failed_settings
                ),
                fix="ip address; to take it back: sudo $(command -v medley) link setup --undo",
            )
        next_step = "the others with their --ring N; then: medley link show"
        if not self.ring:
            next_step = (
                "the other host, with the same networks and another last number; then: medley link test"
            )
        print(f"done. Now {next_step}")
        return 0

    def _build_change(self, open_settings: tuple[LinkSetting, ...]) -> Change:
        """Build the change and print it."""
        managers = link_apply.find_address_manager(
            process.ask_host(link_apply.MANAGER_QUESTIONS), self.manager
        )
        change = link_apply.build_change(open_settings, managers)
        print(f"with {managers.program}: {managers.why}", file=sys.stderr)
        print(change.preview, end="")
        unread_note = "the file that is there cannot be read, so this is not the whole change"
        for note in (*change.notes, *([] if managers.is_netplan_readable else [unread_note])):
            print(f"note: {note}", file=sys.stderr)
        return change


def _ask_consent() -> bool:
    if not sys.stdin.isatty():
        raise Problem(
            "no one can confirm the change",
            cause="the input is not a terminal",
            fix="read the change above, then: medley link setup --yes",
        )
    return input("apply this? [y/N] ").strip().lower() in {"y", "yes"}


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
        earlier = self._select_links(sampler.sample_network())
        while True:
            time.sleep(self.interval)
            later = self._select_links(sampler.sample_network())
            yield compute_rates(earlier, earlier, later)
            if self.once:
                return
            earlier = later

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
