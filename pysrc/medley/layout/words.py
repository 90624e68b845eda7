"""Words for layouts: how one is named to people."""

from collections.abc import Iterable

from medley.layout.shapes import Device, Layout, Link, Stage

_NAMED = 4
_GBIT = 1000


def pipelines(layout: Layout) -> tuple[tuple[Stage, ...], ...]:
    return (layout.stages, *layout.replicas)


def devices(layout: Layout) -> tuple[Device, ...]:
    """In order of ranks, a replica after the other."""
    return tuple(device for stages in pipelines(layout) for stage in stages for device in stage.devices)


def hosts(layout: Layout) -> tuple[str, ...]:
    return tuple(dict.fromkeys(device.host for device in devices(layout)))


def tensor(layout: Layout) -> int:
    return max(len(stage.devices) for stage in layout.stages)


def sizes(layout: Layout) -> tuple[int, int, int]:
    """Tensor parallel, stages, replicas."""
    return tensor(layout), len(layout.stages), 1 + len(layout.replicas)


def named(layout: Layout) -> str:
    wide, deep, many = sizes(layout)
    parts = [
        *([f"tensor parallel {wide}"] if wide > 1 else []),
        *(["expert parallel"] if layout.expert_parallel else []),
        *([f"{deep} stages of {layers(layout)} layers"] if deep > 1 else []),
        *([f"{many} replicas"] if many > 1 else []),
    ]
    return f"{', '.join(parts) or 'alone'} on {listed(places(layout))}"


def layers(layout: Layout) -> str:
    """Of each stage, as engines take it: 47,46."""
    return ",".join(str(stage.layers) for stage in layout.stages)


def places(layout: Layout) -> list[str]:
    """Each host, with the indexes of its GPUs where it is not the first one alone."""
    by_host: dict[str, list[int]] = {}
    for device in devices(layout):
        by_host.setdefault(device.host, []).append(device.index)
    return [
        host if indexes == [0] else f"{host} ({', '.join(map(str, indexes))})"
        for host, indexes in by_host.items()
    ]


def wire(link: Link) -> tuple[str, str]:
    """Speed and transport: ("200 Gbit/s", "RDMA")."""
    speed = f"{link.mbit / _GBIT:g} Gbit/s" if link.mbit >= _GBIT else f"{link.mbit} Mbit/s"
    return speed, "RDMA" if link.rdma else "TCP"


def listed(names: Iterable[str]) -> str:
    found = list(names)
    if len(found) <= _NAMED:
        return ", ".join(found)
    return f"{', '.join(found[: _NAMED - 1])} … {found[-1]} ({len(found)} hosts)"
