"""What `medley init` says and asks while it looks at hosts and makes them known to ssh."""

import sys
from typing import TYPE_CHECKING

from medley.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from medley.introducing import Manner
    from medley.prospects import Prospect
    from medley.visit import Visit


def manner(*, asks: bool, dry: bool) -> "Manner":
    """Where nobody is asked, a switch was consent to all but host keys."""
    from medley.cli import talking
    from medley.introducing import Manner

    return Manner(
        print,
        (lambda question: talking.agrees(question, default=True)) if asks else (lambda _: True),
        (lambda question: talking.agrees(question, default=False)) if asks else None,
        dry,
    )


def visited(
    chosen: "Mapping[str, Prospect]", manner: "Manner", *, keys: bool, asks: bool
) -> "tuple[dict[str, Visit], bool]":
    """What each is, after keys were set up if that is wanted; and whether one of those failed."""
    from medley import visiting
    from medley.cli.progress import watch

    made = visiting.visits(chosen, watch())
    _say(made)
    barred = _barred(made)
    if not barred or not (keys or (asks and _wanted(barred))):
        return made, False
    failed = [name for name in barred if not _introduced(made[name], manner)]
    again = {name: chosen[name] for name in barred if name not in failed and not manner.dry}
    if again:
        found = visiting.visits(again, watch())
        _say(found)
        made |= found
    return made, bool(failed)


def name(renamed: "Mapping[str, Visit]", made: "Mapping[str, Visit]", manner: "Manner") -> None:
    """In ssh's config those that have a name only since they were asked for it."""
    from medley import introducing

    new = {name: each.target for name, each in renamed.items() if name not in made}
    if new:
        introducing.name_in_config(new, manner)


def kept(made: "dict[str, Visit]", *, only_reached: bool, asks: bool) -> "dict[str, Visit]":
    """All, less those that did not answer and are not wanted."""
    from medley.cli import talking

    away = [name for name, each in made.items() if each.facts is None]
    if only_reached:
        dropped = away
    else:
        dropped = [
            name
            for name in away
            if asks and not talking.agrees(f"{name} was not reached; write it all the same?", default=True)
        ]
    left = {name: each for name, each in made.items() if name not in dropped}
    if not left:
        raise Problem(
            "no host is left for cluster.toml",
            cause=f"not reached: {', '.join(away)}",
            fix="mend what is said above, or write them all the same: without --only-reached",
        )
    return left


def _barred(made: "Mapping[str, Visit]") -> list[str]:
    from medley.ssh import Refused, Unknown

    return [name for name, each in made.items() if isinstance(each.problem, (Refused, Unknown))]


def _wanted(barred: list[str]) -> bool:
    from medley.cli import talking

    return talking.agrees(f"ssh does not get into {', '.join(barred)}: set that up now?", default=True)


def _introduced(visit: "Visit", manner: "Manner") -> bool:
    from medley import introducing

    try:
        introducing.introduce(visit.name, visit.target, manner)
    except Problem as problem:
        print(f"medley: {problem}", file=sys.stderr)
        return False
    return True


def _say(made: "Mapping[str, Visit]") -> None:
    width = max(map(len, made))
    for name, each in made.items():
        print(f"{name:{width}}  {each.said}")
        if each.problem:
            print(f"{'':{width}}  fix: {each.problem.fix}")
