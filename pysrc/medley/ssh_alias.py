"""An alias is a short name that ssh config gives an address; medley's own stand in one marked block."""

import re
from collections.abc import Mapping

from medley import ssh_config
from medley.mention import is_plain, parts
from medley.problem import Problem

_BEGIN = "# medley: begin"
_END = "# medley: end"
_ABOUT = f"{_BEGIN} (from `medley init --keys`, which replaces what stands in here)"
_BLOCK = re.compile(rf"^{_BEGIN}\b.*?^{_END}[^\n]*\n?", re.MULTILINE | re.DOTALL)


def with_aliases(text: str, targets: Mapping[str, str]) -> str:
    """The config with these, by name what ssh is told; what the user's own part names is left to that."""
    own, block = _BLOCK.sub("", text), "".join(_BLOCK.findall(text))
    if _BEGIN in own or _END in own:
        raise Problem(
            "the ssh config has half of medley's block",
            cause=f"a line {_BEGIN!r} or {_END!r} is without the other",
            fix="remove what is left of the block from ~/.ssh/config",
        )
    named = {each.name for each in ssh_config.mentions(own, "", lambda _: ())}
    stanzas = _stanzas(block) | {
        name: _stanza(name, target)
        for name, target in targets.items()
        if name not in named and is_plain(name)
    }
    if not stanzas or stanzas == _stanzas(block):
        return text
    made = "\n".join((_ABOUT, *stanzas.values(), _END)) + "\n"
    found = _BLOCK.search(text)
    if found:  # where it was: the first value that ssh finds holds
        return text[: found.start()] + made + _BLOCK.sub("", text[found.start() :])
    gap = "" if not own else "\n" if own.endswith("\n") else "\n\n"
    return own + gap + made


def _stanza(name: str, target: str) -> str:
    user, host, port = parts(target)
    more = [f"    User {user}"] if user else []
    more += [f"    Port {port}"] if port else []
    return "\n".join((f"Host {name}", f"    HostName {host}", *more))


def _stanzas(block: str) -> dict[str, str]:
    """Those of a block, by name, as they are."""
    lines = [line for line in block.splitlines() if line.strip() and not line.startswith("#")]
    found: dict[str, list[str]] = {}
    name = ""
    for line in lines:
        if line.startswith("Host "):
            name = line.removeprefix("Host ").strip()
        found.setdefault(name, []).append(line.rstrip())
    return {each: "\n".join(text) for each, text in found.items() if each}
