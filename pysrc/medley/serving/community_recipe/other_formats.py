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
class Reading:
    recipe: dict[str, object]
    """In sparkrun's keys."""
    entries: tuple[Entry, ...] = ()
    """What has no key there."""


def reading(recipe: dict[str, object], where: str) -> Reading:
    """Return the recipe in sparkrun's keys; raise a Problem that names any other format."""
    model = recipe.get("model")
    if isinstance(model, dict) and "model_id" in model:
        return _of_vllm(recipe, model, where)
    named = "model" in recipe or "command" in recipe
    title = None if named and set(recipe) & _SPARKRUN else _format(recipe)
    if title or not _resembles(recipe):
        keys = ", ".join(list(recipe)[:6])
        raise Problem(
            f"{where} is {title or 'not a recipe that medley reads'}",
            cause=f"its keys are {keys or 'none'}; medley reads sparkrun's recipes and vLLM's",
            fix="copy the engine's command in it (vllm serve …) into a file: medley models import FILE",
        )
    return Reading(recipe)


def _format(recipe: Mapping[str, object]) -> str | None:
    return next((each["title"] for each in RULES["formats"] if set(each["keys"]) <= set(recipe)), None)


def _resembles(recipe: Mapping[str, object]) -> bool:
    """Whether it is a recipe that lacks its model, and no other table."""
    near = difflib.get_close_matches("model", list(recipe), n=1)
    return bool(set(recipe) & _SPARKRUN or near)


def _of_vllm(recipe: Mapping[str, Any], model: Mapping[str, Any], where: str) -> Reading:
    if recipe.get("omni"):
        raise Problem(
            f"{where} is for vLLM-Omni",
            cause="it has the key 'omni', and medley has vLLM and SGLang",
            fix="choose a model that vLLM serves: medley models",
        )
    variants = {name: each for name, each in (recipe.get("variants") or {}).items() if isinstance(each, dict)}
    default = variants.get("default", {})
    repository = str(default.get("model_id") or model["model_id"])
    optional = set(recipe.get("opt_in_features") or ())
    features = {name: each for name, each in (recipe.get("features") or {}).items() if isinstance(each, dict)}
    words = [*_words(model.get("base_args")), *_words(default.get("extra_args"))]
    for name, feature in features.items():
        words += () if name in optional else _feature_words(feature)
    made: dict[str, object] = {
        "model": repository,
        "command": shlex.join(["vllm", "serve", repository, *words]),
        "env": {**(model.get("base_env") or {}), **(default.get("extra_env") or {})},
    }
    image = default.get("docker_image") or model.get("docker_image")
    if isinstance(image, dict):
        image = next(iter(image.values()), None)
    if image:
        made["container"] = str(image)
    entries = (*_options(features, optional), *_builds(variants, repository), *_rest(recipe))
    return Reading(made, entries)


def _words(found: object) -> list[str]:
    return [str(each) for each in found] if isinstance(found, list) else []


def _feature_words(feature: Mapping[str, Any]) -> list[str]:
    """Return a feature's flags; of several modes those of its default."""
    if feature.get("args"):
        return _words(feature["args"])
    modes = feature.get("modes") or {}
    chosen: object = modes.get(feature.get("default_mode")) or next(iter(modes.values()), {})
    return _words(chosen.get("args")) if isinstance(chosen, dict) else []


def _options(features: Mapping[str, Mapping[str, Any]], optional: set[str]) -> Iterator[Entry]:
    for name in features:
        if name in optional and (words := _feature_words(features[name])):
            yield Entry(f"features.{name}", "decided", f"its author leaves it to you: -- {shlex.join(words)}")


def _builds(variants: Mapping[str, Mapping[str, Any]], repository: str) -> Iterator[Entry]:
    for name, each in variants.items():
        other = str(each.get("model_id") or repository)
        if name != "default" and other != repository:
            size = f", {each['vram_minimum_gb']} GB" if each.get("vram_minimum_gb") else ""
            why = f"another build ({each.get('precision') or name}{size}): medley plan {other}"
            yield Entry(f"variants.{name}", "decided", why)
        elif name != "default" and each.get("extra_args"):
            yield Entry(
                f"variants.{name}", "decided", f"for such hosts: -- {shlex.join(_words(each['extra_args']))}"
            )
    for host, each in (variants.get("default", {}).get("hardware_overrides") or {}).items():
        if isinstance(each, dict) and each.get("extra_args"):
            why = f"for such hosts: -- {shlex.join(_words(each['extra_args']))}"
            yield Entry(f"hardware_overrides.{host}", "decided", why)


def _rest(recipe: Mapping[str, Any]) -> Iterator[Entry]:
    for each in recipe.get("dependencies") or ():
        command = each.get("command") if isinstance(each, dict) else each
        yield Entry(
            "dependencies", "refused", f"medley's environment has the locked packages only: {command}"
        )
    if recipe.get("compatible_strategies") or recipe.get("strategy_overrides"):
        yield Entry("compatible_strategies", "decided", "the plan chooses how the model is split")
