"""`medley link setup`, `watch`."""

import sys
import textwrap
import time
from collections.abc import Iterator
from dataclasses import replace
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
from medley.measurement.monitor import Sample
from medley.measurement.monitor.rates import Flow, Rates, compute_rates
from medley.measurement.monitor.rows import format_bits
from medley.measurement.monitor.sampler import HostSampler
from medley.network import link_apply, link_setup
from medley.network.link_backends import Change
from medley.network.link_setup import RING_HOSTS, LinkRequest, Setting


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
        found = facts.read_facts(process.ask(facts.QUESTIONS))
        asked = LinkRequest(self.interface, self.address, self.mtu, self.number, self.ring, force=self.force)
        settings = link_setup.choose_settings(
            found, asked, link_setup.find_protected_links(found, link_apply.list_ssh_sessions())
        )
        for each in settings:
            print(f"{each.interface}  {each.address}  MTU {each.mtu}  ({each.why})", file=sys.stderr)
        todo = tuple(each for each in settings if not each.is_applied)
        if not todo:
            print("all of it is so already")
            return 0
        change = self._change(todo)
        if change.manual_text or self.dry_run:
            return 0
        require_root("change links")
        if not self.yes and not _consents():
            print("nothing was changed")
            return 1
        link_apply.apply_change(change)
        if left := link_apply.wait_for_settings(todo):
            raise Problem(
                "the change was made, and the links are not as it says",
                cause=", ".join(
                    f"{each.interface} has not {each.address} with MTU {each.mtu}" for each in left
                ),
                fix="ip address; to take it back: sudo $(command -v medley) link setup --undo",
            )
        others = "the others with their --ring N; then: medley link show"
        if not self.ring:
            others = "the other host, with the same networks and another last number; then: medley link test"
        print(f"done. Now {others}")
        return 0

    def _change(self, todo: tuple[Setting, ...]) -> Change:
        """Made, and shown."""
        found = link_apply.find_managers(process.ask(link_apply.MANAGER_QUESTIONS), self.manager)
        change = link_apply.build_change(todo, found)
        print(f"with {found.program}: {found.why}", file=sys.stderr)
        print(change.preview, end="")
        unread = "the file that is there cannot be read, so this is not the whole change"
        for note in (*change.notes, *([] if found.is_netplan_readable else [unread])):
            print(f"note: {note}", file=sys.stderr)
        return change


def _consents() -> bool:
    if not sys.stdin.isatty():
        raise Problem(
            "no one can confirm the change",
            cause="the input is not a terminal",
            fix="read the change above, then: medley link setup --yes",
        )
    return input("apply this? [y/N] ").strip().lower() in {"y", "yes"}


# What is no wire says little here and fills the screen; a VPN's and a container's traffic is on a wire, too.
_HIDDEN = {"loopback", "container", "virtual", "gadget", "tunnel"}


class LinkWatchVerb(Verb):
    interval: int = switch("--interval SECONDS", "time between lines, in seconds", (1, 3600), default=2)
    once: bool = flag("--once", "one interval only")
    everything: bool = flag("--all", "include loopback, containers and tunnels")
    as_json: bool = flag("--json", "one JSON object per interval")

    def main(self) -> None:
        found = self._intervals()
        if sys.stdout.isatty() and not self.once and not self.as_json:
            console, begin = terminal.create_console(sys.stdout), Text("reading counters …")
            with Live(begin, console=console, auto_refresh=False, vertical_overflow="crop") as live:
                for each in found:
                    live.update(table(each), refresh=True)
            return
        for each in found:
            print_result(told(each), lines(each), as_json=self.as_json)

    def _intervals(self) -> Iterator[Rates]:
        here = HostSampler(self.interval)
        before = self._shown(here.sample_network())
        while True:
            time.sleep(self.interval)
            after = self._shown(here.sample_network())
            yield compute_rates(before, before, after)
            if self.once:
                return
            before = after

    def _shown(self, found: Sample) -> Sample:
        links = (link for link in found.links if self.everything or link.kind not in _HIDDEN)
        return replace(found, links=tuple(sorted(links, key=lambda link: link.name)))


def told(found: Rates) -> dict[str, object]:
    """As programs read it."""
    flows = [
        {
            "name": flow.name,
            "rdma": flow.kind == "rdma",
            "in_mbit": flow.in_bytes_per_s * 8 / 1e6,
            "out_mbit": flow.out_bytes_per_s * 8 / 1e6,
            "bad": flow.bad,
            "total_bytes": flow.total_bytes,
        }
        for flow in (*found.links, *found.ports)
    ]
    return {"seconds": found.seconds, "rates": flows, "tcp_retransmits": found.retransmits}


def lines(found: Rates) -> Iterator[str]:
    """Of a quiet host one line, too, so that a log shows that it was watched."""
    flows = (*found.links, *found.ports)
    for flow in flows:
        if not flow.is_quiet:
            in_text, out_text = format_bits(flow.in_bytes_per_s), format_bits(flow.out_bytes_per_s)
            yield f"{flow.name:<16} in {in_text:>11}  out {out_text:>11}"
            yield from textwrap.wrap(_bad(flow), 80, initial_indent="  ! ", subsequent_indent="  ! ")
    if found.retransmits:
        yield f"{'TCP, all links':<16} {found.retransmits} segments sent again"
    if all(flow.is_quiet for flow in flows):
        yield f"no traffic on {len(flows)} links in {found.seconds:.0f} s"


def table(found: Rates) -> Table:
    caption = f"{found.seconds:.0f} s; TCP sent {found.retransmits} segments again; Ctrl-C ends it"
    table = Table(box=box.SIMPLE_HEAD, caption=caption, caption_justify="left")
    table.add_column("link", no_wrap=True, max_width=18)
    table.add_column("in", justify="right", no_wrap=True, min_width=10)
    table.add_column("out", justify="right", no_wrap=True, min_width=10)
    table.add_column("errors since the last line")
    for flow in (*found.links, *found.ports):
        style = "bold red" if flow.bad else "dim" if flow.is_quiet else ""
        cells = (
            flow.name,
            format_bits(flow.in_bytes_per_s),
            format_bits(flow.out_bytes_per_s),
            _bad(flow) or "none",
        )
        table.add_row(*(Text(each, style) for each in cells))
    return table


def _bad(flow: Flow) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(flow.bad.items()))
