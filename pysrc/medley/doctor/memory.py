"""Memory: what is left for a model, and who or what has the rest."""

from collections.abc import Iterator

from medley.condition.gpu_state import User
from medley.condition.pages import Pages
from medley.condition.processes import Process
from medley.doctor.shapes import UNASKED, Check, Host, Mend, better, mended, ok, unknown, wrong

_GIB = 1 << 30
_ENOUGH = 0.8
"""Of a host's memory, right after its start: seen are 102 of 121.7 GiB on a Spark (MiaAI-Lab issue 47)."""
_CACHED = 0.25
_FREE = 0.9
"""Of a GPU's own memory, which engines ask for unless told otherwise."""
_LEAST_BYTES = 4 * _GIB
_SWAPPED = 1 * _GIB
_SHM = "/dev/shm"  # noqa: S108 - no file of ours
_SHM_BYTES = 1 * _GIB
_DROP = ("sh", "-c", "sync; echo 3 > /proc/sys/vm/drop_caches")


def available(host: Host) -> Iterator[Check]:
    memory = host.facts.memory
    total, left = memory.total_bytes, memory.available_bytes
    said = f"{left / _GIB:.1f} of {total / _GIB:.1f} GiB can be had"
    if left < min(_LEAST_BYTES, total // 2):
        yield wrong(
            host.name,
            said,
            cause=_who(host),
            fix="ps -eo pid,rss,comm --sort=-rss | head  # end what is not needed",
        )
    elif left < _ENOUGH * total and (host.unified or host.facts.is_jetson):
        yield better(
            host.name,
            said,
            cause=f"the GPU has no other memory; {_who(host)}",
            fix="ps -eo pid,rss,comm --sort=-rss | head  # end what is not needed",
        )
    else:
        yield ok(host.name, said)


def _who(host: Host) -> str:
    found = [
        each.name for each in host.condition.processes or () if each.sort in {"engine", "ray", "desktop"}
    ]
    return f"{', '.join(dict.fromkeys(found))} runs there" if found else "it is not known who has the rest"


def page_cache(host: Host, pages: Pages) -> Iterator[Check]:
    """On unified memory CUDA calls only that free which is not even a cache."""
    total = host.facts.memory.total_bytes
    said = (
        f"{pages.cached_bytes / _GIB:.1f} GiB of files are cached, {pages.free_bytes / _GIB:.1f} GiB is free"
    )
    if host.unified and pages.cached_bytes > _CACHED * total:
        found = better(
            host.name,
            said,
            cause="CUDA does not count the cache as free, and an older engine then says "
            "'Free memory on device is less than desired'",
            fix="",
        )
        yield mended(found, Mend(host.name, _DROP, root=True))
    else:
        yield ok(host.name, said)


def swap(host: Host, pages: Pages) -> Iterator[Check]:
    said = f"{pages.swapped_bytes / _GIB:.1f} of {pages.swap_bytes / _GIB:.1f} GiB of swap is used"
    if host.unified and pages.swapped_bytes > _SWAPPED:
        yield better(
            host.name,
            said,
            cause="what the GPU reads has to be in memory: a host that swaps crawls, and does not stop",
            fix="sudo swapoff -a; sudo swapon -a  # once there is room again",
        )
    else:
        yield ok(host.name, said if pages.swap_bytes else "there is no swap")


def gpu_free(host: Host) -> Iterator[Check]:
    for gpu in host.facts.gpus:
        free, total = gpu.memory_free_bytes, gpu.memory_bytes
        if free is None or total is None:
            continue
        said = f"GPU {gpu.index}: {free / _GIB:.1f} of {total / _GIB:.1f} GiB is free"
        if free < _FREE * total:
            yield better(
                host.name,
                said,
                cause="an engine that asks for nine tenths says 'Free memory on device is less than desired'",
                fix="nvidia-smi --query-compute-apps=pid,process_name,used_memory --format=csv",
            )
        else:
            yield ok(host.name, said)


def gpu_users(host: Host) -> Iterator[Check]:
    """Other processes on the GPUs; a desktop by its processes too, where nvidia-smi does not list it."""
    state = host.condition.gpus
    if not host.facts.gpus:
        return
    users = [user for gpu in (state.gpus if state else ()) for user in gpu.users]
    ours = {each.pid for each in host.condition.processes or () if each.ours}
    desktop = [user for user in users if user.graphics] or [
        User(each.pid, each.name, graphics=True)
        for each in host.condition.processes or ()
        if each.sort == "desktop"
    ]
    served = bool(host.condition.keeping and host.condition.keeping.serving)
    computing = [user for user in users if not (user.graphics or user.pid in ours or served)]
    if state is None and host.condition.processes is None:
        yield unknown(host.name, UNASKED)
        return
    if desktop:
        yield better(
            host.name,
            f"a desktop has the GPU: {_named(desktop)}",
            cause="it takes memory that a model could have, and time of the GPU while it draws",
            fix="sudo systemctl set-default multi-user.target; sudo systemctl isolate multi-user.target",
        )
    if computing:
        pids = " ".join(str(user.pid) for user in computing)
        yield better(
            host.name,
            f"others compute on the GPU: {_named(computing)}",
            cause="their memory is not there for a model, and its speed is shared",
            fix=f"ps -o pid,user,args -p {pids.replace(' ', ',')}  # and if they are yours: kill {pids}",
        )
    if not desktop and not computing:
        yield ok(host.name, "medley's own model has it" if served else "nobody else has it")


def _named(users: list[User]) -> str:
    return ", ".join(
        f"{user.name} ({user.pid}{f', {user.memory_bytes / _GIB:.1f} GiB' if user.memory_bytes else ''})"
        for user in users
    )


def guard(host: Host, found: tuple[Process, ...]) -> Iterator[Check]:
    """On unified memory a process that ends the greedy one before the host stops answering."""
    if not host.unified:
        return
    guards = [each.name for each in found if each.sort == "guard"]
    if guards:
        yield ok(host.name, f"{', '.join(guards)} watches over it")
    else:
        yield better(
            host.name,
            "nothing ends a process that takes all memory",
            cause="GPU and host share it: when it is used up the host hangs, and ssh with it",
            fix="sudo apt-get install -y earlyoom",
        )


def shared(host: Host) -> Iterator[Check]:
    size = host.facts.memory.shm_bytes
    if size is None:
        yield unknown(host.name, f"df says nothing of {_SHM}")
    elif size < _SHM_BYTES:
        inside = (
            f"; in {host.facts.software.container}: start it with --shm-size 16g"
            if host.facts.software.container
            else ""
        )
        yield wrong(
            host.name,
            f"{_SHM} has {size >> 20} MiB",
            cause=f"the processes of an engine and Ray's objects share memory there{inside}",
            fix="sudo mount -o remount,size=8G /dev/shm",
        )
    else:
        yield ok(host.name, f"{_SHM} has {size / _GIB:.1f} GiB")
