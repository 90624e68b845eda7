"""Fit a fix to its log: leave out what is set or was tried, and name the host's package manager."""

import re
from collections.abc import Sequence

from medley.explain.flags import read_flags
from medley.explain.tried_steps import leave_out_tried

_MEDLEY_FLAGS = {
    "--kv-type": ("--kv-cache-dtype",),
    "--tp": ("--tensor-parallel-size", "--tp-size", "--tp"),
    "--pp": ("--pipeline-parallel-size", "--pp-size", "--pp"),
    "--context": ("--max-model-len", "--context-length"),
}
"""Flags of medley, with those of the engines that they set."""
_CLAUSE_END = re.compile(r"(; (?:or |else )?(?:: )?)")
_FLAG = re.compile(r"(?<![\w-])(--[a-z][a-z0-9-]{1,60})[ =]([\w.:/+-]{1,80})(?!,? or |, \w)")
_COMMAND = "medley serve MODEL -- "
_SWITCH = re.compile(r"(?<![\w-])(--[a-z][a-z0-9-]{1,60})(?=[;,.)]|$| \()")
"""A flag without a value, at the end of a command or of its part."""
_VARIABLE = re.compile(r"(?<![\w$])([A-Z][A-Z0-9_]{3,60})=([\w.:/+-]{1,80})(?!,? or )")
_LESS = re.compile(
    r"(?i)\b(?:without|leave|left|drop|remove|unset|instead of|another|other|not|never|sets?|change|replace|"
    r"lower|higher|keep|with|than)\b"
)
"""Words of a clause that may speak against the setting that it names."""
_PACKAGES = re.compile(
    r"sudo apt(?:-get)? install(?: --?[\w-]+)*(?P<names>(?: (?!and\b|or\b|in\b)[a-z0-9][\w.+-]*)+)"
)
_INSTALLERS = {
    "pacman": "sudo pacman -S",
    "dnf": "sudo dnf install",
    "yum": "sudo yum install",
    "zypper": "sudo zypper install",
    "xbps": "sudo xbps-install",
    "apk": "sudo apk add",
    "emerge": "sudo emerge",
}


def fit_fix(fix: str, settings: str, manager: str | None, tried: Sequence[str] = ()) -> str:
    """Return a fix for a log with these settings, of a host with this package manager.

    `tried`: sentences of the log's owner about what did not help.
    """
    return _name_installer(leave_out_tried(_drop_settings_in_effect(fix, settings), tried), manager)


def _drop_settings_in_effect(fix: str, settings: str) -> str:
    """Leave out clauses that set what the log sets already; return the whole fix if nothing else remains."""
    if not settings:
        return fix
    lines = (_drop_clauses(line, settings) for line in fix.split("\n"))
    return "\n".join(filter(None, lines)) or fix


def _drop_clauses(line: str, settings: str) -> str:
    first, *rest = _CLAUSE_END.split(line)
    clauses = [("", first), *zip(rest[::2], rest[1::2], strict=True)]
    remaining = [clause for clause in clauses if not _is_in_effect(clause[1], settings)]
    return "".join(f"{'' if index == 0 else stop}{clause}" for index, (stop, clause) in enumerate(remaining))


def _is_in_effect(clause: str, settings: str) -> bool:
    pairs = [*_FLAG.finditer(clause), *_VARIABLE.finditer(clause)]
    command = clause.partition(_COMMAND)[2]
    switches = _SWITCH.findall(command)
    if any(not read_flags(settings, (switch,)) for switch in switches):
        return False
    if switches and not pairs:
        return not _LESS.search(command)
    return bool(pairs) and all(
        not _LESS.search(clause[max(0, pair.start() - 40) : pair.start()])
        and _has_setting(pair[1], pair[2], settings)
        for pair in pairs
    )


def _has_setting(name: str, value: str, settings: str) -> bool:
    if not name.startswith("--"):
        return bool(re.search(rf"(?<!\w){name}(?:=| set by environment to ){re.escape(value)}\b", settings))
    names = _MEDLEY_FLAGS.get(name, (name,))
    values = (flag.rpartition(" ")[2].lower() for flag in read_flags(settings, names).values())
    return any(each == value or (value == "fp8" and each.startswith("fp8_")) for each in values)


def _name_installer(fix: str, manager: str | None) -> str:
    """Replace the command of Debian and Ubuntu by that of the log's own package manager."""
    if manager is None:
        return fix
    installer = _INSTALLERS.get(manager)

    def replace_command(match: re.Match[str]) -> str:
        if installer is None:
            return f"add to the packages of the system:{match['names']} (their names may differ)"
        return f"{installer}{match['names']} (their names may differ)"

    return _PACKAGES.sub(replace_command, fix)
