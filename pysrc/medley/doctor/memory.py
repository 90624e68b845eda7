"""Memory of hosts and GPUs, and the processes that have it."""

from collections.abc import Iterable, Iterator

from medley.doctor.checks import UNASKED, Check, ExaminedHost, health_check, host_check
from medley.host.facts import GIB
from medley.host.health import Pages, ProcessUsage
from medley.host.health.gpu import User

_ENOUGH = 0.8
"""Of a host's memory, right after its start: seen are 102 of 121.7 GiB on a Spark (MiaAI-Lab issue 47)."""
_CACHED = 0.25
_FREE = 0.9
"""Of a GPU's own memory, which engines ask for unless told otherwise."""
_LEAST_BYTES = 4 * GIB
_SWAPPED = 1 * GIB
_SHM = "/dev/shm"  # noqa: S108 - no file of ours
_SHM_BYTES = 1 * GIB
_DROP = ("sh", "-c", "sync; echo 3 > /proc/sys/vm/drop_caches")


@host_check("memory", "memory left")
def available(host: ExaminedHost) -> Iterator[Check]:
    memory = host.facts.memory
    total, left = memory.total_bytes, memory.available_bytes
    said = f"{left / GIB:.1f} of {total / GIB:.1f} GiB can be had"
    big = {"engine", "ray", "desktop"}
    found = dict.fromkeys(each.name for each in host.health.processes or () if each.sort in big)
    cause = f"{', '.join(found)} runs there" if found else "it is not known who has the rest"
    fix = "ps -eo pid,rss,comm --sort=-rss | head  # end what is not needed"
    if left < min(_LEAST_BYTES, total // 2):
        yield host.wrong(said, cause=cause, fix=fix)
    elif left < _ENOUGH * total and (host.unified or host.facts.is_jetson):
        yield host.better(said, cause=f"the GPU has no other memory; {cause}", fix=fix)
    else:
        yield host.ok(said)


@health_check("page-cache", "the page cache", lambda health: health.pages)
def page_cache(host: ExaminedHost, pages: Pages) -> Iterator[Check]:
    """On unified memory CUDA calls only that free which is not even a cache."""
    said = f"{pages.cached_bytes / GIB:.1f} GiB of files are cached, {pages.free_bytes / GIB:.1f} GiB is free"
    if host.unified and pages.cached_bytes > _CACHED * host.facts.memory.total_bytes:
        yield host.better(
            said,
            cause="CUDA does not count the cache as free, and an older engine then says "
            "'Free memory on device is less than desired'",
            fix=host.mend(*_DROP, root=True),
        )
    else:
        yield host.ok(said)


@health_check("swap", "swap", lambda health: health.pages)
def swap(host: ExaminedHost, pages: Pages) -> Iterator[Check]:
    said = f"{pages.swapped_bytes / GIB:.1f} of {pages.swap_bytes / GIB:.1f} GiB of swap is used"
    if host.unified and pages.swapped_bytes > _SWAPPED:
        yield host.better(
            said,
            cause="what the GPU reads has to be in memory: a host that swaps crawls, and does not stop",
            fix="sudo swapoff -a; sudo swapon -a  # once there is room again",
        )
    else:
        yield host.ok(said if pages.swap_bytes else "there is no swap")


@health_check("guard", "who ends a greedy process", lambda health: health.processes)
def guard(host: ExaminedHost, found: tuple[ProcessUsage, ...]) -> Iterator[Check]:
    """On unified memory a process that ends the greedy one before the host stops answering."""
    guards = [each.name for each in found if each.sort == "guard"]
    if host.unified and guards:
        yield host.ok(f"{', '.join(guards)} watches over it")
    elif host.unified:
        yield host.better(
            "nothing ends a process that takes all memory",
            cause="GPU and host share it: when it is used up the host hangs, and ssh with it",
            fix="sudo apt-get install -y earlyoom",
        )


@host_check("gpu-memory", "memory free on its GPUs")
def gpu_free(host: ExaminedHost) -> Iterator[Check]:
    for gpu in host.facts.gpus:
        free, total = gpu.memory_free_bytes, gpu.memory_bytes
        if free is None or total is None:
            continue
        said = f"GPU {gpu.index}: {free / GIB:.1f} of {total / GIB:.1f} GiB is free"
        if free < _FREE * total:
            yield host.better(
                said,
                cause="an engine that asks for nine tenths says 'Free memory on device is less than desired'",
                fix="nvidia-smi --query-compute-apps=pid,process_name,used_memory --format=csv",
            )
        else:
            yield host.ok(said)


@host_check("gpu-users", "who else has the GPU")
def gpu_users(host: ExaminedHost) -> Iterator[Check]:
    """Other processes on the GPUs; a desktop by its processes too, where nvidia-smi does not list it."""
    state, processes = host.health.gpus, host.health.processes or ()
    if not host.facts.gpus:
        return
    if state is None and host.health.processes is None:
        yield host.unknown(UNASKED)
        return
    users = [user for gpu in (state.gpus if state else ()) for user in gpu.users]
    ours = {each.pid for each in processes if each.ours}
    desktop = [user for user in users if user.graphics] or [
        User(each.pid, each.name, graphics=True) for each in processes if each.sort == "desktop"
    ]
    served = bool(host.health.keeping and host.health.keeping.serving)
    computing = [user for user in users if not (user.graphics or user.pid in ours or served)]
    if desktop:
        yield host.better(
            f"a desktop has the GPU: {_named(desktop)}",
            cause="it takes memory that a model could have, and time of the GPU while it draws",
            fix="sudo systemctl set-default multi-user.target; sudo systemctl isolate multi-user.target",
        )
    if computing:
        pids = " ".join(str(user.pid) for user in computing)
        yield host.better(
            f"others compute on the GPU: {_named(computing)}",
            cause="their memory is not there for a model, and its speed is shared",
            fix=f"ps -o pid,user,args -p {pids.replace(' ', ',')}  # and if they are yours: kill {pids}",
        )
    if not desktop and not computing:
        yield host.ok("medley's own model has it" if served else "nobody else has it")


@health_check("leftovers", "Rays and engines that run", lambda health: health.processes)
def leftovers(host: ExaminedHost, found: tuple[ProcessUsage, ...]) -> Iterator[Check]:
    """Rays and engines of others, or of ours without a part in a cluster."""
    keeping = host.health.keeping
    served = keeping.serving if keeping else ()
    theirs = [each for each in found if each.sort == "ray" and not each.ours]
    ours = [each for each in found if each.sort == "ray" and each.ours]
    left = ours if keeping and not keeping.membership else []
    engines = [each for each in found if each.sort == "engine" and not each.ours and not served]
    if theirs:
        yield host.better(
            f"a Ray that is not medley's runs: {_named(theirs)}",
            cause="it has memory, and ports that ours may want",
            fix="ray stop"
            if all(each.own for each in theirs)
            else f"ps -o user,args -p {theirs[0].pid}  # and ask its user",
        )
    if left:
        yield host.better(
            f"a Ray of medley's is left: {_named(left)}",
            cause="no note says which cluster it is of",
            fix=host.mend("medley", "ray-stop"),
        )
    if engines:
        yield host.better(
            f"an engine runs already: {_named(engines)}",
            cause="it has memory that another model would need",
            fix=f"ps -o pid,user,args -p {','.join(str(each.pid) for each in engines)}  # or: medley stop",
        )
    if not (theirs or left or engines):
        serves = f"medley serves at {', '.join(map(str, served))}" if served else ""
        our = f"our own Ray ({len(ours)} processes)" if ours else ""
        yield host.ok("; ".join(filter(None, (our, serves))) or "no Ray and no engine runs")


def _named(found: Iterable[User | ProcessUsage]) -> str:
    sizes = {each.pid: each.memory_bytes for each in found if isinstance(each, User)}
    return ", ".join(
        f"{each.name} ({each.pid}{f', {size / GIB:.1f} GiB' if (size := sizes.get(each.pid)) else ''})"
        for each in found
    )


@host_check("shm", "shared memory")
def shared(host: ExaminedHost) -> Iterator[Check]:
    size, container = host.facts.memory.shm_bytes, host.facts.software.container
    if size is None:
        yield host.unknown(f"df says nothing of {_SHM}")
    elif size < _SHM_BYTES:
        inside = f"; in {container}: start it with --shm-size 16g" if container else ""
        yield host.wrong(
            f"{_SHM} has {size >> 20} MiB",
            cause=f"the processes of an engine and Ray's objects share memory there{inside}",
            fix="sudo mount -o remount,size=8G /dev/shm",
        )
    else:
        yield host.ok(f"{_SHM} has {size / GIB:.1f} GiB")
