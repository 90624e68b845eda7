"""Define `Unit`, and format it as a unit file of systemd; `restart_rule.py` has its rule of restarts.

Quoting as in systemd.syntax(7) and systemd.service(5); systemd 245 (Ubuntu 20.04) and later support every
key but RestartSteps and RestartMaxDelaySec, which versions before 254 ignore.
"""

import math
import re
from collections.abc import Iterator
from typing import Literal

from msgspec import field

from medley.cluster.restart_rule import Restart
from medley.command import Command
from medley.errors import Problem
from medley.values import Value

STOP_LIMIT_S = 30
"""The default of a unit's time to stop, in seconds; also that of a unit whose file is damaged."""
SERVER_UNIT_PREFIX = "medley-serve-"
"""The name of a detached server's unit, without its port."""
OPEN_FILES = 1_048_576
_PROTECTION = (
    "OOMScoreAdjust=-500",  # only root may: medley outlives its engine, which raises its own score to 500
    "MemoryMin=64M",  # the supervisor's own pages are not reclaimed, so that it can act while others stall
)
_PLAIN_WORD_PATTERN = re.compile(r"[\w@+=:,./-]+", re.ASCII)
_FORBIDDEN_CHARS_PATTERN = re.compile(
    r"[\x00-\x1f\x7f\ud800-\udfff\ufdd0-\ufdef"
    + "".join(f"{chr(plane + 0xFFFE)}{chr(plane + 0xFFFF)}" for plane in range(0, 0x11_0000, 0x1_0000))
    + "]"
)
"""Control characters, surrogates, noncharacters, as in systemd's string_has_cc and unichar_is_valid."""
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t"}


class Unit(Value):
    name: str
    """`medley-ray`, `medley-serve-8000`: a file's name, and systemd's."""
    title: str
    command: Command
    restart: Restart | None = None
    start_hook: Command | None = field(default=None, name="after")
    """A command to run after each start; it waits by itself until the unit is up. Its JSON key is `after`."""
    stop_limit_s: float = STOP_LIMIT_S
    vital: tuple[str, ...] = ()
    """Names of child processes; the unit ends when one of them does."""


class BootOptions(Value):
    user: str
    before: tuple[str, ...] = ()
    """A command to run first; its failure is ignored."""
    after: tuple[str, ...] = ("network-online.target",)


def format_unit(unit: Unit, boot_options: BootOptions | None = None) -> str:
    """Return the file of a user's own unit, or of one of the system's; refuse to put a secret in it."""
    command, rule = unit.command, unit.restart
    if (
        command.secrets
        or command.unset
        or command.undo
        or unit.start_hook
        or (rule and rule.limit is not None)
    ):
        # Only medley's own supervisor supports these; a secret is passed as the name of its file.
        raise AssertionError(unit.name)
    # Its patterns cost a plan 40 ms, and a plan writes no unit.
    from medley.cluster import unit_secrets  # noqa: PLC0415 - see above

    unit_secrets.require_no_secret_name(command)
    if boot_options:
        unit_secrets.require_no_secret(command)
    wanted_targets = (
        " ".join(target for target in boot_options.after if target.endswith(".target"))
        if boot_options
        else ""
    )
    variables = (
        quote_word(f"{name}={value}", variables="literal") for name, value in sorted(command.env.items())
    )
    sections = {
        "Unit": (
            f"Description={_require_line(unit.title).replace('%', '%%')}",
            *((f"Wants={wanted_targets}", f"After={' '.join(boot_options.after)}") if boot_options else ()),
            *(("StartLimitIntervalSec=0",) if rule else ()),
        ),
        "Service": (
            *((f"User={boot_options.user}", "WorkingDirectory=~") if boot_options else ()),
            "Type=exec",
            *(f"Environment={assignment}" for assignment in variables),
            *(
                [f"ExecStartPre=-{_format_argv(boot_options.before)}"]
                if boot_options and boot_options.before
                else ()
            ),
            f"ExecStart={_format_argv(command.argv)}",
            *_list_restart_lines(rule),
            # Only medley and Ray get the signal: they end their own engine and workers.
            "KillMode=mixed",
            "TimeoutStartSec=infinity",  # it may build an environment, or wait for a cluster
            f"TimeoutStopSec={unit.stop_limit_s:g}",
            "LimitMEMLOCK=infinity",  # RDMA pins memory
            f"LimitNOFILE={OPEN_FILES}",
            "OOMPolicy=continue",  # medley ends what is left, says why, and starts it again
            *(_PROTECTION if boot_options else ()),
        ),
        "Install": (f"WantedBy={'multi-user' if boot_options else 'default'}.target",),
    }
    return "\n".join("\n".join((f"[{name}]", *lines, "")) for name, lines in sections.items())


def _list_restart_lines(rule: Restart | None) -> Iterator[str]:
    yield f"Restart={'always' if rule else 'no'}"
    yield "SuccessExitStatus=130 143"  # medley's own for Ctrl-C and SIGTERM
    if rule:
        yield f"RestartSec={rule.first_s:g}"
        if rule.longest_s > rule.first_s:
            yield f"RestartSteps={math.ceil(math.log2(rule.longest_s / rule.first_s))}"
            yield f"RestartMaxDelaySec={rule.longest_s:g}"


def _format_argv(argv: tuple[str, ...]) -> str:
    program, *words = argv
    if not program.startswith("/"):
        raise AssertionError(program)  # a unit has its own PATH
    return " ".join([quote_word(program, variables="literal"), *(quote_word(word) for word in words)])


def quote_word(word: str, *, variables: Literal["expanded", "literal"] = "expanded") -> str:
    """Return a word quoted for systemd; `literal`: where $ has no meaning, as in Environment=."""
    _require_line(word.replace("\n", "").replace("\t", ""))
    doubled = word.replace("%", "%%")
    if variables == "expanded":
        doubled = doubled.replace("$", "$$")
    if _PLAIN_WORD_PATTERN.fullmatch(word):
        return doubled
    return '"' + "".join(_ESCAPES.get(letter, letter) for letter in doubled) + '"'


def _require_line(text: str) -> str:
    if bad := _FORBIDDEN_CHARS_PATTERN.search(text):
        raise Problem(
            f"{text!r} cannot be in a unit",
            cause=f"it has the character {bad[0]!r}",
            fix="remove it",
        )
    return text
