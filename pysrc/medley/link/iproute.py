"""Iproute2 sets addresses in the kernel, until the next start of the host."""

from collections.abc import Iterator

from medley.command import Command
from medley.link.change import Change
from medley.link.settings import Setting


def change(settings: tuple[Setting, ...], up: frozenset[str]) -> Change:
    """`up`: the links that are administratively up now."""
    return Change(
        "ip",
        tuple(command for each in settings for command in _commands(each, up=each.interface in up)),
        tuple(command for each in settings for command in _undo(each, up=each.interface in up)),
        notes=("nothing keeps this over a restart of the host: run it again then",),
    )


def _commands(setting: Setting, *, up: bool) -> Iterator[Command]:
    name = setting.interface
    for address in setting.drops:
        yield _ip("address", "del", address, "dev", name)
    if setting.mtu != setting.old_mtu:
        yield _ip("link", "set", "dev", name, "mtu", str(setting.mtu))
    if not up:
        yield _ip("link", "set", "dev", name, "up")
    if not setting.has_address:
        yield _ip("address", "add", setting.address, "dev", name)


def _undo(setting: Setting, *, up: bool) -> Iterator[Command]:
    name = setting.interface
    if not setting.has_address:
        yield _ip("address", "del", setting.address, "dev", name)
    if not up:
        yield _ip("link", "set", "dev", name, "down")
    if setting.mtu != setting.old_mtu:
        yield _ip("link", "set", "dev", name, "mtu", str(setting.old_mtu))
    for address in setting.drops:
        yield _ip("address", "add", address, "dev", name)


def _ip(*words: str) -> Command:
    return Command(("ip", *words))
