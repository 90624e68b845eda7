"""Keeping is what medley has on a host from before: secrets, a part in a cluster, environments."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from medley.facts.answers import lines, number
from medley.transcript import NO_ANSWER, Transcript

_STATE = '"${MEDLEY_STATE:-${XDG_STATE_HOME:-$HOME/.local/state}/medley}"'
SECRETS = f"cd {_STATE} && stat -c '%a %n' token api-key sglang-*.yaml 2>/dev/null; :"
MEMBERSHIP = f'cd {_STATE} && grep -ohE \'"(role|head|address|interface)": "[^"]*"\' ray.json'
# The ports of servers whose process is still there.
SERVING = (
    f"cd {_STATE}/serving && for f in *.json; do"
    ' p=$(grep -oE "\\"pid\\": [0-9]+" "$f" | grep -oE "[0-9]+");'
    ' [ -n "$p" ] && [ -d "/proc/$p" ] && echo "${f%.json}"; done'
)
# Of each environment the versions that hosts must have alike, by the names of its packages.
PACKAGES = (
    'cd "${MEDLEY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/medley}/envs"'
    " && ls -d */lib/python3*/site-packages/*.dist-info"
    " | grep -E '/(ray|vllm|sglang|torch|nvidia_nccl_cu[0-9]+|triton)-[^/]*$'"
)
# A virtualenv of the user's own, which cluster.toml names.
OWN = (
    '[ -n "$MEDLEY_OWN_ENV" ] && cd "$MEDLEY_OWN_ENV" && ls -d bin/python bin/ray bin/vllm'
    " lib/python3*/site-packages/*.dist-info 2>/dev/null"
    " | grep -E '^bin|/(ray|vllm|sglang|torch|nvidia_nccl_cu[0-9]+|triton)-[^/]*$'"
)
OWN_VARIABLE = "MEDLEY_OWN_ENV"

QUESTIONS = (SECRETS, MEMBERSHIP, SERVING, PACKAGES, OWN)

_PACKAGE = re.compile(r"(?:([^/]+)/)?lib/python([0-9.]+)/site-packages/(\w+?)-([^-/]+)\.dist-info")


@dataclass(frozen=True)
class Keeping:
    modes: Mapping[str, str] = field(default_factory=dict)
    """Of files that hold a secret, by name."""
    membership: Mapping[str, str] = field(default_factory=dict)
    """`role`, `head`, `address` and `interface` of its part in a cluster; empty where it has none."""
    serving: tuple[int, ...] = ()
    """Ports at which medley serves a model."""
    packages: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By environment: versions by package, and `python`'s."""
    own: Mapping[str, str] | None = None
    """The same of the virtualenv that cluster.toml names; None where it names none, or there is none."""
    programs: frozenset[str] = frozenset()
    """Of that one."""


def keeping(answers: Transcript) -> Keeping | None:
    if SECRETS not in answers:
        return None
    modes = (line.partition(" ") for line in lines(answers, SECRETS))
    said = answers.get(OWN, NO_ANSWER)
    return Keeping(
        modes={name: mode for mode, _, name in modes if name},
        membership=_pairs(answers.get(MEMBERSHIP, NO_ANSWER).text),
        serving=tuple(port for each in lines(answers, SERVING) if (port := number(each)) is not None),
        packages=_packages(lines(answers, PACKAGES)),
        own=_packages(lines(answers, OWN)).get("", {}) if said.text else None,
        programs=frozenset(line[4:] for line in lines(answers, OWN) if line.startswith("bin/")),
    )


def _pairs(text: str) -> Mapping[str, str]:
    return dict(re.findall(r'"(\w+)": "([^"\\]*)"', text))


def _packages(said: tuple[str, ...]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for line in said:
        if match := _PACKAGE.fullmatch(line.strip()):
            found.setdefault(match[1] or "", {"python": match[2]})[match[3]] = match[4]
    return found
