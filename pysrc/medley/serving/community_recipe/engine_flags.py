"""Turn the flags of a recipe's command into medley's options and the engine's own flags."""

import re
from collections.abc import Callable, Iterator, Mapping

from medley.schema import EngineName
from medley.serving.community_recipe import RULES, Entry, engine_flag, option, reasons
from medley.serving.community_recipe.shell_command import EngineCommand, EngineFlag, needs_shell

_OPTIONS = {name: option for option, names in RULES["flags"]["options"].items() for name in names}
_DECIDED, _REFUSED = reasons("flags", "decided"), reasons("flags", "refused")
_OPENING = tuple(RULES["flags"]["opening"]["names"])
_OPENS = "it runs the author's code or opens the server: if you want that, add it after --"
# The plugin file that defines such a parser.
_PLUGINS: Mapping[str, str] = {
    "--reasoning-parser": "--reasoning-parser-plugin",
    "--tool-call-parser": "--tool-parser-plugin",
}
_LOADERS = {"fastsafetensors", "instanttensor"}
_ATTENTION = {"--enable-dp-attention", "--enable-dp-lm-head"}
_PATH = re.compile(r"(~|\.{1,2})?/|[^{\s]*\.(jinja2?|py|ya?ml|json|so)$")
_TOKENS = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)([kKmM]?)")
_UNITS: Mapping[str, int] = {"": 1, "k": 1000, "K": 1 << 10, "m": 1_000_000, "M": 1 << 20}
_FP8 = {"fp8", "fp8_e4m3"}
_SHORTEST = 8
"""The shortest prefix that counts, because argparse accepts prefixes of a flag."""
_MOST_RANKS, _LONGEST, _LAST_PORT = 64, 10_000_000, 65_535


def flag_entries(command: EngineCommand, model: str) -> Iterator[Entry]:
    """Yield the outcome of each flag; `model` is the recipe's, which the command may repeat."""
    names = {_canonical(flag.name) for flag in command.flags}
    for flag in command.flags:
        name, key = _canonical(flag.name), f"command {flag.name}"
        if name in {"--model", "--model-path"}:
            yield named_model(key, " ".join(flag.values), model)
        elif refusal := _refusal(name, flag, command.engine, names):
            yield Entry(key, "refused", refusal)
        elif name in _DECIDED:
            yield Entry(key, "decided", _DECIDED[name])
        elif name in _OPTIONS and not (_OPTIONS[name] == "--dp" and names & _ATTENTION):
            yield from _option(key, _OPTIONS[name], flag)
        else:
            yield _own(key, name, flag)


def _canonical(name: str) -> str:
    """Return a flag's name as the engines' parsers read it: --max_num_seqs is --max-num-seqs."""
    return name.replace("_", "-") if name.startswith("--") and "." not in name else name


def _refusal(name: str, flag: EngineFlag, engine: EngineName, names: set[str]) -> str | None:
    """Return why a flag is left out; `names` are all flags of its command."""
    if name in _REFUSED:
        return _REFUSED[name]
    begins = len(name) >= _SHORTEST and any(each.startswith(name) for each in _OPENING)
    if begins or any("trust_remote_code" in value for value in flag.values):
        return _OPENS
    if _PLUGINS.get(name) in names:
        return f"it needs the file of {_PLUGINS[name]}, which is left out"
    if name == "--load-format" and engine == "sglang" and _LOADERS & set(flag.values):
        return f"the package {flag.values[0]} is not in medley's SGLang; its default loads the same weights"
    return next(filter(None, (_unusable(name, value) for value in flag.values)), None)


def _unusable(name: str, value: str) -> str | None:
    if unfilled := re.search(r"\{[A-Za-z_]\w*\}", value):  # JSON has none
        return f"{unfilled[0]} has no value in 'defaults'"
    if needs_shell(value):
        return f"{value} needs a shell: add its value after --"
    if _PATH.match(value):
        return f"{value} is a file in the recipe's image: copy it here, then add -- {name} FILE"
    return None


def named_model(key: str, named: str, model: str) -> Entry:
    """Return the outcome of the model in a command, which sparkrun does not check."""
    if named == model:
        return Entry(key, "decided", "the recipe's model, which medley serve names")
    if f"/models--{model.replace('/', '--')}/snapshots/" in named:
        return Entry(
            key, "decided", "a folder of the hub's cache with the recipe's model; medley downloads it"
        )
    return Entry(key, "refused", f"the recipe's 'model' is {model}, and this is {named}")


def _own(key: str, name: str, flag: EngineFlag) -> Entry:
    if name in {"--max-num-seqs", "--max-running-requests"}:
        why = "the engine's limit of requests; the plan reserves memory for --concurrency"
        return engine_flag(key, *flag.words, why=why)
    if name in {"--max-num-batched-tokens", "--chunked-prefill-size"}:
        return engine_flag(
            key, *flag.words, why="the engine's own flag; the plan's memory is for medley's value"
        )
    return engine_flag(key, *flag.words)


def _option(key: str, name: str, flag: EngineFlag) -> Iterator[Entry]:
    if name == "--eplb":
        yield option(key, name)
        return
    if not flag.values:
        yield Entry(key, "refused", "it has no value")
        return
    first, *more = flag.values
    yield _READERS.get(name, option)(key, name, first)
    if more:
        yield Entry(key, "refused", f"medley accepts one value: {' '.join(more)} is left out")
    if name == "--kv-type" and first not in _FP8 | {"auto"}:
        yield engine_flag(key, *flag.words)


def _host(key: str, name: str, value: str) -> Entry:
    opened = value in {"0.0.0.0", "::"}  # noqa: S104 - read, and bound to nothing here
    why = "requests from other hosts then need the API key that medley makes" if opened else "the same"
    return option(key, name, value, why=why)


def _within(last: int) -> Callable[[str, str, str], Entry]:
    def read(key: str, name: str, value: str) -> Entry:
        if re.fullmatch(r"[0-9]{1,5}", value) and 1 <= int(value) <= last:
            return option(key, name, value)
        return Entry(key, "refused", f"{value} is not a number from 1 to {last}")

    return read


def _context(key: str, name: str, value: str) -> Entry:
    if value in {"auto", "-1"}:
        return Entry(key, "decided", "the plan finds the longest context that fits")
    match = _TOKENS.fullmatch(value)
    # vLLM reads 32k as 32,000 and 32K as 32,768.
    tokens = int(float(match[1]) * _UNITS[match[2]]) if match else 0
    if not 16 <= tokens <= _LONGEST:  # noqa: PLR2004 - what --context takes
        return Entry(key, "refused", f"{value} is not a number of tokens from 16 to {_LONGEST:,}")
    return option(
        key, name, str(tokens), why="the plan reserves it for each stream, or reports what is missing"
    )


def _kv_type(key: str, name: str, value: str) -> Entry:
    if value == "auto":
        return Entry(key, "decided", "medley's default is the model's own type too")
    if value in _FP8:
        return option(key, name, "fp8", why="the plan counts half of 16 bits")
    if value == "fp8_e5m2":
        return option(key, name, "fp8", why="the plan counts 8 bits; the engine's flag chooses the format")
    return Entry(
        key, "decided", f"the plan does not know the size of {value}, and counts the model's own type"
    )


_READERS: Mapping[str, Callable[[str, str, str], Entry]] = {
    **dict.fromkeys(("--tp", "--pp", "--dp"), _within(_MOST_RANKS)),
    "--port": _within(_LAST_PORT),
    "--host": _host,
    "--context": _context,
    "--kv-type": _kv_type,
}
