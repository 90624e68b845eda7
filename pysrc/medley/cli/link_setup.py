"""`medley link setup`."""

import sys
from typing import Literal

from plumbum import cli

from medley import process
from medley.cli import Verb, flag, switch
from medley.cli.terminal import require_root
from medley.errors import Problem
from medley.host import facts
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
            host_facts, request, link_setup.find_protected_links(host_facts, link_apply.map_ssh_sessions())
        )
        for setting in settings:
            line = f"{setting.interface}  {setting.address}  MTU {setting.mtu}  ({setting.why})"
            print(line, file=sys.stderr)
        pending_settings = tuple(item for item in settings if not item.is_applied)
        if not pending_settings:
            print("all of it is so already")
            return 0
        change = self._build_change(pending_settings)
        if change.manual_text or self.dry_run:
            return 0
        require_root("change links")
        if not self.yes and not _ask_consent():
            print("nothing was changed")
            return 1
        link_apply.apply_change(change)
        if failed_settings := link_apply.wait_for_settings(pending_settings):
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

    def _build_change(self, pending_settings: tuple[LinkSetting, ...]) -> Change:
        """Build the change and print it."""
        managers = link_apply.find_address_manager(
            process.ask_host(link_apply.MANAGER_QUESTIONS), self.manager
        )
        change = link_apply.build_change(pending_settings, managers)
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
