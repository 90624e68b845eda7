"""Read the recipes of vllm-project/recipes as sparkrun's, and name other formats for what they are."""

import difflib
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from medley.errors import Problem
from medley.serving.community_recipe import RULES, Entry

_SPARKRUN = {"command", "runtime", "defaults", "container", "recipe_version", "sparkrun_version"}
"""A recipe of sparkrun has one of these; a file with only `model` describes a model."""


@dataclass(frozen=True)
class ConvertedRecipe:
    recipe: dict[str, object]
    """The recipe in sparkrun's keys."""
    entries: tuple[Entry, ...] = ()
    """The outcomes of what has no key there."""


def convert_recipe(recipe: dict[str, object], source: str) -> ConvertedRecipe:
    """Return the recipe in sparkrun's keys; raise a Problem that names any other format."""
    model = recipe.get("model")
    if isinstance(model, dict) and "model_id" in model:
        return _convert_vllm_recipe(recipe, model, source)
    has_model = "model" in recipe or "command" in recipe
    title = None if has_model and set(recipe) & _SPARKRUN else _find_format_title(recipe)
    if title or not _is_recipe_like(recipe):
        keys = ", ".join(list(recipe)[:6])
        raise Problem(
            f"{source} is {title or 'not a recipe that medley reads'}",
            cause=f"its keys are {keys or 'none'}; medley reads sparkrun's recipes and vLLM's",
            fix="copy the engine's command in it (vllm serve …) into a file: medley models import FILE",
        )
    return ConvertedRecipe(recipe)


def _find_format_title(recipe: Mapping[str, object]) -> str | None:
    return next((each["title"] for each in RULES["formats"] if set(each["keys"]) <= set(recipe)), None)


def _is_recipe_like(recipe: Mapping[str, object]) -> bool:
    """Return whether it is a recipe that lacks its model, and no other table."""
    near_keys = difflib.get_close_matches("model", list(recipe), n=1)
    return bool(set(recipe) & _SPARKRUN or near_keys)


def _convert_vllm_recipe(recipe: Mapping[str, Any], model: Mapping[str, Any], source: str) -> ConvertedRecipe:
    if recipe.get("omni"):
        raise Problem(
            f"{source} is for vLLM-Omni",
            cause="it has the key 'omni', and medley has vLLM and SGLang",
            fix="choose a model that vLLM serves: medley models",
        )
    variants = {name: each for name, each in (recipe.get("variants") or {}).items() if isinstance(each, dict)}
    default = variants.get("default", {})
    repository = str(default.get("model_id") or model["model_id"])
    optional_features = set(recipe.get("opt_in_features") or ())
    features = {name: each for name, each in (recipe.get("features") or {}).items() if isinstance(each, dict)}
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


def _list_words(value: object) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list) else []


def _list_feature_words(feature: Mapping[str, Any]) -> list[str]:
    """Return a feature's flags; of several modes those of its default."""
    if feature.get("args"):
        return _list_words(feature["args"])
    modes = feature.get("modes") or {}
    chosen: object = modes.get(feature.get("default_mode")) or next(iter(modes.values()), {})
    return _list_words(chosen.get("args")) if isinstance(chosen, dict) else []


def _list_feature_entries(
    features: Mapping[str, Mapping[str, Any]], optional_features: set[str]
) -> Iterator[Entry]:
    for name in features:
        if name in optional_features and (words := _list_feature_words(features[name])):
            yield Entry(f"features.{name}", "decided", f"its author leaves it to you: -- {shlex.join(words)}")


def _list_variant_entries(variants: Mapping[str, Mapping[str, Any]], repository: str) -> Iterator[Entry]:
    for name, variant in variants.items():
        other_repository = str(variant.get("model_id") or repository)
        if name != "default" and other_repository != repository:
            size = f", {variant['vram_minimum_gb']} GB" if variant.get("vram_minimum_gb") else ""
            why = f"another build ({variant.get('precision') or name}{size}): medley plan {other_repository}"
            yield Entry(f"variants.{name}", "decided", why)
        elif name != "default" and variant.get("extra_args"):
            why = f"for such hosts: -- {shlex.join(_list_words(variant['extra_args']))}"
            yield Entry(f"variants.{name}", "decided", why)
    for host, override in (variants.get("default", {}).get("hardware_overrides") or {}).items():
        if isinstance(override, dict) and override.get("extra_args"):
            why = f"for such hosts: -- {shlex.join(_list_words(override['extra_args']))}"
            yield Entry(f"hardware_overrides.{host}", "decided", why)


def _list_other_entries(recipe: Mapping[str, Any]) -> Iterator[Entry]:
    for dependency in recipe.get("dependencies") or ():
        command = dependency.get("command") if isinstance(dependency, dict) else dependency
        yield Entry(
            "dependencies", "refused", f"medley's environment has the locked packages only: {command}"
        )
    if recipe.get("compatible_strategies") or recipe.get("strategy_overrides"):
        yield Entry("compatible_strategies", "decided", "the plan chooses how the model is split")
