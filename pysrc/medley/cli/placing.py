"""The switches of verbs that place a model: what it is for, how much at once, and how it is cut."""

import os
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from plumbum import cli

from medley.cli.besides import Besides

if TYPE_CHECKING:  # imported when a verb runs, to keep `medley --help` fast
    from medley.placement import Wanted
    from medley.tables import Engine, Shape
    from medley.weights import Weights


THROUGHPUT_STREAMS = 32
"""Of who wants throughput and names no number: one stream has nothing to share a batch with."""


class Placing(Besides):
    goal = cli.SwitchAttr(
        "--for",
        cli.Set("latency", "throughput", "context"),
        "latency",
        argname="GOAL",
        help="latency (one stream's speed, the default), throughput, or context",
    )
    concurrency = cli.SwitchAttr(
        "--concurrency",
        cli.Range(1, 4096),
        argname="N",
        help=f"streams at once; default: 1, and {THROUGHPUT_STREAMS} for throughput",
    )
    context = cli.SwitchAttr(
        "--context",
        cli.Range(16, 10_000_000),
        argname="TOKENS",
        help="that must fit for each stream; default: 8192 must, and more is used where it fits",
    )
    tensor = cli.SwitchAttr(
        "--tp", cli.Range(1, 64), argname="N", help="force tensor parallel: so many ranks share each layer"
    )
    stages = cli.SwitchAttr(
        "--pp", cli.Range(1, 64), argname="N", help="force pipeline parallel: stages of some layers each"
    )
    replicas = cli.SwitchAttr(
        "--dp", cli.Range(1, 64), argname="N", help="force replicas (data parallel): so many copies of all"
    )
    transport = cli.SwitchAttr(
        "--transport", cli.Set("tcp", "rdma"), argname="KIND", help="tcp or rdma; default: what all hosts can"
    )

    engine = cli.SwitchAttr(
        "--engine",
        cli.Set("vllm", "sglang"),
        argname="ENGINE",
        help="vllm or sglang; default: vllm, or what the cluster has",
    )
    eplb = cli.Flag("--eplb", help="expert parallel, with the load balancer that moves busy experts")
    kv_type = cli.SwitchAttr(
        "--kv-type",
        cli.Set("auto", "fp8"),
        "auto",
        argname="TYPE",
        help="of the KV cache: auto (the model's own, the default), or fp8, half of 16 bits",
    )

    def wanted(
        self,
        engine: "Engine",
        link: str | None = None,
        **more: Any,  # noqa: ANN401 - passed on
    ) -> "Wanted":
        from medley.fabric import Wishes
        from medley.layout.candidates import Sizes
        from medley.layout.order import VARIABLE
        from medley.placement import Wanted

        goal: Any = self.goal
        transport: Any = self.transport  # plumbum has seen to it that these are of their sets
        kv_type: Any = self.kv_type
        return Wanted(
            goal,
            self.concurrency or (THROUGHPUT_STREAMS if goal == "throughput" else 1),
            self.context,
            Sizes(self.tensor, self.stages, self.replicas),
            wishes=Wishes(link, transport=transport),
            partition=os.environ.get(VARIABLE[engine]),
            engine=engine,
            kv_type=kv_type,
            balanced=self.eplb,
            **more,
        )


def shape_of(found: "Weights") -> "Shape":
    """Its shape; what has to be asked of the hub takes a while."""
    from medley.cli.progress import watch
    from medley.shape import shape

    asked = not found.local and not (found.model and found.model.shape)
    with watch().stage(f"ask the hub what {found.target} is made of") if asked else nullcontext():
        return shape(found)
