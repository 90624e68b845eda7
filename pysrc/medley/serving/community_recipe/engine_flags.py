"""Turn the flags of a recipe's command into medley's options and the engine's own flags."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from medley.engine.accepted_flags import (
    FLAG_REPLACEMENTS,
    PLUGIN_FLAGS,
    AcceptedFlags,
    ArgumentFault,
    read_locked_flags,
)
from medley.host_schema import ENGINE_TABLES
from medley.schema import (
    TITLES,
    EngineName,
    find_flag_refusal,
)
from medley.serving.community_recipe.entries import (
    RULES,
    RecipeEntry,
    build_flag_entry,
    build_option_entry,
    read_reasons,
)
from medley.serving.community_recipe.flag_values import find_obstacle, replace_snapshots
from medley.serving.community_recipe.memory_flags import (
    MEMORY_SHARE_FLAGS,
    MEMORY_SIZE_FLAGS,
    build_memory_entry,
)
from medley.serving.community_recipe.shell_command import EngineCommand, EngineFlag
from medley.values import Value

_OPTIONS_BY_FLAG = {name: option for option, names in RULES["flags"]["options"].items() for name in names}
_DECIDED_REASONS, _REFUSED_REASONS = read_reasons("flags", "decided"), read_reasons("flags", "refused")
_ADD_YOURSELF = "read it, and if you want it, add it after --"
_REQUIRED_FLAGS: Mapping[str, str] = RULES["flags"]["needs"]
_DP_ATTENTION_FLAGS = {"--enable-dp-attention", "--enable-dp-lm-head"}
_TOKEN_COUNT_PATTERN = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)([kKmM]?)")
_TOKEN_UNITS: Mapping[str, int] = {"": 1, "k": 1000, "K": 1 << 10, "m": 1_000_000, "M": 1 << 20}
_FP8_TYPES = {"fp8", "fp8_e4m3"}
_MAX_RANKS, _MAX_CONTEXT_TOKENS, _MAX_PORT = 64, 10_000_000, 65_535


class CommandSource(Value):
    """The source of a command: the recipe's model, and the image that it is for."""

    model: str
    image: str = ""


def list_flag_entries(command: EngineCommand, source: CommandSource) -> Iterator[RecipeEntry]:
    """Yield the outcome of each flag; the command may repeat the recipe's model."""
    accepted_flags = read_locked_flags(command.engine)
    names = {_normalize_name(flag.name, accepted_flags) for flag in command.flags}
    flag_entries = [
        (
            _normalize_name(flag.name, accepted_flags),
            list(_list_entries(flag, command.engine, source, accepted_flags, names)),
        )
        for flag in command.flags
    ]
    refused_names = {
        name for name, entries in flag_entries if any(entry.outcome == "refused" for entry in entries)
    }
    for name, entries in flag_entries:
        needed = _REQUIRED_FLAGS.get(name)
        for entry in entries:
            if entry.word_kind == "flag" and needed in refused_names:
                yield RecipeEntry(
                    entry.key, "refused", f"the engine refuses it without {needed}, which is left out"
                )
            else:
                yield entry


def _list_entries(
    flag: EngineFlag,
    engine: EngineName,
    source: CommandSource,
    accepted_flags: AcceptedFlags | None,
    names: set[str],
) -> Iterator[RecipeEntry]:
    name, key = _normalize_name(flag.name, accepted_flags), f"command {flag.name}"
    if name in {"--model", "--model-path"}:
        yield build_model_entry(key, " ".join(flag.values), source.model)
    elif name in MEMORY_SHARE_FLAGS | MEMORY_SIZE_FLAGS:
        yield build_memory_entry(key, name, flag, accepted_flags)
    elif name in _DECIDED_REASONS:
        yield RecipeEntry(key, "decided", _DECIDED_REASONS[name])
    elif refusal := _find_refusal(name, flag, engine, names):
        yield RecipeEntry(key, "refused", refusal)
    elif name in _OPTIONS_BY_FLAG and not (_OPTIONS_BY_FLAG[name] == "--dp" and names & _DP_ATTENTION_FLAGS):
        yield from _list_option_entries(key, _OPTIONS_BY_FLAG[name], flag, engine, accepted_flags)
    else:
        yield _carry_flag(key, name, flag, engine, accepted_flags)


def _normalize_name(name: str, accepted_flags: AcceptedFlags | None) -> str:
    """Return a flag's name as the engine's parser reads it: --max_num_seqs and --max-num-seq are one."""
    if "." in name:
        return name
    dashed_name = name.replace("_", "-") if name.startswith("--") else name
    is_listed = dashed_name in {
        *_OPTIONS_BY_FLAG,
        *_DECIDED_REASONS,
        *_REFUSED_REASONS,
        *MEMORY_SHARE_FLAGS,
        *MEMORY_SIZE_FLAGS,
    }
    return (
        dashed_name
        if is_listed or accepted_flags is None
        else accepted_flags.find_full_name(dashed_name) or dashed_name
    )


def _find_refusal(name: str, flag: EngineFlag, engine: EngineName, names: set[str]) -> str | None:
    """Return why a flag is left out; `names` are all flags of its command."""
    if name in _REFUSED_REASONS:
        return _REFUSED_REASONS[name]
    if PLUGIN_FLAGS.get(name) in names:
        return f"it needs the file of {PLUGIN_FLAGS[name]}, which is left out"
    if name == "--load-format" and set(ENGINE_TABLES[engine].missing_loaders) & set(flag.values):
        package = f"the package {flag.values[0]}"
        return f"{package} is not in medley's {TITLES[engine]}; its default loads the same weights"
    return next(
        filter(None, (find_obstacle(name, value, _OPTIONS_BY_FLAG.get(name)) for value in flag.values)), None
    )


def build_model_entry(key: str, command_model: str, recipe_model: str) -> RecipeEntry:
    """Return the outcome of the model in a command, which sparkrun does not check.

    sparkrun is the program that recipes are written for.
    """
    if command_model == recipe_model:
        return RecipeEntry(key, "decided", "the recipe's model, which medley serve names")
    if f"/models--{recipe_model.replace('/', '--')}/snapshots/" in command_model:
        return RecipeEntry(
            key, "decided", "a folder of the hub's cache with the recipe's model; medley downloads it"
        )
    return RecipeEntry(key, "refused", f"the recipe's 'model' is {recipe_model}, and this is {command_model}")


def _refuse_unsafe(key: str, engine: EngineName, flag: EngineFlag) -> RecipeEntry | None:
    """Return the refusal of a flag that may be harmful; None for a harmless one."""
    why = find_flag_refusal(engine, flag.name, flag.values)
    return RecipeEntry(key, "refused", f"{why}: {_ADD_YOURSELF}") if why else None


def _carry_flag(
    key: str, name: str, flag: EngineFlag, engine: EngineName, accepted_flags: AcceptedFlags | None
) -> RecipeEntry:
    """Carry over a flag under the name that the engine's release uses; refuse one that only a fork has."""
    words = replace_snapshots(flag).words
    faults = list(accepted_flags.list_faults(words)) if accepted_flags else []
    renamed = FLAG_REPLACEMENTS.get(accepted_flags.engine, {}).get(name, "") if accepted_flags else ""
    if (
        accepted_flags
        and faults
        and renamed.startswith("--")
        and not list(accepted_flags.list_faults((renamed, *words[1:])))
    ):
        renamed_flag = EngineFlag(renamed, words[1:])
        why = f"{accepted_flags.title} calls it {renamed}"
        return _refuse_unsafe(key, engine, renamed_flag) or build_flag_entry(
            key, *renamed_flag.words, why=why, is_changed=True
        )
    if accepted_flags and faults:
        return _refuse_fork_flag(key, name, faults, accepted_flags)
    if refused := _refuse_unsafe(key, engine, EngineFlag(name, words[1:])):
        return refused
    if name in {"--max-num-seqs", "--max-running-requests"}:
        why = "the engine's limit of requests; the plan reserves memory for --concurrency"
        return build_flag_entry(key, *words, why=why)
    if name in {"--max-num-batched-tokens", "--chunked-prefill-size"}:
        return build_flag_entry(
            key, *words, why="the engine's own flag; the plan's memory is for medley's value"
        )
    return build_flag_entry(key, *words)


def _refuse_fork_flag(
    key: str, name: str, faults: Sequence[ArgumentFault], accepted_flags: AcceptedFlags
) -> RecipeEntry:
    (first, *_) = faults
    if first.value is None:
        renamed = FLAG_REPLACEMENTS.get(accepted_flags.engine, {}).get(name)
        return RecipeEntry(key, "refused", renamed or first.cause, needs_fork=renamed is None)
    advice = f"; {first.advice}" if first.advice.startswith("did you mean") else ""
    argument = f"{first.argument} {first.value}" if first.argument != name else first.value
    return RecipeEntry(
        key,
        "refused",
        f"{accepted_flags.title} does not have {argument}: {first.cause}{advice}",
        needs_fork=True,
    )


def _list_option_entries(
    key: str, name: str, flag: EngineFlag, engine: EngineName, accepted_flags: AcceptedFlags | None
) -> Iterator[RecipeEntry]:
    if name == "--eplb":
        yield build_option_entry(key, name)
        return
    if not flag.values:
        yield RecipeEntry(key, "refused", "it has no value")
        return
    first, *more = flag.values
    yield _OPTION_CONVERTERS.get(name, build_option_entry)(key, name, first)
    if more:
        yield RecipeEntry(key, "refused", f"medley accepts one value: {' '.join(more)} is left out")
    if name == "--kv-type" and first not in _FP8_TYPES | {"auto"}:
        yield _carry_flag(key, _normalize_name(flag.name, accepted_flags), flag, engine, accepted_flags)


def _convert_host(key: str, name: str, value: str) -> RecipeEntry:
    is_open = value in {"0.0.0.0", "::"}  # noqa: S104 - read, and bound to nothing here
    why = "requests from other hosts then need the API key that medley makes" if is_open else "the same"
    return build_option_entry(key, name, value, why=why)


def _create_number_converter(max_number: int) -> Callable[[str, str, str], RecipeEntry]:
    def convert_number(key: str, name: str, value: str) -> RecipeEntry:
        if re.fullmatch(r"[0-9]{1,5}", value) and 1 <= int(value) <= max_number:
            return build_option_entry(key, name, value)
        return RecipeEntry(key, "refused", f"{value} is not a number from 1 to {max_number}")

    return convert_number


def _convert_context(key: str, name: str, value: str) -> RecipeEntry:
    if value in {"auto", "-1"}:
        return RecipeEntry(key, "decided", "the plan finds the longest context that fits")
    match = _TOKEN_COUNT_PATTERN.fullmatch(value)
    # vLLM reads 32k as 32,000 and 32K as 32,768.
    tokens = int(float(match[1]) * _TOKEN_UNITS[match[2]]) if match else 0
    if not 16 <= tokens <= _MAX_CONTEXT_TOKENS:  # noqa: PLR2004 - what --context takes
        return RecipeEntry(
            key, "refused", f"{value} is not a number of tokens from 16 to {_MAX_CONTEXT_TOKENS:,}"
        )
    return build_option_entry(
        key, name, str(tokens), why="the plan reserves it for each stream, or reports what is missing"
    )


def _convert_kv_type(key: str, name: str, value: str) -> RecipeEntry:
    if value == "auto":
        return RecipeEntry(key, "decided", "medley's default is the model's own type too")
    if value in _FP8_TYPES:
        return build_option_entry(key, name, "fp8", why="the plan counts half of 16 bits")
    if value == "fp8_e5m2":
        return build_option_entry(
            key, name, "fp8", why="the plan counts 8 bits; the engine's flag chooses the format"
        )
    return RecipeEntry(
        key, "decided", f"the plan does not know the size of {value}, and counts the model's own type"
    )


_OPTION_CONVERTERS: Mapping[str, Callable[[str, str, str], RecipeEntry]] = {
    **dict.fromkeys(("--tp", "--pp", "--dp"), _create_number_converter(_MAX_RANKS)),
    "--port": _create_number_converter(_MAX_PORT),
    "--host": _convert_host,
    "--context": _convert_context,
    "--kv-type": _convert_kv_type,
}
