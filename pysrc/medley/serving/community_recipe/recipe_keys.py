"""Decide the outcome of a recipe's keys outside its command: version, hosts, keys without a use."""

import difflib
import re
from collections.abc import Iterator, Mapping

from medley.errors import Problem
from medley.serving.community_recipe.document import is_yes
from medley.serving.community_recipe.entries import Outcome, RecipeEntry, build_option_entry, read_reasons

KEY_RULES: Mapping[str, tuple[Outcome, str]] = {
    **{key: ("decided", why) for key, why in read_reasons("keys", "decided").items()},
    **{key: ("refused", why) for key, why in read_reasons("keys", "refused").items()},
}
_KNOWN_KEYS = {
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
RANK_COUNT_OPTIONS = frozenset({"--tp", "--pp", "--dp"})
"""Options that are counts of ranks."""
_VERSION_PATTERN = re.compile(r"\d+(?:\.\d+)*")


def list_version_entries(recipe: Mapping[str, object], source: str) -> Iterator[RecipeEntry]:
    """Yield the outcome of the version: sparkrun reads each number but 1 as 2."""
    key = next((name for name in ("recipe_version", "sparkrun_version") if name in recipe), "")
    version = str(recipe.get(key, "2"))
    if not _VERSION_PATTERN.fullmatch(version.removeprefix("v")):
        cause = f"it is {version[:40]}, and a version is a number"
        raise Problem(f"{source}: '{key}' is wrong", cause=cause, fix=f"write {key}: '2' in {source}")
    if version not in {"1", "2"}:
        yield RecipeEntry(
            key,
            "decided",
            f"{version} is the author's own edition: medley reads it as version 2, as sparkrun",
        )


def list_host_entries(recipe: Mapping[str, object]) -> Iterator[RecipeEntry]:
    min_hosts, max_hosts = _read_count(recipe, "min_nodes"), _read_count(recipe, "max_nodes")
    single_host_key = next(
        (
            key
            for key, is_set in (
                ("solo_only", is_yes(recipe.get("solo_only"))),
                ("mode", recipe.get("mode") == "solo"),
                ("max_nodes", max_hosts == 1),
            )
            if is_set
        ),
        None,
    )
    host_keys = [
        key
        for key in ("min_nodes", "max_nodes", "mode", "solo_only", "cluster_only")
        if is_yes(recipe.get(key))
    ]
    exact_key = single_host_key or ("max_nodes" if min_hosts and min_hosts == max_hosts else None)
    if exact_key:
        yield build_option_entry(
            exact_key,
            "--hosts",
            "1" if single_host_key else str(max_hosts),
            why="exactly this number of hosts",
        )
    why = "the plan uses as many hosts as the model and its layout need"
    yield from (RecipeEntry(key, "decided", why) for key in host_keys if key != exact_key)


def _read_count(recipe: Mapping[str, object], key: str) -> int | None:
    value = recipe.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def reduce_to_one_host(entries: tuple[RecipeEntry, ...], kind: str) -> Iterator[RecipeEntry]:
    """Set the sizes of a cluster to 1 on one Spark, which has one GPU, as run-recipe.py does."""
    single_host_key = next((entry.key for entry in entries if entry.words == ("--hosts", "1")), None)
    for entry in entries:
        if (
            single_host_key
            and kind == "spark"
            and entry.word_kind == "option"
            and entry.words[0] in RANK_COUNT_OPTIONS
            and entry.words[1] != "1"
        ):
            name, size = entry.words
            why = (
                f"1, not {size}: the recipe is for one host ({single_host_key}), and {size} is for a cluster"
            )
            yield build_option_entry(entry.key, name, "1", why=why, is_changed=True)
        else:
            yield entry


def list_other_entries(recipe: Mapping[str, object]) -> Iterator[RecipeEntry]:
    """Yield the outcome of keys outside the command; empty ones are ignored."""
    for key, value in recipe.items():
        if key in _KNOWN_KEYS or not value:
            continue
        if key in KEY_RULES:
            yield RecipeEntry(key, *KEY_RULES[key])
            continue
        near = difflib.get_close_matches(key, [*_KNOWN_KEYS, *KEY_RULES], n=1)
        hint = f"the nearest is '{near[0]}'" if near else "sparkrun does not know it either"
        yield RecipeEntry(key, "refused", f"it is not a key of recipes; {hint}")
