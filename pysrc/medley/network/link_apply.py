"""Find the program that manages this host's addresses; apply, record and undo a change."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, TypedDict

from medley import json_shape, process, process_identity, storage
from medley.command import Command
from medley.errors import Problem, in_words
from medley.host.facts import network
from medley.host.facts.system import MARKS
from medley.network import link_backends
from medley.network.link_backends import Change
from medley.network.link_setup import Setting
from medley.transcript import NO_ANSWER, Transcript, first, lines

PROGRAMS = "for p in netplan nmcli; do command -v $p; done"
NETPLANS = "ls /etc/netplan/*.yaml"
OUR_NETPLAN = f"cat {link_backends.NETPLAN_PATH}"
NETWORK_MANAGER = "nmcli -t -f RUNNING general"
ACTIVE = "nmcli -t -f UUID,DEVICE connection show --active"
OUR_PROFILES = (
    "nmcli -g NAME connection show | grep '^medley-' | while read -r n; do"
    ' echo "$n $(nmcli -g ipv4.addresses,802-3-ethernet.mtu connection show "$n" | tr "\\n" " ")"; done'
)
UP = "ip -brief link show up"
_LIMIT_S = 60
_SETTLES_S = 10
MANAGER_QUESTIONS = (MARKS, PROGRAMS, NETPLANS, OUR_NETPLAN, NETWORK_MANAGER, ACTIVE, OUR_PROFILES, UP)


@dataclass(frozen=True)
class Managers:
    chosen: str = "ip"
    why: str = ""
    our_netplan: str | None = None
    readable: bool = True
    profiles: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Address and MTU of medley's connections in NetworkManager, by interface."""
    active: Mapping[str, str] = field(default_factory=dict)
    """The UUID of each interface's connection in NetworkManager."""
    up: frozenset[str] = frozenset()
    """Links that are administratively up."""


def managers(answers: Transcript, named: str | None = None) -> Managers:
    usable, why = _usable(answers)
    if named is not None and named not in usable:
        raise Problem(
            f"{named} does not manage this host's addresses",
            cause=f"found: {', '.join(sorted(usable))}; {why}",
            fix=f"leave --with out, or: --with {min(usable)}",
        )
    ours = answers.get(OUR_NETPLAN, NO_ANSWER)
    profiles = (re.fullmatch(r"medley-(\S+) (\S+) (\S+) *", line) for line in lines(answers, OUR_PROFILES))
    there = str(link_backends.NETPLAN_PATH) in lines(answers, NETPLANS)
    return Managers(
        chosen=named or usable[0],
        why="named with --with" if named else why,
        our_netplan=ours.text if there and not ours.status else None,
        readable=not (there and ours.status),
        profiles={each[1]: (each[2], each[3]) for each in profiles if each},
        active={device: uuid for uuid, _, device in (line.partition(":") for line in lines(answers, ACTIVE))},
        up=frozenset(line.split()[0].partition("@")[0] for line in lines(answers, UP)),
    )


def _usable(answers: Transcript) -> tuple[tuple[str, ...], str]:
    if "/etc/NIXOS" in lines(answers, MARKS):
        # On NixOS the configuration starts every other program.
        return ("nixos", "ip"), "NixOS, whose configuration sets addresses"
    programs = {PurePosixPath(path).name for path in lines(answers, PROGRAMS)}
    found, why = ["ip"], "neither netplan nor NetworkManager runs here"
    if "nmcli" in programs and first(answers, NETWORK_MANAGER) == "running":
        found, why = ["networkmanager", *found], "NetworkManager runs, and /etc/netplan has no file"
    if "netplan" in programs and lines(answers, NETPLANS):
        found, why = ["netplan", *found], "/etc/netplan has files"
    return tuple(found), why


def sessions() -> dict[str, str]:
    """Return the clients of open ssh sessions, by address and interface here, also under sudo."""
    said = {env.get("SSH_CONNECTION", "") for env in process_identity.process_environments().values()}
    found = [words for each in said if len(words := each.split()) == 4]  # noqa: PLR2004 - both ends' address, port
    plain = (client for client, *_ in found if client.replace(".", "").replace(":", "").isalnum())
    questions = {f"ip -json route get {client}": client for client in plain}
    answers = process.ask(questions) if questions else {}
    by_interface = {_interface(answers[each].text): client for each, client in questions.items()}
    # A link-local address of IPv6 names the interface itself.
    by_interface |= {client.partition("%")[2]: client for client, *_ in found if "%" in client}
    return {**{server: client for client, _, server, _ in found}, **by_interface}


def _interface(route_json: str) -> str:
    try:
        return str(json.loads(route_json)[0]["dev"])
    except (ValueError, LookupError, TypeError):
        return ""


def change(settings: tuple[Setting, ...], found: Managers) -> Change:
    match found.chosen:
        case "netplan":
            return link_backends.netplan_change(settings, found.our_netplan)
        case "networkmanager":
            return link_backends.network_manager_change(settings, found.profiles, found.active)
        case "nixos":
            return link_backends.nixos_change(settings)
        case _:
            return link_backends.iproute_change(settings, found.up)


def apply(made: Change) -> None:
    """Apply a change; undo all of it where a step fails."""
    file = made.file
    note = {
        "what": "; ".join(str(command) for command in made.commands),
        "path": str(file.path) if file else None,
        "text": file.text if file else None,
        "old": file.old if file else None,
        "undo": [command.argv for command in made.undo],
    }
    storage.write(_notes(), json.dumps([note, *remembered()]), secret=True)
    try:
        _make(made)
    except BaseException as error:
        undo(force=True)
        if isinstance(error, OSError):
            raise _failed(in_words(error)) from error
        raise


def _make(made: Change) -> None:
    if made.file:
        storage.write(made.file.path, made.file.text, secret=True)
    for command in made.commands:
        ended = process.run(command, limit_s=_LIMIT_S)
        if ended.status:
            said = "\n".join(line for line in ended.lines if line.strip()) or f"it exited with {ended.status}"
            raise _failed(f"{command}\n{said}")


def _failed(cause: str) -> Problem:
    return Problem(
        "a step failed, so the change was undone",
        cause=cause,
        fix="fix that error, or use another program: --with ip",
    )


def undo(*, force: bool = False) -> str:
    """Undo the newest change, and return its commands."""
    notes = remembered()
    if not notes:
        raise Problem(
            "there is nothing to undo",
            cause=f"{_notes()} has no change of medley link setup",
            fix="ip -brief address  # shows the addresses; for changes made with sudo, use sudo",
        )
    newest, *older = notes
    path = Path(newest["path"]) if newest["path"] else None
    there = storage.read_text(path) if path else None
    if path and not force and there != newest["text"]:
        raise Problem(
            f"{path} was changed",
            cause="it differs from what medley wrote" if there is not None else "it was removed",
            fix="to restore it anyway: medley link setup --undo --force",
        )
    if path and newest["old"] is None:
        storage.remove_file(path)
    elif path:
        storage.write(path, newest["old"], secret=True)
    failed = [each for each in newest["undo"] if process.run(Command(tuple(each)), limit_s=_LIMIT_S).status]
    storage.write(_notes(), json.dumps(older), secret=True)
    if failed and not force:
        commands = "\n".join(str(Command(tuple(each))) for each in failed)
        raise Problem(
            "not everything could be undone",
            cause=f"{len(failed)} commands failed; after a reboot there may be nothing left to undo",
            fix=f"check with ip -brief address, and if needed run:\n{commands}",
        )
    return str(newest["what"])


def unsettled(settings: Iterable[Setting]) -> tuple[Setting, ...]:
    """Wait for the settings to hold; return those that do not."""
    wanted = tuple(settings)
    process.wait_until(lambda: not _left(wanted), _SETTLES_S, every_s=0.5)
    return _left(wanted)


def _left(wanted: tuple[Setting, ...]) -> tuple[Setting, ...]:
    found = network.net(process.ask(network.QUESTIONS))
    there = {(link.name, str(each.at), link.mtu) for link in found.links for each in link.addresses}
    return tuple(each for each in wanted if (each.interface, each.address, each.mtu) not in there)


class _Note(TypedDict):
    what: str
    path: str | None
    text: str | None
    old: str | None
    undo: list[list[str]]


def remembered() -> list[dict[str, Any]]:
    content = storage.read_bytes(_notes())
    if content is None:
        return []
    found = json_shape.loads(content)
    if json_shape.fits(found, list[_Note]):
        return list(found)
    raise Problem(
        "the record of changes to this host's links is damaged",
        cause=f"{_notes()} is incomplete, or another version of medley wrote it",
        fix=f"read it for what to undo by hand, then: mv {_notes()} {_notes()}.torn",
    )


def _notes() -> Path:
    return storage.state() / "links.json"
