"""NetworkManager keeps addresses on Jetson and on desktops: one connection of ours for each link."""

from collections.abc import Iterator, Mapping

from medley.command import Command
from medley.link.change import Change
from medley.link.settings import Setting
from medley.problem import Problem


def change(
    settings: tuple[Setting, ...], profiles: Mapping[str, tuple[str, str]], active: Mapping[str, str]
) -> Change:
    """By interface: `profiles` of ours, with address and MTU; `active`, the UUID of the one in use."""
    for each in settings:
        if each.kind != "ethernet":
            raise Problem(
                f"{each.interface} is set up where it is made",
                cause=f"NetworkManager keeps a {each.kind} as one connection, which is not ours",
                fix=f"nmcli connection modify NAME ipv4.method manual ipv4.addresses {each.address}",
            )
    return Change(
        "networkmanager",
        tuple(command for each in settings for command in _commands(each, known=each.interface in profiles)),
        tuple(command for each in settings for command in _undo(each, profiles, active)),
    )


def _commands(setting: Setting, *, known: bool) -> Iterator[Command]:
    name = f"medley-{setting.interface}"
    make = (
        ("modify", name)
        if known
        else ("add", "type", "ethernet", "con-name", name, "ifname", setting.interface)
    )
    # Ours goes before the one that NetworkManager makes by itself.
    more = (
        "connection.autoconnect",
        "yes",
        "connection.autoconnect-priority",
        "100",
        "ipv6.method",
        "disabled",
    )
    yield _nmcli(*make, *_ipv4(setting.address, str(setting.mtu)), *more)
    yield _nmcli("up", name)


def _undo(
    setting: Setting, profiles: Mapping[str, tuple[str, str]], active: Mapping[str, str]
) -> Iterator[Command]:
    name = f"medley-{setting.interface}"
    if setting.interface in profiles:
        yield _nmcli("modify", name, *_ipv4(*profiles[setting.interface]))
        yield _nmcli("up", name)
        return
    yield _nmcli("delete", name)
    if setting.interface in active:
        yield _nmcli("up", active[setting.interface])


def _ipv4(address: str, mtu: str) -> tuple[str, ...]:
    how = ("ipv4.method", "manual", "ipv4.addresses", address, "ipv4.never-default", "yes")
    return (*how, "802-3-ethernet.mtu", mtu)


def _nmcli(*words: str) -> Command:
    return Command(("nmcli", "connection", *words))
