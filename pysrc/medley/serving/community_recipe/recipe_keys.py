"""Decide what becomes of a recipe's keys outside its command: version, hosts, what medley does not use."""

import difflib
import re
from collections.abc import Iterator, Mapping

from medley.errors import Problem
from medley.serving.community_recipe import Entry, Outcome, option, reasons

RULES: Mapping[str, tuple[Outcome, str]] = {
    **{key: ("decided", why) for key, why in reasons("keys", "decided").items()},
    **{key: ("refused", why) for key, why in reasons("keys", "refused").items()},
}
_READ = {
    *(
        "recipe_version",
        "sparkrun_version",
        "model",
        "model_revision",
        "runtime",
        "defaults",
        "env",
        "command",
    ),
    *("mode", "min_nodes", "max_nodes", "solo_only", "cluster_only", "container"),
}
SIZES = frozenset({"--tp", "--pp", "--dp"})
"""Options that are counts of ranks."""
_VERSION = re.compile(r"\d+(?:\.\d+)*")


def version_entries(recipe: Mapping[str, object], where: str) -> Iterator[Entry]:
    """Yield what an author's own number means: to sparkrun each but 1 is as 2."""
    key = next((each for each in ("recipe_version", "sparkrun_version") if each in recipe), "")
    version = str(recipe.get(key, "2"))
    if not _VERSION.fullmatch(version.removeprefix("v")):
        cause = f"it is {version[:40]}, and a version is a number"
        raise Problem(f"{where}: '{key}' is wrong", cause=cause, fix=f"write {key}: '2' in {where}")
    if version not in {"1", "2"}:
        yield Entry(
            key,
            "decided",
            f"{version} is the author's own edition: medley reads it as version 2, as sparkrun",
        )


def host_entries(recipe: Mapping[str, object]) -> Iterator[Entry]:
    least, most = _count(recipe, "min_nodes"), _count(recipe, "max_nodes")
    alone = next(
        (
            key
            for key, found in (
                ("solo_only", recipe.get("solo_only")),
                ("mode", recipe.get("mode") == "solo"),
                ("max_nodes", most == 1),
            )
            if found
        ),
        None,
    )
    given = [
        key for key in ("min_nodes", "max_nodes", "mode", "solo_only", "cluster_only") if recipe.get(key)
    ]
    exact = alone or ("max_nodes" if least and least == most else None)
    if exact:
        yield option(exact, "--hosts", "1" if alone else str(most), why="exactly this number of hosts")
    why = "the plan uses as many hosts as the model and its layout need"
    yield from (Entry(key, "decided", why) for key in given if key != exact)


def _count(recipe: Mapping[str, object], key: str) -> int | None:
    found = recipe.get(key)
    return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else None


def on_one_host(entries: tuple[Entry, ...], kind: str) -> Iterator[Entry]:
    """On one Spark, which has one GPU, run-recipe.py sets 1 for the sizes that are for clusters."""
    alone = next((each.key for each in entries if each.becomes == ("--hosts", "1")), None)
    for each in entries:
        if (
            alone
            and kind == "spark"
            and each.part == "option"
            and each.becomes[0] in SIZES
            and each.becomes[1] != "1"
        ):
            name, size = each.becomes
            why = f"1, not {size}: the recipe is for one host ({alone}), and {size} is for a cluster"
            yield option(each.key, name, "1", why=why, changed=True)
        else:
            yield each


def other_entries(recipe: Mapping[str, object]) -> Iterator[Entry]:
    """Yield the outcome of keys outside the command; empty ones are ignored."""
    for key, value in recipe.items():
        if key in _READ or not value:
            continue
        if key in RULES:
            yield Entry(key, *RULES[key])
            continue
        near = difflib.get_close_matches(key, [*_READ, *RULES], n=1)
        hint = f"the nearest is '{near[0]}'" if near else "sparkrun does not know it either"
        yield Entry(key, "refused", f"it is not a key of recipes; {hint}")
