"""Define devices, links, stages, layouts and loads of the planner, and describe them for people."""

from collections.abc import Callable, Iterable
from functools import cache
from itertools import combinations
from typing import Literal, NamedTuple

from medley.values import Value

TENSOR_PARALLEL_MBIT = 10_000
"""Tensor parallel communicates twice a layer: over 10GbE TCP it is known to work (two AGX Orin,
jetson-containers' distributed-inference.md); below, nobody reports a gain."""
_MAX_NAMES = 4
_MBIT_PER_GBIT = 1000

Goal = Literal["latency", "throughput", "context"]


class Load(Value):
    """The steady load of a server: its concurrent streams, and the tokens of each."""

    concurrency: int = 1
    """The number of streams that the server answers concurrently."""
    prompt_tokens: int = 512
    context_tokens: int = 1024
    """The mean number of tokens that attention reads for the next token of a stream."""
    cached_tokens: int = 0
    """The tokens before the prompt that the KV cache has already."""


class Device(Value):
    """One GPU, or the CPU of a host without one; takes one rank."""

    host: str
    index: int
    """The GPU's index on its host, as nvidia-smi counts; 0 for a CPU."""
    kind: str
    """The kind of its host, as in hosts/: spark, thor, rtx …"""
    memory_bytes: int
    """The memory that a rank may take: what is available, less what the system keeps."""
    bandwidth_gb_s: float
    """Memory bandwidth in GB/s: the maker's figure, or a measured speed if `measured`."""
    bf16_tflops: float
    """Dense bfloat16 operations in TFLOPS: the maker's figure, or a measured speed if `measured`."""
    name: str = ""
    """The name that the GPU's driver gives."""
    total_bytes: int | None = None
    """The whole memory, of which a utilization is a share; None where it is unknown."""
    measured: bool = False
    """Whether bandwidth and operations were measured on this device."""
    most_bytes: int | None = None
    """The memory that a rank may take if no layout fits into `memory_bytes`; None: `memory_bytes`."""


class HostLink(Value):
    """The network between two hosts of a layout, at the speed that its links really have."""

    mbit: int
    latency_us: float
    """The latency of a small message one way, in microseconds."""
    rdma: bool = False
    measured: bool = False
    """Whether speed and latency were measured by a collective, software included."""


class Stage(Value):
    """A pipeline stage: consecutive layers, each spread over all of its devices (tensor parallel)."""

    devices: tuple[Device, ...]
    layers: int


class Layout(Value):
    """The pipeline stages of the first replica of a model, and those of the others."""

    stages: tuple[Stage, ...]
    link: HostLink | None = None
    """The network between the hosts; None on one host."""
    other_pipelines: tuple[tuple[Stage, ...], ...] = ()
    """The pipelines of the other replicas (data parallel)."""
    expert_parallel: bool = False


def list_pipelines(layout: Layout) -> tuple[tuple[Stage, ...], ...]:
    """Return the stages of the first pipeline and of each replica."""
    return (layout.stages, *layout.other_pipelines)


def build_pipeline(units: Iterable[tuple[Device, ...]], layers: Iterable[int]) -> tuple[Stage, ...]:
    """Return one stage for each tuple of devices, with its number of layers."""
    return tuple(Stage(devices, count) for devices, count in zip(units, layers, strict=True))


def list_devices(layout: Layout) -> tuple[Device, ...]:
    """Return the devices in the order of ranks, one replica after the other."""
    return tuple(device for stages in list_pipelines(layout) for stage in stages for device in stage.devices)


def list_hosts(layout: Layout) -> tuple[str, ...]:
    """Return the names of the hosts in the order of ranks."""
    return tuple(dict.fromkeys(device.host for device in list_devices(layout)))


def runs_on_cpu(layout: Layout) -> bool:
    """Return whether CPUs run the layout: no engine runs one model on CPUs and GPUs."""
    return layout.stages[0].devices[0].kind == "cpu"


class ParallelSizes(NamedTuple):
    """The sizes of the three ways to run a model in parallel; their product is the number of ranks."""

    tensor_parallel: int
    """The number of ranks in a stage."""
    stages: int
    """The number of pipeline stages."""
    replicas: int
    """The number of whole copies of the model (data parallel)."""


def count_parallel_sizes(layout: Layout) -> ParallelSizes:
    """Return the numbers of ranks in a stage, of stages and of replicas."""
    return ParallelSizes(
        max(len(stage.devices) for stage in layout.stages), len(layout.stages), len(list_pipelines(layout))
    )


def format_layers(layout: Layout) -> str:
    """Return the layers of each stage as engines take them: 47,46."""
    return ",".join(str(stage.layers) for stage in layout.stages)


def describe_split(layout: Layout) -> str:
    """Describe how the model is split; empty for one device."""
    tensor_parallel, stages, replicas = count_parallel_sizes(layout)
    parts = [
        *([f"tensor parallel {tensor_parallel}"] if tensor_parallel > 1 else []),
        *(["expert parallel"] if layout.expert_parallel else []),
        *([f"{stages} stages of {format_layers(layout)} layers"] if stages > 1 else []),
        *([f"{replicas} replicas"] if replicas > 1 else []),
    ]
    return ", ".join(parts)


def describe_layout(layout: Layout) -> str:
    """Describe the split and the hosts, with the GPU indexes where they are not only 0."""
    places = []
    for host, devices in group_by_host(list_devices(layout)).items():
        indexes = [device.index for device in devices]
        places.append(host if indexes == [0] else f"{host} ({', '.join(map(str, indexes))})")
    split = describe_split(layout)
    return f"{split} on {join_names(places)}" if split else f"{join_names(places)} alone"


def join_names(names: Iterable[str]) -> str:
    """Join the names of hosts by commas, and replace the middle of a long list with its length."""
    host_names = list(names)
    if len(host_names) <= _MAX_NAMES:
        return ", ".join(host_names)
    return f"{', '.join(host_names[: _MAX_NAMES - 1])} … {host_names[-1]} ({len(host_names)} hosts)"


def group_by_host(devices: Iterable[Device]) -> dict[str, list[Device]]:
    """Return the devices of each host; hosts and devices keep their order."""
    groups: dict[str, list[Device]] = {}
    for device in devices:
        groups.setdefault(device.host, []).append(device)
    return groups


def describe_link(link: HostLink) -> str:
    """Describe speed and transport: 200 Gbit/s RDMA."""
    speed = f"{link.mbit / _MBIT_PER_GBIT:g} Gbit/s" if link.mbit >= _MBIT_PER_GBIT else f"{link.mbit} Mbit/s"
    return f"{speed} {'RDMA' if link.rdma else 'TCP'}"


LinkFinder = Callable[[str, str], HostLink | str | None]
"""Finds the link between two hosts; None where they have none, or the reason why they cannot use theirs."""

GroupLinkFinder = Callable[[frozenset[str]], HostLink | str]
"""Finds the network between three hosts or more, or the reason why there is none.

A chain of cables carries less between three hosts than between the two ends of each cable."""

SlowestLinkFinder = Callable[[Iterable[str]], HostLink | str | None]
"""Finds the slowest link in a group of hosts, the reason why there is none, or None for a single host."""


def build_group_finder(
    find_link: LinkFinder, find_group_link: GroupLinkFinder | None = None
) -> SlowestLinkFinder:
    """Return a function that finds the slowest link in a group of hosts, and caches it."""
    find_link = cache(find_link)

    @cache
    def find_slowest_link(names: frozenset[str]) -> HostLink | str | None:
        slowest_link: HostLink | None = None
        for first_host, second_host in combinations(sorted(names), 2):
            link = find_link(first_host, second_host)
            if not isinstance(link, HostLink):
                return f"{first_host} and {second_host} {link or 'have no link'}"
            slowest_link = combine_links(slowest_link, link)
        if slowest_link is None or find_group_link is None or len(names) == 2:  # noqa: PLR2004 - a pair's own link
            return slowest_link
        group_link = find_group_link(names)
        if isinstance(group_link, str):
            return group_link
        if group_link.rdma == slowest_link.rdma:
            return slowest_link
        return combine_links(slowest_link, group_link)

    return lambda hosts: find_slowest_link(frozenset(hosts))


def combine_links(first: HostLink | None, second: HostLink) -> HostLink:
    """Return a link with the worse of both speeds, latencies and transports."""
    if first is None:
        return second
    return HostLink(
        mbit=min(first.mbit, second.mbit),
        latency_us=max(first.latency_us, second.latency_us),
        rdma=first.rdma and second.rdma,
        measured=first.measured and second.measured,
    )


def is_fast_link(link: HostLink | None) -> bool:
    """Return whether tensor parallel over this link may gain speed; None: all ranks are on one host."""
    return link is None or link.rdma or link.mbit >= TENSOR_PARALLEL_MBIT
