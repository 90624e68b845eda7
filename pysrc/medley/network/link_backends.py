"""Write a change of links for netplan, NetworkManager, NixOS or iproute2."""

import difflib
import re
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Interface
from pathlib import Path

from medley.command import Command
from medley.errors import Problem
from medley.network.link_setup import LinkSetting
from medley.values import Value

NETPLAN_PATH = Path("/etc/netplan/60-medley.yaml")
# No renderer, which the host's other files choose.
_NETPLAN_HEAD = """\
# Written by medley link setup, which replaces it; taken back by medley link setup --undo.
network:
  version: 2
  ethernets:
"""
_NETPLAN_LINK = """\
    {name}:
      dhcp4: false
      dhcp6: false
      link-local: []
      addresses: [{address}]
      mtu: {mtu}
      optional: true
"""
_NETPLAN_LINK_PATTERN = re.compile(r"^    (\S+):\n((?:      .*\n)+)", re.MULTILINE)
# medley's connection has priority over NetworkManager's automatic one.
_PRIORITY_WORDS = (
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


class FileChange(Value):
    path: Path
    text: str
    """The text to write."""
    old_text: str | None
    """The text of the existing file; None without one."""

    @property
    def diff(self) -> str:
        old_lines = (self.old_text or "").splitlines(keepends=True)
        names = ("/dev/null" if self.old_text is None else str(self.path), str(self.path))
        return "".join(difflib.unified_diff(old_lines, self.text.splitlines(keepends=True), *names))


class Change(Value):
    """The file and the commands that make some settings, and the commands that undo them."""

    commands: tuple[Command, ...] = ()
    undo: tuple[Command, ...] = ()
    file: FileChange | None = None
    """The file to write before the commands run."""
    manual_text: str = ""
    """Text for the user to add, where medley must not write."""
    notes: tuple[str, ...] = ()

    @property
    def preview(self) -> str:
        if self.manual_text:
            return self.manual_text
        diff = self.file.diff if self.file else ""
        return diff + "".join(f"{command}\n" for command in self.commands)


def build_iproute_change(settings: tuple[LinkSetting, ...], up: frozenset[str]) -> Change:
    """Return ip commands; `up` has the interfaces that are up."""
    commands: list[Command] = []
    undo_commands: list[Command] = []
    for setting in settings:
        steps = list(_list_ip_steps(setting, up=setting.interface in up))
        commands += [command for step, _ in steps for command in step]
        undo_commands += [command for _, undo in reversed(steps) for command in undo]
    notes = ("this does not survive a reboot: run it again then",)
    return Change(tuple(commands), tuple(undo_commands), notes=notes)


def _list_ip_steps(setting: LinkSetting, *, up: bool) -> Iterator[tuple[list[Command], list[Command]]]:
    """Yield the commands of each step and those that undo it."""

    def ip(*words: str) -> Command:
        return Command(("ip", *words))

    def address(verb: str, address: str) -> Command:
        return ip("address", verb, address, "dev", setting.interface)

    link = ("link", "set", "dev", setting.interface)
    drops = setting.dropped_addresses
    yield [address("del", dropped) for dropped in drops], [address("add", dropped) for dropped in drops]
    if setting.mtu != setting.old_mtu:
        yield [ip(*link, "mtu", str(setting.mtu))], [ip(*link, "mtu", str(setting.old_mtu))]
    if not up:
        yield [ip(*link, "up")], [ip(*link, "down")]
    if not setting.has_address:
        yield [address("add", setting.address)], [address("del", setting.address)]


def build_netplan_change(settings: tuple[LinkSetting, ...], old_text: str | None) -> Change:
    """Return medley's file with these settings, whose text was `old_text`; its other links stay.

    Raise a Problem for a link that is not Ethernet, because another file defines it.
    """
    for setting in settings:
        if setting.kind != "ethernet":
            raise Problem(
                f"{setting.interface} is configured elsewhere",
                cause=f"netplan defines a {setting.kind} with its parts in a file that is not medley's",
                fix=f"in its file in /etc/netplan: addresses: [{setting.address}], mtu: {setting.mtu}",
            )
    links = {name: f"    {name}:\n{lines}" for name, lines in _NETPLAN_LINK_PATTERN.findall(old_text or "")}
    for setting in settings:
        links[setting.interface] = _NETPLAN_LINK.format(
            name=setting.interface, address=setting.address, mtu=setting.mtu
        )
    text = _NETPLAN_HEAD + "".join(links[name] for name in sorted(links))
    commands = (Command(("netplan", "generate")), Command(("netplan", "apply")))
    apply_note = "netplan apply applies all of /etc/netplan, including other unapplied changes"
    notes = tuple(
        f"netplan merges the addresses of all its files: remove {', '.join(setting.dropped_addresses)} "
        f"of {setting.interface} from the other one (grep -r addresses /etc/netplan)"
        for setting in settings
        if setting.dropped_addresses
    )
    return Change(commands, commands, FileChange(NETPLAN_PATH, text, old_text), notes=(apply_note, *notes))


def build_network_manager_change(
    settings: tuple[LinkSetting, ...], profiles: Mapping[str, tuple[str, str]], active: Mapping[str, str]
) -> Change:
    """Return nmcli commands; by interface, `profiles` are medley's connections, `active` the UUIDs in use.

    Raise a Problem for a link that is not Ethernet, because another connection defines it.
    """
    commands, undo = [], []
    for setting in settings:
        if setting.kind != "ethernet":
            raise Problem(
                f"{setting.interface} is configured elsewhere",
                cause=f"NetworkManager has the {setting.kind} as a connection that is not medley's",
                fix=f"nmcli connection modify NAME ipv4.method manual ipv4.addresses {setting.address}",
            )
        name, interface = f"medley-{setting.interface}", setting.interface
        modify, start = ("modify", name), _build_nmcli_command("up", name)
        add = ("add", "type", "ethernet", "con-name", name, "ifname", interface)
        save = modify if interface in profiles else add
        commands += [
            _build_nmcli_command(
                *save, *_list_ipv4_words(setting.address, str(setting.mtu)), *_PRIORITY_WORDS
            ),
            start,
        ]
        if interface in profiles:
            undo += [_build_nmcli_command(*modify, *_list_ipv4_words(*profiles[interface])), start]
        else:
            undo += [
                _build_nmcli_command("delete", name),
                *([_build_nmcli_command("up", active[interface])] if interface in active else []),
            ]
    return Change(tuple(commands), tuple(undo))


def _list_ipv4_words(address: str, mtu: str) -> tuple[str, ...]:
    ipv4_words = ("ipv4.method", "manual", "ipv4.addresses", address, "ipv4.never-default", "yes")
    return (*ipv4_words, "802-3-ethernet.mtu", mtu)


def _build_nmcli_command(*words: str) -> Command:
    return Command(("nmcli", "connection", *words))


def build_nixos_change(settings: tuple[LinkSetting, ...]) -> Change:
    """Return the text for the user's NixOS configuration, which medley does not edit."""
    names = " ".join(f'"interface-name:{setting.interface}"' for setting in settings)
    text = "{\n"
    for setting in settings:
        address = IPv4Interface(setting.address)
        prefix = address.network.prefixlen
        text += _NIXOS_LINK.format(name=setting.interface, mtu=setting.mtu, ip=address.ip, prefix=prefix)
    # It has no effect without NetworkManager.
    text += f"  networking.networkmanager.unmanaged = [ {names} ];\n}}\n"
    notes = ("add this to your configuration, then: sudo nixos-rebuild switch",)
    return Change(manual_text=text, notes=notes)
