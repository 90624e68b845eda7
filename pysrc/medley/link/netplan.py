"""netplan keeps addresses on Ubuntu, DGX OS among them: one file of ours, beside the user's own."""

import re
from pathlib import Path

from medley.command import Command
from medley.link.change import Change, File
from medley.link.settings import Setting
from medley.problem import Problem

PATH = Path("/etc/netplan/60-medley.yaml")
# No renderer: that is for the host's other files to say.
_HEAD = """\
# Written by medley link setup, which replaces it; taken back by medley link setup --undo.
network:
  version: 2
  ethernets:
"""
_LINK = """\
    {name}:
      dhcp4: false
      dhcp6: false
      link-local: []
      addresses: [{address}]
      mtu: {mtu}
      optional: true
"""
_OURS = re.compile(r"^    (\S+):\n((?:      .*\n)+)", re.MULTILINE)


def change(settings: tuple[Setting, ...], old: str | None) -> Change:
    """`old` is our file as it is; links in it that nobody sets now stay."""
    for each in settings:
        if each.kind != "ethernet":
            raise Problem(
                f"{each.interface} is set up where it is made",
                cause=f"netplan has a {each.kind} in one place with its parts, which is no file of ours",
                fix=f"in its file in /etc/netplan: addresses: [{each.address}], mtu: {each.mtu}",
            )
    links = {name: f"    {name}:\n{lines}" for name, lines in _OURS.findall(old or "")}
    for each in settings:
        links[each.interface] = _LINK.format(name=each.interface, address=each.address, mtu=each.mtu)
    text = _HEAD + "".join(links[name] for name in sorted(links))
    commands = (Command(("netplan", "generate")), Command(("netplan", "apply")))
    all_of_it = "netplan apply puts all of /etc/netplan into force, with what others changed there since"
    notes = tuple(
        f"netplan joins the addresses of all its files: take {', '.join(each.drops)} of {each.interface} "
        "out of the other one (grep -r addresses /etc/netplan)"
        for each in settings
        if each.drops
    )
    return Change("netplan", commands, commands, File(PATH, text, old), notes=(all_of_it, *notes))
