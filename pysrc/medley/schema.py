"""pydantic models of hosts/ and models/ tables.

These classes are the only validator of the TOML tables; Nix reads hosts/*.toml without one.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

System = Literal["x86_64-linux", "aarch64-linux"]
EngineName = Literal["vllm", "sglang"]
TITLES: Mapping[EngineName, str] = {"vllm": "vLLM", "sglang": "SGLang"}
"""The name of each engine's project."""
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
Weights = Literal["bf16", "fp8", "mxfp4", "nvfp4", "awq", "int8", "int4"]
Version = Annotated[str, Field(pattern=r"^\d+(\.\d+)+$")]
Capability = Annotated[str, Field(pattern=r"^\d+\.\d$")]
Major = Annotated[str, Field(pattern=r"^\d+$")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Commit = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
ENGINE_VARIABLE = (
    r"^(VLLM|SGLANG|SGL|FLASHINFER|TORCH|PYTORCH|TORCHINDUCTOR|TORCHDYNAMO|NCCL|CUDA|OMP|MKL|TRITON|TILELANG"
    r"|CUTE_DSL|DG_JIT|SAFETENSORS|TOKENIZERS)_[A-Z0-9_]+$"
)
"""Variables of the engines and their libraries that do not load other code."""
REPOSITORY = r"^[\w.-]+/[\w.-]+$"


class StrictTable(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Recognise(StrictTable):
    """Signs of a kind of host; all of them must hold. Without any: every host."""

    system: System | None = None
    soc: str | None = None
    """A word of /proc/device-tree/compatible, such as `tegra264`."""
    l4t: tuple[Annotated[str, Field(pattern=r"^\d+$")], ...] = ()
    """Major releases of L4T, from /etc/nv_tegra_release."""
    gpu: str | None = None
    """A word of the GPU's name in nvidia-smi; empty: any NVIDIA GPU."""
    capability: tuple[Capability, ...] = ()


class ToolkitTable(StrictTable):
    """The CUDA toolchain that Nix pins for a kind of host."""

    cuda: Annotated[str, Field(pattern=r"^\d+\.\d+$")]
    """The version of nixpkgs' package set: 13.0 is cudaPackages_13_0."""
    capability: Capability | None = None
    """The compute capability that nixpkgs builds for [default: nixpkgs' own]."""
    arch_list: Annotated[str, Field(pattern=r"^\d+\.\d[af]?$")] | None = None
    """TORCH_CUDA_ARCH_LIST [default: torch asks the GPU]."""
    least_nvcc: Version | None = None
    """The oldest nvcc with which engines compile for this GPU [default: any]."""
    nccl: bool = False
    """Whether it needs the flake's NCCL between hosts, because the wheels' does not start here."""


class Driver(StrictTable):
    """The folders of the NVIDIA driver's libraries on this kind of host."""

    directories: tuple[str, ...] = ()
    """Folders with only driver libraries."""
    shared_directories: tuple[str, ...] = ()
    """System folders, of which only libcuda and libnvidia-* are used."""


class MemoryTable(StrictTable):
    unified: bool
    """Whether CPU and GPU share memory, so that /proc/meminfo has the GPU's memory too."""
    cache_in_bytes: tuple[EngineName, ...] = ()
    """Engines that get the size of the KV cache in bytes here, because they count page cache as their own."""


class Image(StrictTable):
    """An image of an engine, which nobody has run for this project unless its source says so."""

    image: str | None = None
    """The image of `--image default`."""
    holds: Mapping[Literal[EngineName, "ray", "python", "cuda"], Version] = {}
    """Versions in that image, as far as documented."""
    lacks: tuple[Literal["ray", "nvcc"], ...] = ()
    """Programs that are known to be missing in it."""
    source: str | None = None
    """The source of these versions: its tag, or its release notes."""
    l4t: Version | None = None
    """The oldest release of L4T that runs it, such as 36.4."""
    not_locked: str | None = None
    """Why its engine is of another version than the lock's."""


class Container(Image):
    """How this kind of host runs an engine in a container."""

    nvidia_runtime: bool = False  # only NVIDIA's own runtime passes its GPU to a container
    older: tuple[Image, ...] = ()
    """Images for hosts with an older L4T, the newest first."""


class _Rule(StrictTable):
    """The models that a rule is for: all conditions must hold, and an empty one does."""

    engine: EngineName  # the engine that it is for
    experts: tuple[Weights, ...] = ()
    """How the model's experts are stored; with any format, models without experts are left out."""
    weights: tuple[Weights, ...] = ()
    """The format of most weights."""
    architectures: tuple[str, ...] = ()
    """`model_type` of the model's config.json."""
    cache: Literal["fp8"] | None = None
    """The format of its KV heads in the cache; a latent is not one."""
    without_nvcc: bool = False
    """Only where neither the engine's environment or image nor the host has a compiler for CUDA."""
    gpus: tuple[Major, ...] = ()
    """Major compute capabilities of the host's GPUs."""
    source: str
    """Where the reason was seen or read."""


class Arguments(_Rule):
    """Flags and variables of an engine on a kind of host."""

    flags: tuple[str, ...] = ()  # the flags; the user's own win
    variables: Mapping[Annotated[str, Field(pattern=ENGINE_VARIABLE)], str] = {}
    """The variables; the user's own win."""
    hosts: Literal["any", "all", "several"] = "any"
    """`any`: one such host is enough; `all`: every host must have it; `several`: `any` of several hosts."""
    unless: tuple[str, ...] = ()
    """Flags of the user's that exclude it."""
    why: str  # the reason, which a plan prints


class Incompatible(_Rule):
    """Models that an engine cannot run in a layout with such a host."""

    because: str
    """The reason, after the engine's name: `SGLang 0.5.23 has no ...`."""
    before: Version | None = None
    """The first version of the engine without the fault [default: no release yet]."""
    fix: str | None = None
    """A command for the host, after which the model runs."""


class Power(StrictTable):
    """A Jetson's power modes, as nvpmodel names them."""

    fastest: tuple[Annotated[str, Field(pattern=r"^[A-Z0-9_]+$")], ...] = ()
    """The modes without a limit, those of newer releases first."""


class Loading(StrictTable):
    """How this kind of host loads weights from disk to GPU."""

    gb_s: Annotated[float, Field(gt=0)] | None = None
    """Measured speed per rank."""
    source: str | None = None
    """The source of the measurement."""
    loader: Mapping[EngineName, str] = {}
    """The fastest --load-format of each engine, if not its default."""
    buffer_gib: Annotated[float, Field(ge=0)] = 0
    """Memory of such a loader besides the weights: twice the largest file of a model."""


class HostTable(StrictTable):
    """A kind of host: hosts/KIND.toml."""

    title: str
    systems: Annotated[tuple[System, ...], Field(min_length=1)]
    device: Literal["cuda", "cpu"]
    recognise: Recognise
    memory: MemoryTable
    environments: Mapping[EngineName, str] = {}
    """The engine environment (locks/NAME.toml) of each engine on this kind of host."""
    no_environment: str | None = None
    """Why there is no engine environment, and the alternative; printed to the user."""
    upgrade: str | None = None
    """The upgrade after which an engine environment is available, in a few words."""
    toolkit: ToolkitTable | None = None
    driver: Driver = Driver()
    power: Power = Power()
    container: Container = Container()
    loading: Loading = Loading()
    arguments: tuple[Arguments, ...] = ()
    """Flags and variables of every rank of a layout, because the first rank chooses kernels for all."""
    incompatible: tuple[Incompatible, ...] = ()
    """Engine and model that do not run here; read in the engines of the locks, and in the default image."""
    capability: Capability | None = None  # where the driver does not report it: Jetson's on r36


class Made(StrictTable):
    """A model with random weights that medley makes itself."""

    layers: Annotated[int, Field(ge=1, le=64)]
    hidden: Annotated[int, Field(ge=32, le=1024, multiple_of=32)]
    heads: Annotated[int, Field(ge=1)]
    kv_heads: Annotated[int, Field(ge=1)]
    head_dim: Annotated[int, Field(ge=16, le=256)]
    intermediate: Annotated[int, Field(ge=32)]
    vocabulary: Annotated[int, Field(ge=512, le=11_000)]
    context: Annotated[int, Field(ge=128)]
    seed: int


class Capabilities(StrictTable):
    """Major compute capabilities for which each engine supports a model's attention [default: all]."""

    vllm: tuple[Major, ...] = ()
    sglang: tuple[Major, ...] = ()


class StateCopies(StrictTable):
    """States that each engine reserves for a sequence, where it must be given their number."""

    vllm: Annotated[int, Field(ge=1)] = 1  # those of vLLM
    sglang: Annotated[int, Field(ge=1)] = 1  # those of SGLang

    @property
    def most(self) -> int:
        """The number of the planned engine, as the planner leaves 1 for the other."""
        return max(self.vllm, self.sglang)


class LongContext(StrictTable):
    """A longer context than config.json gives, by the maker's own guide."""

    tokens: Annotated[int, Field(ge=1)] = 1
    """The longest sequence that the maker serves."""
    vllm: tuple[str, ...] | None = None
    """The flags that it needs on vLLM besides --context, maybe none [default: not known to work]."""
    sglang: tuple[str, ...] | None = None
    """The same on SGLang."""


class Shape(StrictTable):
    """The size of a model as stored, with all scales, in bytes."""

    layers: Annotated[int, Field(ge=1)]
    hidden: Annotated[int, Field(ge=1)]
    heads: Annotated[int, Field(ge=1)]
    kv_heads: Annotated[int, Field(ge=1)]
    head_dim: Annotated[int, Field(ge=1)]
    vocabulary: Annotated[int, Field(ge=1)]
    context: Annotated[int, Field(ge=1)]
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
    kv_bits: Literal[8, 16] = 16
    """Bits of a number in the KV cache."""
    state_bytes: int = 0
    """Recurrent state of one sequence, over all layers."""
    state_copies: StateCopies = StateCopies()
    host_table_bytes: int = 0
    """The part of embedding_bytes that engines keep in the host's memory next to a GPU with its own."""
    weights: Weights = "bf16"
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


class RemoteCode(StrictTable):
    """Code in a model's repository, which an engine runs only if the user trusts it."""

    needed: bool
    """False where engines support the model without the code that its config.json names."""
    commit: Commit | None = None
    """The reviewed commit [default: the user's first use pins one]."""
    files: Mapping[str, Sha256] = {}


class ExtraFile(StrictTable):
    """A file that an engine needs besides the weights."""

    kind: Literal["reasoning-parser-plugin", "chat-template", "tiktoken"]
    what: str
    """Its purpose, in a few words."""
    name: Annotated[str, Field(pattern=r"^\w[\w.-]*$")]
    """The file name that an engine expects."""
    sha256: Sha256
    url: Annotated[str, Field(pattern=r"^https?://")] | None = None
    repository: Annotated[str, Field(pattern=REPOSITORY)] | None = None
    """Its repository on the model hub, with the file `name` at this commit."""
    commit: Commit | None = None

    @model_validator(mode="after")
    def _one_source(self) -> "ExtraFile":
        if (self.url is None) == (self.repository is None) or (self.repository is None) != (
            self.commit is None
        ):
            raise ValueError("it needs a url, or a repository and its commit")
        return self


class Model(StrictTable):
    """A known model: models/NAME.toml."""

    title: str
    repository: Annotated[str, Field(pattern=REPOSITORY)] | None = None
    """ORG/NAME on the model hub."""
    architecture: str | None = None
    """`model_type` of its config.json."""
    aliases: tuple[str, ...] = ()
    """Other names that a user may type."""
    license: str | None = None
    """The hub's name of its license, such as apache-2.0 or mit."""
    made: Made | None = None
    shape: Shape | None = None
    tool_parser: ToolParser | None = None
    """The format of its tool calls."""
    reasoning_parser: ReasoningParser | None = None
    """The format of its reasoning."""
    args: Mapping[EngineName, tuple[str, ...]] = {}
    """Flags of an engine on every kind of host, in addition to a plan's."""
    env: Mapping[EngineName, Mapping[Annotated[str, Field(pattern=ENGINE_VARIABLE)], str]] = {}
    """Variables of an engine; medley's own and the user's win."""
    since: Mapping[EngineName, Version] = {}
    """The first version of each engine that supports it, because an image may have an older one."""
    eager: bool = False
    """Whether compiling costs this model more than it gains."""
    remote_code: RemoteCode | None = None
    needs: tuple[ExtraFile, ...] = ()

    @model_validator(mode="after")
    def _name_architecture(self) -> "Model":
        """Give the shape the table's architecture, because rules of hosts/ see only the shape."""
        if self.shape and self.shape.architecture is None:
            # A frozen model is complete only after its validators.
            self.__dict__["shape"] = self.shape.model_copy(update={"architecture": self.architecture})
        return self

    @model_validator(mode="after")
    def _trusts_nothing(self) -> "Model":
        if any("trust-remote-code" in word.replace("_", "-") for each in self.args.values() for word in each):
            raise ValueError(
                "only the user can trust code, with --trust-remote-code; a table has [remote_code]"
            )
        return self

    @model_validator(mode="after")
    def _one_source(self) -> "Model":
        if (self.repository is None) == (self.made is None):
            raise ValueError("it needs either a repository or a [made] table")
        return self
