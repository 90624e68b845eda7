"""Place ranks by the user's sizes alone, for a model whose shape is unknown."""

from medley.errors import Problem
from medley.planner import Layout, Stage, join_names, list_hosts
from medley.planner.placement import PlacementOptions
from medley.planner.site import Site


def place_without_shape(site: Site, options: PlacementOptions) -> Layout:
    """Place the requested ranks on the first hosts, for a model whose shape is unknown.

    Raise a Problem if the ranks do not match the devices, or if replicas need several hosts, because only a
    plan places them there.
    """
    site_devices, sizes = site.list_devices(options.gpus), options.sizes
    replica_count, stages = sizes.replicas or 1, sizes.stages or 1
    replica_ranks = (sizes.tensor_parallel or 1) * stages
    if options.gpus:
        replica_ranks = len(site_devices) // replica_count
    tensor_parallel = sizes.tensor_parallel or replica_ranks // stages
    rank_count = replica_ranks * replica_count
    largest = sorted(site_devices, key=lambda device: -device.memory_bytes)
    ranks = [device for host in site.rank_order or site.hosts for device in largest if device.host == host]
    is_divisible = bool(tensor_parallel) and replica_ranks % tensor_parallel == 0
    is_divisible = (
        is_divisible and (sizes.stages or replica_ranks // tensor_parallel) * tensor_parallel == replica_ranks
    )
    uses_all = not options.gpus or rank_count == len(site_devices)
    if not is_divisible or rank_count > len(ranks) or not uses_all:
        raise Problem(
            f"{rank_count} ranks cannot be made of the {len(ranks)} GPUs or CPUs there are",
            cause=f"each takes one; tensor parallel {tensor_parallel}, {stages} stages, "
            f"{replica_count} replicas",
            fix="other --tp, --pp and --dp, or join more hosts: medley ray-head",
        )
    units = [tuple(ranks[start : start + tensor_parallel]) for start in range(0, rank_count, tensor_parallel)]
    stage_count = replica_ranks // tensor_parallel
    pipelines = [
        tuple(Stage(unit, 0) for unit in units[start : start + stage_count])
        for start in range(0, len(units), stage_count)
    ]
    layout = Layout(pipelines[0], other_pipelines=tuple(pipelines[1:]))
    if layout.other_pipelines and len(list_hosts(layout)) > 1:
        raise Problem(
            f"--dp {replica_count} needs a plan on several hosts",
            cause=f"{rank_count} ranks would run on {join_names(list_hosts(layout))}; "
            "only a plan places them",
            fix="leave --dp out, or write the model's [shape] down: docs/reference/tables.md",
        )
    if options.host_count and len(list_hosts(layout)) != options.host_count:
        raise Problem(
            f"{rank_count} ranks cannot run on {options.host_count} hosts",
            cause=f"they would run on {join_names(list_hosts(layout))}: "
            "without its shape the model has one split",
            fix="--tp and --pp, together as many ranks as these hosts have GPUs, or CPUs",
        )
    return layout
