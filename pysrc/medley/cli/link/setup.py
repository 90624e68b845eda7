"""`medley link setup`: the addresses and the MTU that a fast link needs."""

import sys
from typing import TYPE_CHECKING

from plumbum import cli

from medley.cli.rooted import require_root
from medley.cli.verb import Verb
from medley.problem import Problem

if TYPE_CHECKING:  # imported by main alone, to keep `medley --help` fast
    from medley.link.change import Change
    from medley.link.settings import Asked, Setting


class Setup(Verb):
    DESCRIPTION = (
        "Give the fast links addresses and an MTU: shows the change, applies it on consent, undoes it."
    )
    DESCRIPTION_MORE = """
Without --interface it takes the fastest wires that are up: both halves of a Spark's cage, each in a
network of its own. A link with the default route or an ssh session on it is left alone. Run it on both hosts.

Examples:
    /medley link setup --dry-run
    /sudo medley link setup
    /sudo medley link setup --interface enp1s0f1np1 --address 192.168.100.10/24
    /sudo medley link setup --undo

"""
    interface = cli.SwitchAttr("--interface", str, argname="X", help="this link, and no other")
    address = cli.SwitchAttr("--address", str, argname="CIDR", help="its address, as in 192.168.100.10/24")
    mtu = cli.SwitchAttr("--mtu", cli.Range(576, 65535), argname="N", help="9000 for 25 Gb/s and more")
    number = cli.SwitchAttr("--number", cli.Range(1, 254), argname="N", help="this host's last number")
    manager = cli.SwitchAttr(
        "--with",
        cli.Set("netplan", "networkmanager", "nixos", "ip", case_sensitive=True),
        argname="WHO",
        help="who keeps it; ip forgets it at the next start",
    )
    undo = cli.Flag("--undo", help="take the last change back")
    yes = cli.Flag("--yes", help="do not ask")
    dry_run = cli.Flag("--dry-run", help="show the change; change nothing")
    force = cli.Flag("--force", help="also a link that this host is reached by, if --interface names it")

    def main(self) -> int:
        from medley.link import applying

        if self.undo:
            require_root("change links")
            print(f"taken back: {applying.undo(force=self.force)}")
            return 0
        settings = self._settings()
        for each in settings:
            print(f"{each.interface}  {each.address}  MTU {each.mtu}  ({each.why})", file=sys.stderr)
        todo = tuple(each for each in settings if not each.is_so)
        if not todo:
            print("all of it is so already")
            return 0
        change = self._change(todo)
        if change.by_hand or self.dry_run:
            return 0
        require_root("change links")
        if not self.yes and not _consents():
            print("nothing was changed")
            return 1
        applying.apply(change)
        return _settle(todo)

    def _settings(self) -> "tuple[Setting, ...]":
        from medley import facts, machine
        from medley.link import applying, settings

        found = facts.facts(machine.ask(facts.QUESTIONS))
        return settings.settings(found, self._asked(), settings.held(found, applying.sessions()))

    def _asked(self) -> "Asked":
        from medley.link.settings import Asked

        return Asked(self.interface, self.address, self.mtu, self.number, force=self.force)

    def _change(self, todo: "tuple[Setting, ...]") -> "Change":
        """Made, and shown."""
        from medley.link import applying

        found = applying.managed(None if self.manager is None else str(self.manager))
        change = applying.change(todo, found)
        print(f"with {found.chosen}: {found.why}", file=sys.stderr)
        print(change.shown, end="")
        unread = (
            ()
            if found.readable
            else ("the file that is there cannot be read, so this is not the whole change",)
        )
        for note in (*change.notes, *unread):
            print(f"note: {note}", file=sys.stderr)
        return change


def _settle(todo: "tuple[Setting, ...]") -> int:
    from medley.link import applying

    left = applying.unsettled(todo)
    if left:
        raise Problem(
            "the change was made, and the links are not as it says",
            cause=", ".join(f"{each.interface} has not {each.address} with MTU {each.mtu}" for each in left),
            fix="ip address; to take it back: sudo medley link setup --undo",
        )
    print("done. Now the other host, with the same networks and another last number; then: medley link test")
    return 0


def _consents() -> bool:
    if not sys.stdin.isatty():
        raise Problem(
            "nobody is there to consent",
            cause="the input is no terminal",
            fix="read the change above, then: medley link setup --yes",
        )
    return input("apply this? [y/N] ").strip().lower() in {"y", "yes"}
