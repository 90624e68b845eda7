"""Choose a layout that takes more of shared memory than is safe, or fits only if an estimate is too high.

A number that may be wrong by as much as is missing refuses nothing: such a layout has a warning with
the way to run it. It is chosen only where no other layout fits.
"""

from collections.abc import Callable

from medley.host.facts import GIB
from medley.model.estimate import find_weights_error
from medley.planner import Device
from medley.planner.candidates import Request
from medley.planner.choose import Choice, choose_layout
from medley.planner.fit import Rank, format_gib
from medley.planner.partition import Workload
from medley.planner.prediction import predict_speed
from medley.planner.remedies import NoLayout

_ROUNDING_BYTES = GIB // 4
_FREE_MEMORY_ADVICE = (
    "End other programs and the desktop on it first, and give back the page cache: "
    "sync; echo 3 | sudo tee /proc/sys/vm/drop_caches"
)


def choose_overcommitted_layout(request: Request, problem: NoLayout) -> Choice:
    """Return an overcommitted or optimistic layout with its warnings; raise `problem` again without one."""
    if problem.remedies is None:  # no candidate could be cut, so more memory does not help
        raise problem
    optimistic_workload = _build_optimistic_workload(request.workload)
    overcommitted_request = _replace_memory(
        lambda device: max(device.memory_bytes, device.most_bytes or 0), request
    )
    for workload in (request.workload, *([optimistic_workload] if optimistic_workload else [])):
        for candidate in (request, overcommitted_request):
            if candidate is request and workload is request.workload:
                continue
            try:
                choice = choose_layout(candidate.replace(workload=workload), predict_speed)
            except NoLayout:
                continue
            if candidate is overcommitted_request:
                choice = _choose_with_least_memory(request, choice)
            return _add_warnings(choice, request, workload)
    raise problem


def _replace_memory(compute_bytes: Callable[[Device], int], request: Request) -> Request:
    """Return the request with other amounts of memory for its devices."""
    devices = (device.replace(memory_bytes=compute_bytes(device)) for device in request.devices)
    return request.replace(devices=tuple(devices))


def _build_optimistic_workload(workload: Workload) -> Workload | None:
    """Return the workload with weights at the lower end of their estimate; None if they are no estimate."""
    shape = workload.shape
    if shape.weights_source != "config":
        return None
    share = 1 - find_weights_error(shape.weights)
    names = ("layer_bytes", "active_layer_bytes", "expert_bytes")
    scaled = {name: round(getattr(shape, name) * share) for name in names}
    return workload.replace(shape=shape.replace(**scaled))


def _choose_with_least_memory(request: Request, choice: Choice) -> Choice:
    """Choose again with no more of each device than the tightest rank of this choice needs."""
    usual_bytes = {(device.host, device.index): device.memory_bytes for device in request.devices}
    excess_bytes = max(
        rank.total_bytes - usual_bytes[rank.device.host, rank.device.index] for rank in choice.fit.ranks
    )
    extra_bytes = -(-excess_bytes // _ROUNDING_BYTES) * _ROUNDING_BYTES

    def compute_bytes(device: Device) -> int:
        return max(device.memory_bytes, min(device.memory_bytes + extra_bytes, device.most_bytes or 0))

    return choose_layout(
        _replace_memory(compute_bytes, request).replace(workload=choice.workload), predict_speed
    )


def _add_warnings(choice: Choice, request: Request, workload: Workload) -> Choice:
    """Return the choice with its warnings: more memory than is safe, or weights below their estimate."""
    usual_bytes = {(device.host, device.index): device.memory_bytes for device in request.devices}

    def compute_excess_bytes(rank: Rank) -> int:
        return rank.total_bytes - usual_bytes[rank.device.host, rank.device.index]

    warnings = []
    rank = max(choice.fit.ranks, key=compute_excess_bytes)
    safe_bytes = usual_bytes[rank.device.host, rank.device.index]
    if rank.total_bytes > safe_bytes:
        total = f" of {format_gib(rank.device.total_bytes)}" if rank.device.total_bytes else ""
        warnings.append(
            f"{rank.device.host} needs {format_gib(rank.total_bytes)}{total} GiB, "
            f"and {format_gib(safe_bytes)} are safe for its shared memory. {_FREE_MEMORY_ADVICE}"
        )
    if workload is not request.workload:
        error = find_weights_error(request.workload.shape.weights)
        warnings.append(
            f"it fits if the weights take {error:.0%} less than their estimate, which may be off by as much. "
            f"The estimate is {format_gib(request.workload.shape.weights_bytes)} GiB in all; "
            "compare it with the repository's size"
        )
    return choice.replace(warnings=(*warnings, *choice.warnings), is_overcommitted=True)
