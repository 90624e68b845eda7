"""The nodes of a model that is started without Ray: what each host's process is told of the one plan."""

from collections.abc import Mapping
from dataclasses import replace

from medley.layout.shapes import Layout
from medley.layout.words import devices, hosts, pipelines
from medley.plan import Nodes, Plan

RANKS_PORT = 24_020
"""Where ranks find each other on the first host, or at a port after it; in the same range as Ray's."""


def nodes(plan: Plan, layout: Layout, addresses: Mapping[str, str], port: int) -> dict[str, Plan]:
    """By host, in the order of their processes: that of the ranks, or of the replicas.

    `addresses`: of each host on the wire they share; `port`: of the first, where its others find it.
    """
    used = hosts(layout)
    on_gpus = devices(layout)[0].kind != "cpu"
    copies = {host: sum(stages[0].devices[0].host == host for stages in pipelines(layout)) for host in used}
    found, before = {}, 0
    for rank, host in enumerate(used):
        own = tuple(device.index for device in devices(layout) if device.host == host)
        found[host] = replace(
            plan,
            nodes=Nodes(len(used), rank, addresses[used[0]], port, addresses[host]),
            gpus=own if on_gpus else (),
            replicas_here=copies[host],
            replicas_before=before,
        )
        before += copies[host]
    return found
