"""Convert the recipes of vllm-project/recipes to sparkrun's keys, and name any other format in a Problem."""

import difflib
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from medley.errors import Problem
from medley.serving.community_recipe.document import is_yes
from medley.serving.community_recipe.entries import RULES, Outcome, RecipeEntry, is_repository
from medley.values import Value

_SPARKRUN_KEYS = {"command", "runtime", "defaults", "container", "recipe_version", "sparkrun_version"}
"""A recipe of sparkrun has one of these; a file with only `model` describes a model."""
_PRECISION = re.compile(r"[\w.+-]{1,40}")


class ConvertedRecipe(Value):
    """A recipe of another format, in sparkrun's keys."""

    recipe: dict[str, object]
    """The recipe in sparkrun's keys."""
    entries: tuple[RecipeEntry, ...] = ()
    """The outcomes of keys that sparkrun does not have."""


def convert_recipe(recipe: dict[str, object], source: str) -> ConvertedRecipe:
    """Return the recipe in sparkrun's keys; raise a Problem that names any other format."""
    model = recipe.get("model")
    if isinstance(model, dict) and "model_id" in model:
        return _convert_vllm_recipe(recipe, model, source)
    has_model = "model" in recipe or "command" in recipe
    title = None if has_model and set(recipe) & _SPARKRUN_KEYS else _find_format_title(recipe)
    if title or not _is_recipe_like(recipe):
        keys = ", ".join(list(recipe)[:6])
        raise Problem(
            f"{source} is {title or 'not a recipe that medley reads'}",
            cause=f"its keys are {keys or 'none'}; medley reads sparkrun's recipes and vLLM's",
            fix="copy the engine's command in it (vllm serve …) into a file: medley models import FILE",
        )
    return ConvertedRecipe(recipe)


def _find_format_title(recipe: Mapping[str, object]) -> str | None:
    return next((rule["title"] for rule in RULES["formats"] if set(rule["keys"]) <= set(recipe)), None)


def _is_recipe_like(recipe: Mapping[str, object]) -> bool:
    """Return whether it is a recipe that lacks its model, and no other table."""
    near_keys = difflib.get_close_matches("model", list(recipe), n=1)
    return bool(set(recipe) & _SPARKRUN_KEYS or near_keys)


def _convert_vllm_recipe(recipe: Mapping[str, Any], model: Mapping[str, Any], source: str) -> ConvertedRecipe:
    if is_yes(recipe.get("omni")):
        raise Problem(
            f"{source} is for vLLM-Omni",
            cause="it has the key 'omni', and medley has vLLM and SGLang",
            fix="choose a model that vLLM serves: medley models",
        )
    variants = _select_tables(recipe.get("variants"))
    default = variants.get("default", {})
    repository = str(default.get("model_id") or model["model_id"])
    optional_features = set(recipe.get("opt_in_features") or ())
    features = _select_tables(recipe.get("features"))
    words = [*_list_words(model.get("base_args")), *_list_words(default.get("extra_args"))]
    for name, feature in features.items():
        words += () if name in optional_features else _list_feature_words(feature)
    converted: dict[str, object] = {
        "model": repository,
        "command": shlex.join(["vllm", "serve", repository, *words]),
        "env": {**(model.get("base_env") or {}), **(default.get("extra_env") or {})},
    }
    image = default.get("docker_image") or model.get("docker_image")
    if isinstance(image, dict):
        image = next(iter(image.values()), None)
    if image:
        converted["container"] = str(image)
    entries = (
        *_list_feature_entries(features, optional_features),
        *_list_variant_entries(variants, repository),
        *_list_other_entries(recipe),
    )
    return ConvertedRecipe(converted, entries)


def _select_tables(tables: dict[str, Any] | None) -> dict[str, dict[str, Any]]:
    """Return the values that are tables, by name."""
    return {name: table for name, table in (tables or {}).items() if isinstance(table, dict)}


def _list_words(value: object) -> list[str]:
    return [str(word) for word in value] if isinstance(value, list) else []


def _list_feature_words(feature: Mapping[str, Any]) -> list[str]:
    """Return a feature's flags; of several modes those of its default."""
    if feature.get("args"):
        return _list_words(feature["args"])
    modes = feature.get("modes") or {}
    chosen: object = modes.get(feature.get("default_mode")) or next(iter(modes.values()), {})
    return _list_words(chosen.get("args")) if isinstance(chosen, dict) else []


def _list_feature_entries(
    features: Mapping[str, Mapping[str, Any]], optional_features: set[str]
) -> Iterator[RecipeEntry]:
    for name in features:
        if name in optional_features and (words := _list_feature_words(features[name])):
            yield RecipeEntry(
                f"features.{name}", "decided", f"its author leaves it to you: -- {shlex.join(words)}"
            )


def _list_variant_entries(
    variants: Mapping[str, Mapping[str, Any]], repository: str
) -> Iterator[RecipeEntry]:
    for name, variant in variants.items():
        other_repository = str(variant.get("model_id") or repository)
        if name != "default" and other_repository != repository:
            yield RecipeEntry(f"variants.{name}", *_judge_other_build(name, variant, other_repository))
        elif name != "default" and variant.get("extra_args"):
            why = f"for such hosts: -- {shlex.join(_list_words(variant['extra_args']))}"
            yield RecipeEntry(f"variants.{name}", "decided", why)
    for host, override in (variants.get("default", {}).get("hardware_overrides") or {}).items():
        if isinstance(override, dict) and override.get("extra_args"):
            why = f"for such hosts: -- {shlex.join(_list_words(override['extra_args']))}"
            yield RecipeEntry(f"hardware_overrides.{host}", "decided", why)


def _judge_other_build(name: str, variant: Mapping[str, Any], repository: str) -> tuple[Outcome, str]:
    """Return the outcome and the reason of a variant with weights of its own."""
    if not is_repository(repository):
        return "refused", f"its model_id is {repository!r}, which is not a repository that medley serves"
    size = variant.get("vram_minimum_gb")
    size_text = f", {size} GB" if isinstance(size, int | float) else ""
    precision = str(variant.get("precision") or name)
    precision_text = precision if _PRECISION.fullmatch(precision) else repr(precision)
    return "decided", f"another build ({precision_text}{size_text}): medley plan {shlex.quote(repository)}"


def _list_other_entries(recipe: Mapping[str, Any]) -> Iterator[RecipeEntry]:
    for dependency in recipe.get("dependencies") or ():
        command = dependency.get("command") if isinstance(dependency, dict) else dependency
        yield RecipeEntry(
            "dependencies", "refused", f"medley's environment has the locked packages only: {command}"
        )
    if recipe.get("compatible_strategies") or recipe.get("strategy_overrides"):
        yield RecipeEntry("compatible_strategies", "decided", "the plan chooses how the model is split")
