"""The order of ranks decides which stage lies where: Ray's nodes take them in an order of their own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from medley.layout.shapes import Device, Layout, Stage
from medley.layout.words import layers, listed
from medley.problem import Problem
from medley.tables import Engine

VARIABLE: Mapping[Engine, str] = {"vllm": "VLLM_PP_LAYER_PARTITION", "sglang": "SGLANG_PP_LAYER_PARTITION"}


@dataclass(frozen=True)
class Landing:
    """A pipeline as its ranks will really lie."""

    layout: Layout
    partition: str
    """Layers of each stage in that order, for the engine's variable."""
    permutation: tuple[int, ...]
    """The planned stage that comes at each place."""

    @property
    def as_planned(self) -> bool:
        """Otherwise embedding and head are on other hosts: cut anew, and look whether it fits."""
        return list(self.permutation) == sorted(self.permutation)


def landing(layout: Layout, order: Sequence[str]) -> Landing:
    """A pipeline on hosts that take ranks in this order: the driver's first, then by Ray's node id.

    Ranks go to the devices of one host after the other; so many as are tensor parallel make a stage. Each
    carries the layers of the planned stage on these devices, or else of one on devices of the same sort. Its
    replicas are engines of their own, each with an order of its own.
    """
    made = _made(layout, order)
    left = dict(enumerate(layout.stages))
    found: dict[int, int] = {}
    for same in (_exactly, _sorts):
        for place, devices in enumerate(made):
            if place in found:
                continue
            planned = next((nth for nth, stage in left.items() if same(stage.devices) == same(devices)), None)
            if planned is not None:
                found[place] = planned
                del left[planned]
    if left:
        raise _elsewhere(made, found, layout, order)
    permutation = tuple(found[place] for place in range(len(made)))
    stages = tuple(
        Stage(devices, layout.stages[nth].layers) for devices, nth in zip(made, permutation, strict=True)
    )
    landed = replace(layout, stages=stages, replicas=())
    return Landing(landed, layers(landed), permutation)


def _made(layout: Layout, order: Sequence[str]) -> list[tuple[Device, ...]]:
    by_host: dict[str, list[Device]] = {}
    for device in (device for stage in layout.stages for device in stage.devices):
        by_host.setdefault(device.host, []).append(device)
    if absent := sorted(set(by_host) - set(order)):
        raise Problem(
            f"{listed(absent)} is not in the cluster",
            cause=f"the hosts there are: {listed(order)}",
            fix="medley ray-worker HEAD, on it",
        )
    # Which of a host's GPUs takes which of its ranks is Ray's choice too, but they follow each other.
    ranks = [
        device for host in order for device in sorted(by_host.get(host, []), key=lambda device: device.index)
    ]
    wide = len(layout.stages[0].devices)
    return [tuple(ranks[first : first + wide]) for first in range(0, len(ranks), wide)]


def _exactly(devices: Sequence[Device]) -> list[tuple[str, str, str]]:
    return sorted((device.host, device.kind, device.name) for device in devices)


def _hosts(devices: Sequence[Device]) -> list[str]:
    return sorted(device.host for device in devices)


def _sorts(devices: Sequence[Device]) -> list[tuple[str, str]]:
    return sorted((device.kind, device.name) for device in devices)


def _elsewhere(
    made: Sequence[Sequence[Device]], found: Mapping[int, int], layout: Layout, order: Sequence[str]
) -> Problem:
    place = next(nth for nth in range(len(made)) if nth not in found)
    planned = " + ".join(listed(dict.fromkeys(_hosts(stage.devices))) for stage in layout.stages)
    moving = _hosts(made[place])[-1]
    return Problem(
        f"stage {place + 1} would lie on {listed(dict.fromkeys(_hosts(made[place])))}, which are unlike",
        cause=f"Ray gives ranks to {listed(order)} in this order; the stages planned are {planned}",
        fix=f"on {moving}: medley ray-stop, then medley ray-worker HEAD, which gives it another place",
    )
