"""Choose a layout that takes more of shared memory than is safe, or fits only if an estimate is too high.

Nothing is refused over a number that may be wrong by as much as is short: such a layout has a warning with
the way to run it. It is chosen only where no other layout fits.
"""

from collections.abc import Callable
from dataclasses import replace

from medley.host.facts import GIB
from medley.model.estimate import weights_error
from medley.planner import Device
from medley.planner.candidates import Request
from medley.planner.choose import Choice, choose
from medley.planner.fit import gib
from medley.planner.partition import Workload
from medley.planner.prediction import predict
from medley.planner.remedies import NoLayout

_GRAIN = GIB // 4
_WAY = (
    "End other programs and the desktop on it first, and give back the page cache: "
    "sync; echo 3 | sudo tee /proc/sys/vm/drop_caches"
)


def choose_tight(request: Request, problem: NoLayout) -> Choice:
    """Return such a layout with its warnings; raise `problem` again where there is none."""
    if problem.remedies is None:
        raise problem
    least = _least(request.work)
    fuller = _all_of(lambda device: max(device.memory_bytes, device.most_bytes or 0), request)
    for work in (request.work, *([least] if least else [])):
        for each in (request, fuller):
            if each is request and work is request.work:
                continue
            try:
                found = choose(replace(each, work=work), predict)
            except NoLayout:
                continue
            return _warned(_no_fuller(request, found) if each is fuller else found, request, work)
    raise problem


def _all_of(memory_bytes: Callable[[Device], int], request: Request) -> Request:
    devices = (replace(device, memory_bytes=memory_bytes(device)) for device in request.devices)
    return replace(request, devices=tuple(devices))


def _least(work: Workload) -> Workload | None:
    """The same work with the bytes at the lower end of their estimate; None where they are no estimate."""
    if work.shape.weights_source != "config":
        return None
    share = 1 - weights_error(work.shape.weights)
    names = ("layer_bytes", "active_layer_bytes", "expert_bytes")
    scaled = {name: round(getattr(work.shape, name) * share) for name in names}
    return replace(work, shape=work.shape.model_copy(update=scaled))


def _no_fuller(request: Request, found: Choice) -> Choice:
    """Choose again with no more of each device than the tightest rank of this choice needs."""
    usual = {(device.host, device.index): device.memory_bytes for device in request.devices}
    over = max(rank.total_bytes - usual[rank.device.host, rank.device.index] for rank in found.fit.ranks)
    more = -(-over // _GRAIN) * _GRAIN

    def memory_bytes(device: Device) -> int:
        return max(device.memory_bytes, min(device.memory_bytes + more, device.most_bytes or 0))

    return choose(replace(_all_of(memory_bytes, request), work=found.work), predict)


def _warned(found: Choice, request: Request, work: Workload) -> Choice:
    usual = {(device.host, device.index): device for device in request.devices}
    warnings = []
    rank = max(found.fit.ranks, key=lambda rank: rank.total_bytes - _usual_bytes(rank.device, usual))
    safe = _usual_bytes(rank.device, usual)
    if rank.total_bytes > safe:
        total = f" of {gib(rank.device.total_bytes)}" if rank.device.total_bytes else ""
        warnings.append(
            f"{rank.device.host} needs {gib(rank.total_bytes)}{total} GiB, and {gib(safe)} are safe for its "
            f"shared memory. {_WAY}"
        )
    if work is not request.work:
        error = weights_error(request.work.shape.weights)
        warnings.append(
            f"it fits if the weights take {error:.0%} less than their estimate, which may be off by as much. "
            f"The estimate is {gib(request.work.shape.weights_bytes)} GiB in all; compare it with the "
            "repository's size"
        )
    return replace(found, warnings=(*warnings, *found.warnings), tight=True)


def _usual_bytes(device: Device, usual: dict[tuple[str, int], Device]) -> int:
    return usual[device.host, device.index].memory_bytes
