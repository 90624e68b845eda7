"""Compare the settings of a guide with Medley's, and give each difference its reason."""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.guides import shell
from tools.guides.dry_run import (
    BENCH,
    CONTAINER,
    ENGINE,
    ENVIRONMENT,
    LINK,
    PYTHON,
    RAY,
    DryRun,
)
from tools.guides.extract import Fact
from tools.guides.scenarios import Scenario

REASONS = Path(__file__).with_name("reasons.toml")
NOT_REACHED = "Not reached: "
"""How the reason begins where the guide reaches what Medley does not."""
SCRIPT, MPIRUN, BUILD = "launcher", "mpirun", "build"
_GROUPS = {
    "vllm serve": ENGINE,
    "sglang serve": ENGINE,
    "ray start": RAY,
    "docker run": CONTAINER,
    "vllm bench": BENCH,
    "link": LINK,
    "python": PYTHON,
    "mpirun": MPIRUN,
    "make": BUILD,
    "jetson-containers build": BUILD,
    "text": ENGINE,
}
_VARIABLE = re.compile(r"[A-Z][A-Za-z]*_\w+|PATH|MPI")
_SPELLED = {(ENGINE, "--pp"): "--pp-size", (ENGINE, "--model"): "MODEL", (ENGINE, "--model-path"): "MODEL"}
"""As Medley spells a guide's item, where that is not one of the names that the engine has for it."""


@dataclass(frozen=True)
class Row:
    scenario: str
    group: str
    item: str
    guide: tuple[str, ...]
    """Its values in the guide, in order; empty text where it has none."""
    medley: Mapping[str, list[str]]
    """Values by host; empty where Medley does not give it."""
    same: bool
    reason: str

    @property
    def not_reached(self) -> bool:
        return self.reason.startswith(NOT_REACHED)


def rows(
    scenario: Scenario, made: DryRun, facts: Iterable[Fact], known: Mapping[str, Mapping[str, str]]
) -> Iterator[Row]:
    """Yield a row for each item of the guide's facts that belong to this scenario."""
    for (group, item), values in _items(scenario, facts).items():
        theirs = made.of(group, spelled(group, item))
        same = all(_equal(value, theirs) for value in values)
        key = f"{group} {item}"
        reason = known.get(scenario.name, {}).get(key) or known.get("any", {}).get(key, "")
        yield Row(scenario.name, group, item, values, theirs, same, "" if same else reason)


def reasons() -> dict[str, dict[str, str]]:
    """Return the hand-written reasons: by scenario, or `any`, those of `group item`."""
    return tomllib.loads(REASONS.read_text(encoding="utf-8"))


def spelled(group: str, item: str) -> str:
    """Return Medley's spelling of a guide's item."""
    return _SPELLED.get((group, item), item)


def _items(scenario: Scenario, facts: Iterable[Fact]) -> dict[tuple[str, str], tuple[str, ...]]:
    """Each item with its values; what the text says of a flag belongs to the program that is given it."""
    found: dict[tuple[str, str], list[str]] = {}
    own = [each for each in facts if scenario.has(each)]
    for each in sorted(own, key=lambda each: each.program == "text"):
        group = _group(each)
        if each.program == "text" and group == ENGINE:
            given = (one for one, item in found if item == each.item and one != ENGINE)
            group = next(given, SCRIPT if scenario.links else ENGINE)
        values = found.setdefault((group, each.item), [])
        if each.value not in values and (each.value or not values):
            values.append(each.value)
    return {key: tuple(values) for key, values in found.items()}


def _group(fact: Fact) -> str:
    group = _GROUPS.get(fact.program, SCRIPT)
    if group != BUILD and _VARIABLE.fullmatch(fact.item):
        return ENVIRONMENT
    return group


def _equal(value: str, medley: Mapping[str, list[str]]) -> bool:
    """Whether Medley gives this value on some host; what a reader fills in is any value."""
    every = [each for values in medley.values() for each in values]
    if not value or shell.is_filled_in(value):
        return bool(every)
    return any(_plain(value) == _plain(each) for each in every)


def _plain(value: str) -> str:
    try:
        return f"{float(value):g}"
    except ValueError:
        return value
