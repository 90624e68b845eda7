"""Forced layouts are those of the sizes a user named, whether or not they are worth it."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import product

from medley.layout.candidates import Asked, Candidates, Ruled, Sizes, Unit, candidates, layout
from medley.layout.limits import refusals, too_many_stages
from medley.layout.remedies import NoLayout
from medley.layout.shapes import Device, Layout
from medley.layout.wires import LinkOf, Wires, fast
from medley.layout.words import pipelines
from medley.tables import Shape

_FEW = 8


def forced(shape: Shape, devices: Sequence[Device], link_of: LinkOf, asked: Asked) -> Candidates:
    """All layouts of these sizes, over equal devices and over unlike ones."""
    _possible(shape, devices, asked.sizes)
    found = candidates(shape, devices, link_of, asked)
    unlike = list(_unlike(shape, devices, Wires(link_of), asked))
    layouts = dict.fromkeys((*found.layouts, *(each for each in unlike if isinstance(each, Layout))))
    ruled = dict.fromkeys((*found.ruled, *(each for each in unlike if isinstance(each, Ruled))))
    if not layouts:
        raise NoLayout(
            f"no layout has {words(asked.sizes)}",
            cause="\n".join(f"{each.what}: {each.because}" for each in ruled)
            or f"{len(devices)} devices do not make one: a CPU and a GPU never share a model",
            fix="leave --tp, --pp and --dp out",
        )
    return Candidates(tuple(layouts), tuple(ruled))


def warnings(found: Layout) -> tuple[str, ...]:
    """What is unwise about it."""
    return tuple(_warnings(found))


def words(sizes: Sizes) -> str:
    pairs = (("--tp", sizes.tensor), ("--pp", sizes.stages), ("--dp", sizes.replicas))
    return " ".join(f"{flag} {size}" for flag, size in pairs if size is not None)


def _warnings(found: Layout) -> Iterator[str]:
    across = False
    for stage in (stage for stages in pipelines(found) for stage in stages):
        kinds = sorted({device.name or device.kind for device in stage.devices})
        across = across or len({device.host for device in stage.devices}) > 1
        if len(kinds) > 1:
            yield (
                f"tensor parallel between {' and '.join(kinds)}: "
                "each does an equal part, and all wait for the slowest"
            )
    if across and found.link and not fast(found.link):
        yield f"tensor parallel over {found.link.mbit / 1000:g} Gbit/s: each layer waits for the wire twice"


def _possible(shape: Shape, devices: Sequence[Device], sizes: Sizes) -> None:
    ranks = (sizes.tensor or 1) * (sizes.stages or 1) * (sizes.replicas or 1)
    if ranks > len(devices):
        raise NoLayout(
            f"{words(sizes)} needs {ranks} devices, and there are {len(devices)}",
            cause="each rank takes one GPU, or one host without any",
            fix="ask for less, or join more hosts: medley ray-worker HEAD",
        )
    tensor = sizes.tensor or 1
    ways = (False, True) if shape.experts else (False,)
    because = [refusals(shape, tensor, expert_parallel=way) for way in ways]
    if all(because):
        able = [
            str(size)
            for size in range(1, len(devices) + 1)
            if not all(refusals(shape, size, expert_parallel=way) for way in ways)
        ]
        raise NoLayout(
            f"--tp {tensor} cannot be: the model does not divide so",
            cause="\n".join(dict.fromkeys(reason for each in because for reason in each)),
            fix=f"--tp with one of {', '.join(able)}, or --pp {tensor}",
        )
    if many := too_many_stages(shape, sizes.stages or 1):
        raise NoLayout(
            f"--pp {sizes.stages} cannot be", cause=many, fix=f"--pp {shape.layers} at most, or leave it out"
        )


def _unlike(shape: Shape, devices: Sequence[Device], wires: Wires, asked: Asked) -> Iterator[Layout | Ruled]:
    """The fastest devices, and the largest, as they come: a stage may have unlike ones."""
    sizes = asked.sizes
    tensor = sizes.tensor or 1
    ways = [
        way
        for way in (False, True)
        if not refusals(shape, tensor, expert_parallel=way) and (not way or (shape.experts and tensor > 1))
    ]
    for cpu, by_memory in product((False, True), (False, True)):
        ordered = sorted(
            (device for device in devices if (device.kind == "cpu") == cpu),
            key=lambda one: _memory_first(one) if by_memory else _speed_first(one),
        )
        fit_in = len(ordered) // (tensor * (sizes.replicas or 1))
        for stages in [sizes.stages] if sizes.stages else range(1, min(_FEW, fit_in, shape.layers) + 1):
            if stages <= fit_in:
                chosen = _chunks(ordered, tensor, stages, sizes.replicas or 1, asked.head)
                yield from (layout(shape, chosen, wires, asked, expert_parallel=way) for way in ways)


def _chunks(
    ordered: Sequence[Device], tensor: int, stages: int, replicas: int, head: str | None
) -> list[tuple[Unit, ...]]:
    """Devices of one host stay together, the head's first."""
    found = []
    for copy in range(replicas):
        first = copy * tensor * stages
        chosen = _by_host(ordered[first : first + tensor * stages], head)
        found.append(tuple(tuple(chosen[at : at + tensor]) for at in range(0, len(chosen), tensor)))
    return found


def _by_host(chosen: Iterable[Device], head: str | None) -> list[Device]:
    by_host: dict[str, list[Device]] = {}
    for device in chosen:
        by_host.setdefault(device.host, []).append(device)
    return [device for host in sorted(by_host, key=lambda host: host != head) for device in by_host[host]]


def _speed_first(device: Device) -> tuple[float, float, str, int]:
    return (-device.bandwidth_gb_s, -device.memory_bytes, device.host, device.index)


def _memory_first(device: Device) -> tuple[float, float, str, int]:
    return (-device.memory_bytes, -device.bandwidth_gb_s, device.host, device.index)
