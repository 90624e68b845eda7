"""Write a change of links for netplan, NetworkManager, NixOS or iproute2."""

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Interface
from pathlib import Path

from medley.command import Command
from medley.errors import Problem
from medley.network.link_setup import Setting

NETPLAN_PATH = Path("/etc/netplan/60-medley.yaml")
# No renderer, which the host's other files choose.
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
# medley's connection has priority over NetworkManager's automatic one.
_OURS_FIRST = (
    *("connection.autoconnect", "yes", "connection.autoconnect-priority", "100"),
    *("ipv6.method", "disabled"),
)
_NIXOS_LINK = """\
  networking.interfaces."{name}" = {{
    useDHCP = false;
    mtu = {mtu};
    ipv4.addresses = [ {{ address = "{ip}"; prefixLength = {prefix}; }} ];
  }};
"""


@dataclass(frozen=True)
class FileChange:
    path: Path
    text: str
    old: str | None

    @property
    def diff(self) -> str:
        before = (self.old or "").splitlines(keepends=True)
        names = ("/dev/null" if self.old is None else str(self.path), str(self.path))
        return "".join(difflib.unified_diff(before, self.text.splitlines(keepends=True), *names))


@dataclass(frozen=True)
class Change:
    commands: tuple[Command, ...] = ()
    undo: tuple[Command, ...] = ()
    file: FileChange | None = None
    by_hand: str = ""
    """Text for the user to add, where medley must not write."""
    notes: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        if self.by_hand:
            return self.by_hand
        diff = self.file.diff if self.file else ""
        return diff + "".join(f"{command}\n" for command in self.commands)


def iproute_change(settings: tuple[Setting, ...], up: frozenset[str]) -> Change:
    steps = [list(_ip_steps(each, up=each.interface in up)) for each in settings]
    return Change(
        tuple(command for each in steps for do, _ in each for command in do),
        tuple(command for each in steps for _, undo in reversed(each) for command in undo),
        notes=("this does not survive a reboot: run it again then",),
    )


def _ip_steps(setting: Setting, *, up: bool) -> Iterator[tuple[list[Command], list[Command]]]:

    def ip(*words: str) -> Command:
        return Command(("ip", *words))

    def address(verb: str, address: str) -> Command:
        return ip("address", verb, address, "dev", setting.interface)

    link = ("link", "set", "dev", setting.interface)
    yield [address("del", each) for each in setting.drops], [address("add", each) for each in setting.drops]
    if setting.mtu != setting.old_mtu:
        yield [ip(*link, "mtu", str(setting.mtu))], [ip(*link, "mtu", str(setting.old_mtu))]
    if not up:
        yield [ip(*link, "up")], [ip(*link, "down")]
    if not setting.has_address:
        yield [address("add", setting.address)], [address("del", setting.address)]


def netplan_change(settings: tuple[Setting, ...], old: str | None) -> Change:
    """Change medley's file, whose text is `old`; its other links stay."""
    for each in settings:
        if each.kind != "ethernet":
            raise Problem(
                f"{each.interface} is configured elsewhere",
                cause=f"netplan defines a {each.kind} with its parts in a file that is not medley's",
                fix=f"in its file in /etc/netplan: addresses: [{each.address}], mtu: {each.mtu}",
            )
    links = {name: f"    {name}:\n{lines}" for name, lines in _OURS.findall(old or "")}
    for each in settings:
        links[each.interface] = _LINK.format(name=each.interface, address=each.address, mtu=each.mtu)
    text = _HEAD + "".join(links[name] for name in sorted(links))
    commands = (Command(("netplan", "generate")), Command(("netplan", "apply")))
    all_of_it = "netplan apply applies all of /etc/netplan, including other unapplied changes"
    notes = tuple(
        f"netplan merges the addresses of all its files: remove {', '.join(each.drops)} of {each.interface} "
        "from the other one (grep -r addresses /etc/netplan)"
        for each in settings
        if each.drops
    )
    return Change(commands, commands, FileChange(NETPLAN_PATH, text, old), notes=(all_of_it, *notes))


def network_manager_change(
    settings: tuple[Setting, ...], profiles: Mapping[str, tuple[str, str]], active: Mapping[str, str]
) -> Change:
    """Change connections; by interface, `profiles` are medley's, `active` the UUIDs in use."""
    commands, undo = [], []
    for each in settings:
        if each.kind != "ethernet":
            raise Problem(
                f"{each.interface} is configured elsewhere",
                cause=f"NetworkManager has the {each.kind} as a connection that is not medley's",
                fix=f"nmcli connection modify NAME ipv4.method manual ipv4.addresses {each.address}",
            )
        name, link = f"medley-{each.interface}", each.interface
        modify, start = ("modify", name), _nmcli("up", name)
        add = ("add", "type", "ethernet", "con-name", name, "ifname", link)
        make = modify if link in profiles else add
        commands += [_nmcli(*make, *_ipv4(each.address, str(each.mtu)), *_OURS_FIRST), start]
        if link in profiles:
            undo += [_nmcli(*modify, *_ipv4(*profiles[link])), start]
        else:
            undo += [_nmcli("delete", name), *([_nmcli("up", active[link])] if link in active else [])]
    return Change(tuple(commands), tuple(undo))


def _ipv4(address: str, mtu: str) -> tuple[str, ...]:
    how = ("ipv4.method", "manual", "ipv4.addresses", address, "ipv4.never-default", "yes")
    return (*how, "802-3-ethernet.mtu", mtu)


def _nmcli(*words: str) -> Command:
    return Command(("nmcli", "connection", *words))


def nixos_change(settings: tuple[Setting, ...]) -> Change:
    names = " ".join(f'"interface-name:{each.interface}"' for each in settings)
    links = ((each, IPv4Interface(each.address)) for each in settings)
    text = "{\n" + "".join(
        _NIXOS_LINK.format(name=each.interface, mtu=each.mtu, ip=at.ip, prefix=at.network.prefixlen)
        for each, at in links
    )
    # It has no effect without NetworkManager.
    text += f"  networking.networkmanager.unmanaged = [ {names} ];\n}}\n"
    notes = ("add this to your configuration, then: sudo nixos-rebuild switch",)
    return Change(by_hand=text, notes=notes)
