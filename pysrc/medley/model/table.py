"""Write the table of a model, models/NAME.toml, from its repository on the hub."""

import json
import re
import textwrap
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, get_args

from msgspec import field

from medley import config
from medley.model.checkpoint import CONFIG_FILE
from medley.model.hub_checkpoint import HubRecord
from medley.model.shape import compute_shape, find_architecture
from medley.schema import Model, Shape, WeightFormat
from medley.values import Value

_CONFIG_KEYS = (
    *("layers", "hidden", "heads", "kv_heads", "head_dim", "feed_forward", "block", "vocabulary", "context"),
    *("experts", "experts_per_token", "attention_layers", "window", "windowed_layers", "weights"),
)
_ENGINE_KEYS = ("one_stage", "capabilities")
_COMPUTED_KEYS = (
    *("kv_bytes_per_token", "kv_head_bytes", "windowed_kv_heads", "windowed_head_bytes"),
    *("windowed_bytes_per_token", "state_bytes"),
)
_PROPOSED_KEYS = ("tool_parser", "reasoning_parser", "args", "env", "since", "eager")
_MIN_GROUPED_NUMBER = 10_000
_FORMAT_PATTERN = re.compile(rf"-(?:{'|'.join(('gptq', *get_args(WeightFormat)))})(?:-.*)?$")


class Proposal(Value):
    """The values, except the shape, to write for a model from known tables of the same architecture."""

    similar: tuple[str, ...] = ()
    """The names of these tables."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """The values that all of them have, by key."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """The differences between them, by key."""


def find_table_name(repository: str) -> str:
    return repository.rpartition("/")[2].lower()


def remove_format(name: str) -> str:
    """Return a model's name without the format of its weights: qwen3-8b for qwen3-8b-fp8."""
    return _FORMAT_PATTERN.sub("", name)


def propose_values(name: str, architecture: str | None, models: Mapping[str, Model]) -> Proposal:
    """Propose the values of a new table `name` from other builds of the same model, else from its family."""
    family = {table: model for table, model in models.items() if architecture == model.architecture}
    if architecture is None or not family:
        return Proposal()
    builds = {table: model for table, model in family.items() if remove_format(table) == remove_format(name)}
    similar, values, left_out = builds or family, {}, {}
    for key in _PROPOSED_KEYS:
        by_table = {table: getattr(model, key) for table, model in similar.items()}
        first, *others = by_table.values()
        if any(other != first for other in others):
            left_out[key] = "; ".join(
                f"{table} has {_format_json(value)}" for table, value in by_table.items()
            )
        elif first:
            values[key] = first
    return Proposal(tuple(sorted(similar)), values, left_out)


def _format_json(value: object) -> str:
    return json.dumps(value) if value else "none"


def parse_model(text: str, where: str) -> Model:
    return config.build_table(tomllib.loads(text), Model, where, text)


def write_table(look: HubRecord, proposed: Proposal) -> str:
    """Return the text of the table, with the source of each number; the same for the same commit."""
    family = find_architecture(look.config)
    lines = [f"title = {_quote(look.repository.rpartition('/')[2])}"]
    lines += [f'repository = "{look.repository}"']
    lines += [f'architecture = "{family}"'] if family else []
    if look.license:
        lines += ["# source: the repository's card on the hub", f"license = {_quote(look.license)}"]
    lines += [*_list_proposed_lines(proposed, family), *_list_code_lines(look), "", "[shape]"]
    lines += _list_shape_lines(look, compute_shape(look.checkpoint))
    return "\n".join(lines) + "\n"


def _list_proposed_lines(proposed: Proposal, family: str | None) -> Iterator[str]:
    if not proposed.similar:
        yield f"# no known table has the architecture {family}: no parser and no flag is proposed"
        return
    if proposed.values:
        yield from _wrap_comment(
            f"proposed, not tried: all known tables like it say so: {', '.join(proposed.similar)}"
        )
    for key, value in proposed.values.items():
        engine_values = value.items() if isinstance(value, dict) else ()
        yield from (
            f"{key}.{engine} = {_format_value(engine_value)}" for engine, engine_value in engine_values
        )
        if not isinstance(value, dict):
            yield f"{key} = {_format_value(value)}"
    for key, why in proposed.left_out.items():
        yield from _wrap_comment(f"left out, because known tables differ in {key}: {why}")


def _list_code_lines(look: HubRecord) -> Iterator[str]:
    if look.config.get("auto_map"):
        yield from ("", "[remote_code]")
        yield from _wrap_comment(
            f"source: {CONFIG_FILE} names code of the repository (auto_map); "
            "where engines do without it: medley serve --no-remote-code"
        )
        yield "needed = true"


def _list_shape_lines(look: HubRecord, shape: Shape) -> Iterator[str]:
    # The architecture is an entry of the model.
    values = shape.to_table(omit_defaults=True) | {"weights": shape.weights}
    values.pop("architecture", None)
    origin = f"commit {look.commit}" if look.commit else f"what the hub had on {look.date}"
    yield from _wrap_comment(f"source: {CONFIG_FILE} of {look.repository} at {origin}")
    yield from _list_entry_lines(values, _CONFIG_KEYS)
    files = look.files[0] if len(look.files) == 1 else f"{len(look.files)} files, {look.files[0]} and so on"
    total = sum(size for _, _, size in look.tensors.values())
    yield from _wrap_comment(
        f"source: the headers of the weights at the same commit, {files}: {total:_} bytes in all. "
        "layer_bytes is the mean of all layers"
    )
    yield from _list_entry_lines(
        values, (key for key in values if key not in {*_CONFIG_KEYS, *_COMPUTED_KEYS, *_ENGINE_KEYS})
    )
    if any(values.get(key) for key in _COMPUTED_KEYS):
        yield from _wrap_comment(f"computed from {CONFIG_FILE}")
        yield from _list_entry_lines(values, _COMPUTED_KEYS)
    if any(values.get(key) for key in _ENGINE_KEYS):
        yield from _wrap_comment("read in vLLM: what it can do with this architecture; not run on hardware")
        yield from _list_entry_lines(values, ("one_stage",))
        majors = values.get("capabilities", {})
        yield from (
            f"capabilities.{engine} = {_format_value(capabilities)}"
            for engine, capabilities in majors.items()
        )


def _list_entry_lines(values: Mapping[str, Any], keys: Iterable[str]) -> Iterator[str]:
    yield from (f"{key} = {_format_value(values[key])}" for key in keys if values.get(key) is not None)


def _format_value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return _format_value(int(value)) if value.is_integer() else repr(value)
    if isinstance(value, int):
        return f"{value:_}" if value >= _MIN_GROUPED_NUMBER else str(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_format_value, value))}]"
    return _quote(str(value))


def _quote(text: str) -> str:
    """Return a string of TOML, which takes no control characters."""
    return json.dumps(_drop_control_chars(text), ensure_ascii=False)


def _drop_control_chars(text: str) -> str:
    return "".join(char for char in text if char.isprintable())


def _wrap_comment(text: str) -> list[str]:
    words = " ".join(map(_drop_control_chars, text.split()))
    return [f"# {line}" for line in textwrap.wrap(words, 104, break_long_words=False, break_on_hyphens=False)]
