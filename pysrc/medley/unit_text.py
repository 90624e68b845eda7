"""The text of a unit is the file that systemd reads: all that the command needs is in it, and no secret.

Quoting as in systemd.syntax(7) and systemd.service(5); versions from 245 (Ubuntu 20.04) on know every key but
RestartSteps and RestartMaxDelaySec, which those before 254 name in the journal and pass over.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from medley.command import Command
from medley.problem import Problem
from medley.unit import Restart, Unit

OPEN_FILES = 1_048_576
_PLAIN = re.compile(r"[\w@+=:,./-]+", re.ASCII)
_SECRET = re.compile(r"(?i)(token|key|secret|password|passwd|credentials?)$")
_ESCAPED = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t"}
_ESCAPES_OF_SPACE = {ord("\n"): None, ord("\t"): None}


@dataclass(frozen=True)
class Boot:
    """How it runs as a unit of the system, from the host's start on."""

    user: str
    before: tuple[str, ...] = ()
    """What is run first; that it fails is no matter."""
    after: tuple[str, ...] = ("network-online.target",)


def text(unit: Unit, boot: Boot | None = None) -> str:
    """Of a user's own unit, or of one of the system's; a Problem where a secret would stand in it."""
    if unit.command.secrets or (unit.after and unit.after.secrets):
        raise AssertionError(unit.name)  # whoever makes it gives the file, and not what is in it
    _require_no_secret(unit.command.env)
    parts = {
        "Unit": _unit(unit, boot),
        "Service": (*_run_as(boot), *_processes(unit, boot), *_restart(unit.restart), *_limits(unit)),
        "Install": (f"WantedBy={'multi-user' if boot else 'default'}.target",),
    }
    return "\n".join("\n".join((f"[{name}]", *lines, "")) for name, lines in parts.items())


def _require_no_secret(env: Mapping[str, str]) -> None:
    for name in env:
        if _SECRET.search(name):
            raise Problem(
                f"{name} would stand in a file that others may read",
                cause="a unit has all its variables in it",
                fix=f"unset {name}; the hub's token is better kept by: hf auth login",
            )


def _unit(unit: Unit, boot: Boot | None) -> Iterator[str]:
    yield f"Description={_line(unit.title).replace('%', '%%')}"
    if boot:
        yield f"Wants={' '.join(each for each in boot.after if each.endswith('.target'))}"
        yield f"After={' '.join(boot.after)}"
    if unit.restart:
        yield from _start_limit(unit.restart)


def _start_limit(rule: Restart) -> Iterator[str]:
    """Given up after so many starts in the time that they take at most where none of them lasts."""
    if rule.limit is None:
        yield "StartLimitIntervalSec=0"
        return
    waits_s = sum(rule.waits_s(done) for done in range(rule.limit))
    yield f"StartLimitIntervalSec={math.ceil(waits_s + rule.limit * rule.lasting_s)}"
    yield f"StartLimitBurst={rule.limit + 1}"


def _run_as(boot: Boot | None) -> Iterator[str]:
    if boot:
        yield f"User={boot.user}"
        yield "WorkingDirectory=~"


def _processes(unit: Unit, boot: Boot | None) -> Iterator[str]:
    command = unit.command
    yield "Type=exec"
    for name, value in sorted(command.env.items()):
        yield f"Environment={quoted(f'{name}={value}', variables='kept')}"
    if command.unset:
        yield f"UnsetEnvironment={' '.join(command.unset)}"
    if boot and boot.before:
        yield f"ExecStartPre=-{_argv(boot.before)}"
    yield f"ExecStart={_argv(command.argv)}"
    if unit.after:
        yield f"ExecStartPost=-{_argv(_with_variables(unit.after))}"
    if command.undo:
        yield f"ExecStopPost=-{_argv(command.undo)}"


def _with_variables(command: Command) -> tuple[str, ...]:
    """Its variables and no other's; those of a unit are for all that it runs."""
    away = (word for name in command.unset for word in ("-u", name))
    given = (f"{name}={value}" for name, value in sorted(command.env.items()))
    return ("/usr/bin/env", *away, *given, *command.argv) if command.env or command.unset else command.argv


def _restart(rule: Restart | None) -> Iterator[str]:
    yield f"Restart={'always' if rule else 'no'}"
    yield "SuccessExitStatus=130 143"  # medley's own for Ctrl-C and SIGTERM
    if rule:
        yield f"RestartSec={rule.first_s:g}"
        doublings = (
            math.ceil(math.log2(rule.longest_s / rule.first_s)) if rule.longest_s > rule.first_s else 0
        )
        if doublings:
            yield f"RestartSteps={doublings}"
            yield f"RestartMaxDelaySec={rule.longest_s:g}"


def _limits(unit: Unit) -> Iterator[str]:
    # The rest of a family gets no word of its own: medley ends its engine, Ray its workers.
    yield "KillMode=mixed"
    yield "TimeoutStartSec=infinity"  # an environment may have to be built, a cluster to come together
    yield f"TimeoutStopSec={unit.stop_limit_s:g}"
    yield "LimitMEMLOCK=infinity"  # RDMA pins memory
    yield f"LimitNOFILE={OPEN_FILES}"


def _argv(argv: tuple[str, ...]) -> str:
    program, *words = argv
    if not program.startswith("/"):
        raise AssertionError(program)  # a unit has a PATH of its own
    return " ".join([quoted(program, variables="kept"), *(quoted(each) for each in words)])


def quoted(word: str, *, variables: Literal["named", "kept"] = "named") -> str:
    """One word that systemd reads as this one; `kept`: where it leaves $ alone, as in Environment=."""
    _line(word.translate(_ESCAPES_OF_SPACE))
    doubled = word.replace("%", "%%")
    if variables == "named":
        doubled = doubled.replace("$", "$$")
    if _PLAIN.fullmatch(word):
        return doubled
    return '"' + "".join(_ESCAPED.get(each, each) for each in doubled) + '"'


def _line(text: str) -> str:
    """The same, with nothing in it that systemd would not take."""
    bad = next((each for each in text if not _fits(ord(each))), None)
    if bad is not None:
        raise Problem(
            f"{text!r} cannot stand in a unit", cause=f"it has the character {bad!r}", fix="leave that out"
        )
    return text


def _fits(code: int) -> bool:
    """As its string_has_cc and unichar_is_valid have it."""
    no_character = 0xFDD0 <= code <= 0xFDEF or code & 0xFFFE == 0xFFFE  # noqa: PLR2004 - Unicode's own
    return code >= ord(" ") and code != ord("\x7f") and not 0xD800 <= code <= 0xDFFF and not no_character  # noqa: PLR2004 - surrogates
