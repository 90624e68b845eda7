"""Applying makes a change so, and remembers how to take it back: the newest first."""

import json
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypedDict

from medley import facts, family, machine, shaped, store
from medley.command import Command
from medley.link import iproute, managers, netplan, network_manager, nixos
from medley.link.change import Change
from medley.link.managers import Managers
from medley.link.settings import Setting
from medley.problem import Problem, in_words

_LIMIT_S = 60
_SETTLES_S = 10


def sessions() -> dict[str, str]:
    """Where those who are logged in by ssh come from, by the address and the interface at this end.

    By every process, since sudo takes SSH_CONNECTION away from its own.
    """
    said = {env.get("SSH_CONNECTION", "") for env in family.environments().values()}
    found = [words for each in said if len(words := each.split()) == 4]  # noqa: PLR2004 - both ends' address, port
    questions = {f"ip -json route get {client}": client for client, *_ in found if _is_plain(client)}
    answers = machine.ask(questions) if questions else {}
    by_interface = {_interface(answers[each].text): client for each, client in questions.items()}
    # A link-local address of IPv6 names the interface itself.
    by_interface |= {client.partition("%")[2]: client for client, *_ in found if "%" in client}
    return {**{server: client for client, _, server, _ in found}, **by_interface}


def _is_plain(address: str) -> bool:
    return address.replace(".", "").replace(":", "").isalnum()


def _interface(route_json: str) -> str:
    try:
        return str(json.loads(route_json)[0]["dev"])
    except (ValueError, LookupError, TypeError):
        return ""


def change(settings: tuple[Setting, ...], found: Managers) -> Change:
    match found.chosen:
        case "netplan":
            return netplan.change(settings, found.our_netplan)
        case "networkmanager":
            return network_manager.change(settings, found.profiles, found.active)
        case "nixos":
            return nixos.change(settings)
        case _:
            return iproute.change(settings, found.up)


def managed(named: str | None) -> Managers:
    return managers.managers(machine.ask(managers.QUESTIONS), named)


def apply(made: Change) -> None:
    """Make it so; where a step fails, everything is as it was."""
    _remember(made)
    try:
        _make(made)
    except OSError as error:
        undo(force=True)
        raise _failed(in_words(error)) from error
    except BaseException:
        undo(force=True)
        raise


def _make(made: Change) -> None:
    if made.file:
        store.write(made.file.path, made.file.text, secret=True)
    for command in made.commands:
        ended = machine.run(command, limit_s=_LIMIT_S)
        if ended.status:
            said = "\n".join(line for line in ended.lines if line.strip()) or f"it ended with {ended.status}"
            raise _failed(f"{command}\n{said}")


def _failed(cause: str) -> Problem:
    return Problem(
        "a step failed, so the links are as they were",
        cause=cause,
        fix="mend what it says, or try another way: --with ip",
    )


def undo(*, force: bool = False) -> str:
    """Take the newest change back, and say what it was."""
    notes = remembered()
    if not notes:
        raise Problem(
            "there is nothing to undo",
            cause=f"{_notes()} has no change of medley link setup",
            fix="ip -brief address shows what there is; root has notes of its own: sudo",
        )
    newest, *older = notes
    path = Path(newest["path"]) if newest["path"] else None
    if path and not force:
        _require_ours(path, newest["text"])
    if path and newest["old"] is None:
        path.unlink(missing_ok=True)
    elif path:
        store.write(path, newest["old"], secret=True)
    failed = [each for each in newest["undo"] if machine.run(Command(tuple(each)), limit_s=_LIMIT_S).status]
    store.write(_notes(), json.dumps(older), secret=True)
    if failed and not force:
        raise _half_undone(failed)
    return str(newest["what"])


def _require_ours(path: Path, text: str) -> None:
    there = path.read_text(encoding="utf-8") if path.exists() else None
    if there != text:
        raise Problem(
            f"{path} is not as medley wrote it",
            cause="somebody has changed it since" if there is not None else "somebody has removed it",
            fix="to have it as it was before medley all the same: medley link setup --undo --force",
        )


def _half_undone(failed: Sequence[Sequence[str]]) -> Problem:
    commands = "\n".join(str(Command(tuple(each))) for each in failed)
    return Problem(
        "not everything could be taken back",
        cause=f"{len(failed)} commands failed; after a restart of the host there may be nothing left to undo",
        fix=f"look (ip -brief address), and where it is needed run:\n{commands}",
    )


def unsettled(settings: Iterable[Setting]) -> tuple[Setting, ...]:
    """What is not as it should be, when it has had its time."""
    deadline = time.monotonic() + _SETTLES_S
    wanted = tuple(settings)
    while (left := _left(wanted)) and time.monotonic() < deadline:
        time.sleep(0.5)
    return left


def _left(wanted: tuple[Setting, ...]) -> tuple[Setting, ...]:
    net = facts.net.net(machine.ask(facts.net.QUESTIONS))
    there = {
        (link.name, f"{each.ip}/{each.prefix}", link.mtu) for link in net.links for each in link.addresses
    }
    return tuple(each for each in wanted if (each.interface, each.address, each.mtu) not in there)


def _remember(made: Change) -> None:
    file = made.file
    note = {
        "what": "; ".join(str(command) for command in made.commands),
        "path": str(file.path) if file else None,
        "text": file.text if file else None,
        "old": file.old if file else None,
        "undo": [command.argv for command in made.undo],
    }
    store.write(_notes(), json.dumps([note, *remembered()]), secret=True)


class _Note(TypedDict):
    """A change, as it is kept."""

    what: str
    path: str | None
    text: str | None
    old: str | None
    undo: list[list[str]]


def remembered() -> list[dict[str, Any]]:
    if not _notes().exists():
        return []
    found = shaped.loads(_notes().read_bytes())
    if shaped.fits(found, list[_Note]):
        return list(found)
    raise Problem(
        "the note of what was changed on this host's links is not whole",
        cause=f"{_notes()} is torn, or another medley wrote it",
        fix=f"see in it what there is to undo, then: mv {_notes()} {_notes()}.torn",
    )


def _notes() -> Path:
    return store.state() / "links.json"
