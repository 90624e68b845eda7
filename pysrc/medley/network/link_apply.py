"""Find the program that manages this host's addresses; apply, record and undo a change."""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Literal, TypedDict, assert_never

from msgspec import field

from medley import json_shape, process, process_identity, storage
from medley.command import Command
from medley.errors import Problem, describe_error
from medley.host.facts import network
from medley.host.facts.system import MARKS_QUESTION
from medley.network import link_backends
from medley.network.link_backends import Change
from medley.network.link_setup import LinkSetting
from medley.transcript import NO_ANSWER, Transcript, read_first_line, read_lines
from medley.values import Value

PROGRAMS_QUESTION = "for p in netplan nmcli; do command -v $p; done"
NETPLANS_QUESTION = "ls /etc/netplan/*.yaml"
MEDLEY_NETPLAN_QUESTION = f"cat {link_backends.NETPLAN_PATH}"
NETWORK_MANAGER_QUESTION = "nmcli -t -f RUNNING general"
ACTIVE_CONNECTIONS_QUESTION = "nmcli -t -f UUID,DEVICE connection show --active"
MEDLEY_PROFILES_QUESTION = (
    "nmcli -g NAME connection show | grep '^medley-' | while read -r n; do"
    ' echo "$n $(nmcli -g ipv4.addresses,802-3-ethernet.mtu connection show "$n" | tr "\\n" " ")"; done'
)
UP_LINKS_QUESTION = "ip -brief link show up"
_CONNECTION_WORDS = 4
"""The words of SSH_CONNECTION: the address and port of the client, then of the server."""
_COMMAND_LIMIT_S = 60
_SETTLE_LIMIT_S = 10
MANAGER_QUESTIONS = (
    MARKS_QUESTION,
    PROGRAMS_QUESTION,
    NETPLANS_QUESTION,
    MEDLEY_NETPLAN_QUESTION,
    NETWORK_MANAGER_QUESTION,
    ACTIVE_CONNECTIONS_QUESTION,
    MEDLEY_PROFILES_QUESTION,
    UP_LINKS_QUESTION,
)

AddressProgram = Literal["netplan", "networkmanager", "nixos", "ip"]


class ChangeRecord(TypedDict):
    """A change as the state folder keeps it: its commands as text, and what undoes it."""

    what: str
    path: str | None
    text: str | None
    old: str | None
    undo: list[list[str]]


class AddressManager(Value):
    """The program that manages this host's addresses, and its state."""

    program: AddressProgram = "ip"
    why: str = ""
    medley_netplan: str | None = None
    """The text of medley's file in /etc/netplan; None without one."""
    is_netplan_readable: bool = True
    """Whether this user may read that file."""
    profiles: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """The address and MTU of medley's connections in NetworkManager, by interface."""
    active: Mapping[str, str] = field(default_factory=dict)
    """The UUID of each interface's connection in NetworkManager."""
    up: frozenset[str] = frozenset()
    """The links that are administratively up."""


def find_address_manager(answers: Transcript, wanted_program: AddressProgram | None = None) -> AddressManager:
    """Read the answers to MANAGER_QUESTIONS; `wanted_program` is the program of --with.

    Raise a Problem if that program does not manage addresses here.
    """
    usable, why = _list_usable_programs(answers)
    if wanted_program is not None and wanted_program not in usable:
        raise Problem(
            f"{wanted_program} does not manage this host's addresses",
            cause=f"found: {', '.join(sorted(usable))}; {why}",
            fix=f"leave --with out, or: --with {min(usable)}",
        )
    netplan = answers.get(MEDLEY_NETPLAN_QUESTION, NO_ANSWER)
    profiles = (
        re.fullmatch(r"medley-(\S+) (\S+) (\S+) *", line)
        for line in read_lines(answers, MEDLEY_PROFILES_QUESTION)
    )
    has_netplan = str(link_backends.NETPLAN_PATH) in read_lines(answers, NETPLANS_QUESTION)
    return AddressManager(
        program=wanted_program or usable[0],
        why="named with --with" if wanted_program else why,
        medley_netplan=netplan.text if has_netplan and not netplan.status else None,
        is_netplan_readable=not (has_netplan and netplan.status),
        profiles={match[1]: (match[2], match[3]) for match in profiles if match},
        active={
            device: uuid
            for uuid, _, device in (
                line.partition(":") for line in read_lines(answers, ACTIVE_CONNECTIONS_QUESTION)
            )
        },
        up=frozenset(line.split()[0].partition("@")[0] for line in read_lines(answers, UP_LINKS_QUESTION)),
    )


def _list_usable_programs(answers: Transcript) -> tuple[tuple[AddressProgram, ...], str]:
    if "/etc/NIXOS" in read_lines(answers, MARKS_QUESTION):
        # On NixOS the configuration starts every other program.
        return ("nixos", "ip"), "NixOS, whose configuration sets addresses"
    programs = {PurePosixPath(path).name for path in read_lines(answers, PROGRAMS_QUESTION)}
    usable: list[AddressProgram] = ["ip"]
    why = "neither netplan nor NetworkManager runs here"
    if "nmcli" in programs and read_first_line(answers, NETWORK_MANAGER_QUESTION) == "running":
        usable, why = ["networkmanager", *usable], "NetworkManager runs, and /etc/netplan has no file"
    if "netplan" in programs and read_lines(answers, NETPLANS_QUESTION):
        usable, why = ["netplan", *usable], "/etc/netplan has files"
    return tuple(usable), why


def map_ssh_sessions() -> dict[str, str]:
    """Return the client of each open ssh session, by this host's address and by its interface.

    It reads the environment of every process, because sudo by default removes SSH_CONNECTION.
    """
    environments = process_identity.read_environments().values()
    values = {environment.get("SSH_CONNECTION", "") for environment in environments}
    connections = [words for value in values if len(words := value.split()) == _CONNECTION_WORDS]
    plain = (client for client, *_ in connections if client.replace(".", "").replace(":", "").isalnum())
    questions = {f"ip -json route get {client}": client for client in plain}
    answers = process.ask_host(questions) if questions else {}
    by_interface = {
        _parse_interface(answers[question].text): client for question, client in questions.items()
    }
    # A link-local address of IPv6 names the interface itself.
    by_interface |= {client.partition("%")[2]: client for client, *_ in connections if "%" in client}
    return {**{server: client for client, _, server, _ in connections}, **by_interface}


def _parse_interface(route_json: str) -> str:
    try:
        return str(json.loads(route_json)[0]["dev"])
    except (ValueError, LookupError, TypeError):
        return ""


def build_change(settings: tuple[LinkSetting, ...], manager: AddressManager) -> Change:
    """Return the change that makes these settings, for the program that manages this host's addresses."""
    match manager.program:
        case "netplan":
            return link_backends.build_netplan_change(settings, manager.medley_netplan)
        case "networkmanager":
            return link_backends.build_network_manager_change(settings, manager.profiles, manager.active)
        case "nixos":
            return link_backends.build_nixos_change(settings)
        case "ip":
            return link_backends.build_iproute_change(settings, manager.up)
        case _:
            assert_never(manager.program)


def apply_change(change: Change) -> None:
    """Apply a change; undo all of it where a step fails."""
    file = change.file
    record: ChangeRecord = {
        "what": "; ".join(str(command) for command in change.commands),
        "path": str(file.path) if file else None,
        "text": file.text if file else None,
        "old": file.old_text if file else None,
        "undo": [list(command.argv) for command in change.undo],
    }
    storage.write_text(_get_record_path(), json.dumps([record, *load_records()]), secret=True)
    cause: str | None = "the change was interrupted"
    failed_undo: list[Command] = []
    try:
        cause = _run_change(change)
    except OSError as error:
        cause = describe_error(error)
    finally:
        if cause is not None:
            failed_undo = _undo_newest_change()
    if cause is not None:
        raise _build_failed_step_problem(cause, failed_undo)


def _run_change(change: Change) -> str | None:
    """Run the steps up to one that fails; return that step with its output, or None if all ran."""
    if change.file:
        storage.write_text(change.file.path, change.file.text, secret=True)
    for command in change.commands:
        result = process.run(command, limit_s=_COMMAND_LIMIT_S)
        if result.status:
            output = "\n".join(line for line in result.lines if line.strip())
            return f"{command}\n{output or f'it exited with {result.status}'}"
    return None


def _build_failed_step_problem(cause: str, failed_undo: list[Command]) -> Problem:
    if failed_undo:
        return Problem(
            f"a step failed, and then {len(failed_undo)} of the commands that undo the change",
            cause=f"{cause}\nA command that undoes a step fails also where that step had not run",
            fix=_format_undo_fix(failed_undo),
        )
    return Problem(
        "a step failed, so the change was undone",
        cause=cause,
        fix="fix that error, or use another program: --with ip",
    )


def undo_change(*, force: bool = False) -> str:
    """Undo the newest change, and return its commands as text.

    Unless forced, raise a Problem: without a change if its file was edited since, or later if commands fail.
    """
    records = load_records()
    if not records:
        raise Problem(
            "there is nothing to undo",
            cause=f"{_get_record_path()} has no change of medley link setup",
            fix="ip -brief address  # shows the addresses; for changes made with sudo, use sudo",
        )
    newest = records[0]
    path = Path(newest["path"]) if newest["path"] else None
    text = storage.read_text(path) if path else None
    if path and not force and text != newest["text"]:
        raise Problem(
            f"{path} was changed",
            cause="it differs from what medley wrote" if text is not None else "it was removed",
            fix="to restore it anyway: medley link setup --undo --force",
        )
    failed = _undo_newest_change()
    if failed and not force:
        raise Problem(
            "not everything could be undone",
            cause=f"{len(failed)} commands failed; after a reboot there may be nothing left to undo",
            fix=_format_undo_fix(failed),
        )
    return str(newest["what"])


def _undo_newest_change() -> list[Command]:
    """Restore the file of the newest change and run its undo commands; return those that failed."""
    newest, *older = load_records()
    path, old_text = newest["path"], newest["old"]
    if path and old_text is not None:
        storage.write_text(Path(path), old_text, secret=True)
    elif path:
        storage.remove_file(Path(path))
    commands = [Command(tuple(argv)) for argv in newest["undo"]]
    failed = [command for command in commands if process.run(command, limit_s=_COMMAND_LIMIT_S).status]
    storage.write_text(_get_record_path(), json.dumps(older), secret=True)
    return failed


def _format_undo_fix(failed: list[Command]) -> str:
    commands = "\n".join(map(str, failed))
    return f"check with ip -brief address, and if needed run:\n{commands}"


def wait_for_settings(settings: Iterable[LinkSetting]) -> tuple[LinkSetting, ...]:
    """Wait up to 10 s for the settings to hold; return those that do not."""
    expected = tuple(settings)
    process.wait_until(lambda: not _list_missing_settings(expected), _SETTLE_LIMIT_S, every_s=0.5)
    return _list_missing_settings(expected)


def _list_missing_settings(settings: tuple[LinkSetting, ...]) -> tuple[LinkSetting, ...]:
    """Return the settings that this host does not have now."""
    net = network.read_net(process.ask_host(network.QUESTIONS))
    current = {(link.name, str(address.cidr), link.mtu) for link in net.links for address in link.addresses}
    return tuple(
        setting for setting in settings if (setting.interface, setting.address, setting.mtu) not in current
    )


def load_records() -> list[ChangeRecord]:
    """Return the records of changes, the newest first; raise a Problem if their file is damaged."""
    content = storage.read_bytes(_get_record_path())
    if content is None:
        return []
    records = json_shape.parse_json(content)
    if json_shape.has_type(records, list[ChangeRecord]):
        return list(records)
    raise Problem(
        "the record of changes to this host's links is damaged",
        cause=f"{_get_record_path()} is incomplete, or another version of medley wrote it",
        fix=f"read it for what to undo by hand, then: mv {_get_record_path()} {_get_record_path()}.torn",
    )


def _get_record_path() -> Path:
    return storage.find_state_folder() / "links.json"
