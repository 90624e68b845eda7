"""Write the table of a model, models/NAME.toml, from a look at its repository."""

import json
import re
import textwrap
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from medley import config
from medley.model.checkpoint import CONFIG
from medley.model.hub_checkpoint import Look
from medley.model.shape import architecture, shape_of_config
from medley.schema import Model, Shape, Weights

_CONFIG_KEYS = (
    *("layers", "hidden", "heads", "kv_heads", "head_dim", "feed_forward", "block", "vocabulary", "context"),
    *("experts", "experts_per_token", "attention_layers", "window", "windowed_layers", "weights"),
)
_ENGINE_KEYS = ("one_stage", "capabilities")
_COMPUTED_KEYS = (
    *("kv_bytes_per_token", "kv_head_bytes", "windowed_kv_heads", "windowed_head_bytes"),
    *("windowed_bytes_per_token", "state_bytes"),
)
_PROPOSED = ("tool_parser", "reasoning_parser", "args", "env", "since", "eager")
_LARGE = 10_000
_FORMAT = re.compile(rf"-(?:{'|'.join(('gptq', *get_args(Weights)))})(?:-.*)?$")


@dataclass(frozen=True)
class Proposal:
    """Values of known tables of the same architecture, except the shape."""

    like: tuple[str, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)
    """Values that all of them have, by key."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Differences between them, by key."""
    knows_code: bool = False
    """Engines know all of them without the code of their repositories."""


def table_name(repository: str) -> str:
    return repository.rpartition("/")[2].lower()


def base_name(name: str) -> str:
    """The name of a model without the format of its weights: of qwen3-8b-fp8 it is qwen3-8b."""
    return _FORMAT.sub("", name)


def proposal(name: str, architecture: str | None, models: Mapping[str, Model]) -> Proposal:
    """What to write for a new table `name`: from other builds of the same model, else from its family."""
    family = {each: model for each, model in models.items() if architecture == model.architecture}
    if architecture is None or not family:
        return Proposal()
    builds = {each: model for each, model in family.items() if base_name(each) == base_name(name)}
    like, values, left_out = builds or family, {}, {}
    for key in _PROPOSED:
        said = {each: getattr(model, key) for each, model in like.items()}
        first, *others = said.values()
        if any(other != first for other in others):
            left_out[key] = "; ".join(f"{each} has {_shown(value)}" for each, value in said.items())
        elif first:
            values[key] = first
    knows = all(model.remote_code is None or not model.remote_code.needed for model in like.values())
    return Proposal(tuple(sorted(like)), values, left_out, knows)


def _shown(value: object) -> str:
    return json.dumps(value) if value else "none"


def model_of(text: str, where: str) -> Model:
    return config.build(tomllib.loads(text), Model, where, text)


def table_text(look: Look, proposed: Proposal) -> str:
    """The text of the table, with the source of each number; the same for the same commit."""
    family = architecture(look.config)
    lines = [f"title = {_quoted(look.repository.rpartition('/')[2])}"]
    lines += [f'repository = "{look.repository}"']
    lines += [f'architecture = "{family}"'] if family else []
    if look.license:
        lines += ["# source: the repository's card on the hub", f"license = {_quoted(look.license)}"]
    lines += [*_proposed(proposed, family), *_code(look, proposed), "", "[shape]"]
    lines += _shape(look, shape_of_config(look.checkpoint))
    return "\n".join(lines) + "\n"


def _proposed(proposed: Proposal, family: str | None) -> Iterator[str]:
    if not proposed.like:
        yield f"# no known table has the architecture {family}: no parser and no flag is proposed"
        return
    if proposed.values:
        yield from _comment(
            f"proposed, not tried: all known tables like it say so: {', '.join(proposed.like)}"
        )
    for key, value in proposed.values.items():
        inner = value.items() if isinstance(value, dict) else ()
        yield from (f"{key}.{engine} = {_value(each)}" for engine, each in inner)
        if not isinstance(value, dict):
            yield f"{key} = {_value(value)}"
    for key, why in proposed.left_out.items():
        yield from _comment(f"left out, because known tables differ in {key}: {why}")


def _code(look: Look, proposed: Proposal) -> Iterator[str]:
    if look.config.get("auto_map"):
        yield from ("", "[remote_code]")
        why = "no known table says that engines do without it"
        if proposed.knows_code:
            why = f"engines do without that of {', '.join(proposed.like)}"
        yield from _comment(f"source: {CONFIG} names code of the repository (auto_map); {why}")
        yield f"needed = {_value(not proposed.knows_code)}"


def _shape(look: Look, shape: Shape) -> Iterator[str]:
    # The architecture is an entry of the model.
    said = shape.model_dump(exclude_defaults=True, exclude={"architecture"}) | {"weights": shape.weights}
    at = f"commit {look.commit}" if look.commit else f"what the hub had on {look.date}"
    yield from _comment(f"source: {CONFIG} of {look.repository} at {at}")
    yield from _entries(said, _CONFIG_KEYS)
    files = look.files[0] if len(look.files) == 1 else f"{len(look.files)} files, {look.files[0]} and so on"
    total = sum(size for _, _, size in look.tensors.values())
    yield from _comment(
        f"source: the headers of the weights at the same commit, {files}: {total:_} bytes in all. "
        "layer_bytes is the mean of all layers"
    )
    yield from _entries(
        said, (key for key in said if key not in {*_CONFIG_KEYS, *_COMPUTED_KEYS, *_ENGINE_KEYS})
    )
    if any(said.get(key) for key in _COMPUTED_KEYS):
        yield from _comment(f"computed from {CONFIG}")
        yield from _entries(said, _COMPUTED_KEYS)
    if any(said.get(key) for key in _ENGINE_KEYS):
        yield from _comment("read in vLLM: what it can do with this architecture; not run on hardware")
        yield from _entries(said, ("one_stage",))
        majors = said.get("capabilities", {})
        yield from (f"capabilities.{engine} = {_value(each)}" for engine, each in majors.items())


def _entries(said: Mapping[str, Any], keys: Iterable[str]) -> Iterator[str]:
    yield from (f"{key} = {_value(said[key])}" for key in keys if said.get(key) is not None)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return _value(int(value)) if value.is_integer() else repr(value)
    if isinstance(value, int):
        return f"{value:_}" if value >= _LARGE else str(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return _quoted(str(value))


def _quoted(text: str) -> str:
    """A string of TOML, which takes no control characters."""
    return json.dumps(_printable(text), ensure_ascii=False)


def _printable(text: str) -> str:
    return "".join(each for each in text if each.isprintable())


def _comment(text: str) -> list[str]:
    words = " ".join(map(_printable, text.split()))
    return [f"# {line}" for line in textwrap.wrap(words, 104, break_long_words=False, break_on_hyphens=False)]
