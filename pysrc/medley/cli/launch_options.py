"""Switches of verbs that launch: goal, sizes, trusted code, hosts, GPUs, launcher, container."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from plumbum import cli

from medley.cli import flag, switch
from medley.cli.output import print_message
from medley.environment.container_image import ImageRequest
from medley.host.hypothetical import build_hosts
from medley.host.kind import SiteHost, find_kind, read_facts_by_host
from medley.host_schema import ENGINE_TABLES
from medley.model.trust import Trust
from medley.network.fabric.choice import NetworkOptions
from medley.planner.candidates import ForcedSizes
from medley.planner.context import (
    allows_longer_context,
)
from medley.planner.placement import PlacementOptions
from medley.planner.plan import Launcher
from medley.planner.site import Site
from medley.schema import (
    DEFAULT_ENGINE,
    EngineName,
)
from medley.serving.request import LaunchRequest
from medley.serving.site import find_this_host

THROUGHPUT_STREAMS = 32
"""Streams of a user who wants throughput and gives no number: one stream shares no batch."""


@dataclass(frozen=True)
class PlanningOptions:
    goal: Literal["latency", "throughput", "context"] = switch(
        "--for GOAL", "latency (speed of one stream), throughput or context", default="latency"
    )
    concurrency: int | None = switch(
        "--concurrency N", f"concurrent streams [default: 1; for throughput {THROUGHPUT_STREAMS}]", (1, 4096)
    )
    context: int | None = switch(
        "--context TOKENS",
        "context length per stream, in tokens [default: 8192, and more if it fits]",
        (16, 10_000_000),
    )
    tensor: int | None = switch("--tp N", "tensor parallel size: ranks that share each layer", (1, 64))
    stages: int | None = switch("--pp N", "pipeline parallel size: stages of some layers each", (1, 64))
    replicas: int | None = switch("--dp N", "data parallel size: copies of the whole model", (1, 64))
    transport: Literal["tcp", "rdma"] | None = switch(
        "--transport KIND", "tcp or rdma [default: the faster one that all hosts have]"
    )
    engine: EngineName | None = switch(
        "--engine ENGINE", "vllm or sglang [default: the cluster's, else vllm]"
    )
    eplb: bool = flag("--eplb", "expert parallel, with a load balancer for experts")
    kv_type: Literal["auto", "fp8"] = switch(
        "--kv-type TYPE", "data type of the KV cache: auto (the model's own) or fp8", default="auto"
    )

    def build_placement(self, *, link: str | None = None, gpus: str | None = None) -> PlacementOptions:
        """Return the placement options of these switches."""
        engine = self.engine or DEFAULT_ENGINE
        return PlacementOptions(
            self.goal,
            self.concurrency or (THROUGHPUT_STREAMS if self.goal == "throughput" else 1),
            self.context,
            ForcedSizes(self.tensor, self.stages, self.replicas),
            gpus=gpus,
            network=NetworkOptions(link, transport=self.transport),
            partition=os.environ.get(ENGINE_TABLES[engine].partition_variable),
            allows_longer_context=allows_longer_context(os.environ, engine),
            engine=engine,
            kv_type=self.kv_type,
            balances_experts=self.eplb,
        )


TRUST_SWITCHES = {
    "is_given": flag(
        "--trust-remote-code",
        "run the code that comes with the model, pinned at first use",
        excludes=["--no-remote-code"],
    ),
    "pin": switch(
        "--code-revision PIN",
        "commit of that code, or for a folder the SHA-256 that serve prints",
        requires=["--trust-remote-code"],
    ),
    "draft_pins": switch(
        "--draft-code SHA256",
        "SHA-256 of the code of a draft model or tokenizer in the command, to run that code too",
        requires=["--trust-remote-code"],
    ),
    "is_refused": flag("--no-remote-code", "use only the engine's own code for the model"),
}
"""The switches of a Trust, by its fields."""


@dataclass(frozen=True)
class HostOptions:
    gpus: str | None = switch("--gpus LIST", "GPU indices as in nvidia-smi: 0 or 0,1 or all")
    kind: str | None = switch("--kind KIND", "kind of this host, such as spark [default: detected]")
    environment: str | None = switch("--env ENV", "engine environment or virtualenv to use")
    hosts: str | None = switch(
        "--hosts N", "number of hosts of the cluster, or that will join; 1: only this one"
    )
    launcher: Launcher | None = switch(
        "--launcher LAUNCHER",
        "launcher on several hosts: ray, or mp with medley join [default: ray on a head]",
        check=cli.Set("ray", "mp", "solo"),  # those of several hosts first
    )
    wait_s: int | None = switch("--wait SECONDS", "time limit for hosts to join, in seconds", (0, 86_400))
    join_port: int = switch("--join-port PORT", "port for medley join", (1, 65_535), default=24_010)
    unplanned: bool = flag("--unplanned", "use --tp and --pp without a check of memory")

    def build_request(
        self, model: str, planning: PlanningOptions, trust: Trust, user_command: tuple[str, ...]
    ) -> LaunchRequest:
        """Return the request of these switches; `user_command`: the whole command, from `medley` on."""
        return LaunchRequest(
            model,
            planning.build_placement(gpus=self.gpus),
            user_command=user_command,
            trust=trust,
            engine=planning.engine,
            launcher=self.launcher,
            hosts=self.hosts,
            wait_s=self.wait_s,
            join_port=self.join_port,
            kind=self.kind,
            environment=self.environment,
            is_unplanned=self.unplanned,
        )


_REQUIRES_IMAGE = ["--image"]


@dataclass(frozen=True)
class ContainerOptions:
    image: str | None = switch(
        "--image IMAGE",
        "container image for the engine; default takes the one for this kind of host",
        excludes=["--env"],
    )
    program: Literal["docker", "podman"] | None = switch(
        "--container PROGRAM",
        "docker or podman [default: the one that has the image]",
        requires=_REQUIRES_IMAGE,
    )
    nccl: str | None = switch("--nccl FILE", "libnccl.so.2 to use instead of the engine's own")
    mounts: tuple[str, ...] = switch(
        "--mount PATH[:INSIDE]", "path to mount in the container", requires=_REQUIRES_IMAGE
    )

    def build_image_request(self) -> ImageRequest | None:
        """Return the request for the container image; None without --image."""
        return None if self.image is None else ImageRequest(self.image, self.program, self.nccl, self.mounts)


def read_site(files: Iterable[str], kinds: str | None = None, kind_name: str | None = None) -> Site:
    """Return the hosts of these transcripts, or of kinds such as spark:2, or this host.

    `kind_name`: the kind of all of them, if the user gave it.
    """
    files = tuple(files)
    if kinds is None and not files:
        return find_this_host(kind_name, print_message)
    host_facts = read_facts_by_host(files) if kinds is None else build_hosts(kinds)
    hosts = {name: SiteHost(facts, find_kind(facts, kind_name)) for name, facts in host_facts.items()}
    for name, host in hosts.items():
        if host.kind.warning and kinds is None:
            print_message(f"{name}: {host.kind.warning}" if len(hosts) > 1 else host.kind.warning)
    return Site(hosts)
