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


@host_check("memory", "available memory")
def available(host: ExaminedHost) -> Iterator[Check]:
    memory = host.facts.memory
    total, left = memory.total_bytes, memory.available_bytes
    said = f"Memory: {left / GIB:.1f} of {total / GIB:.1f} GiB available"
    big = {"engine", "ray", "desktop"}
    found = dict.fromkeys(each.name for each in host.health.processes or () if each.sort in big)
    cause = f"{', '.join(found)} is running" if found else "other processes use the rest"
    fix = "ps -eo pid,rss,comm --sort=-rss | head  # end what is not needed"
    if left < min(_LEAST_BYTES, total // 2):
        yield host.wrong(said, cause=cause, fix=fix)
    elif left < _ENOUGH * total and (host.unified or host.facts.is_jetson):
        yield host.better(said, cause=f"the GPU has no other memory; {cause}", fix=fix)
    else:
        yield host.ok(said)


@health_check("page-cache", "page cache", lambda health: health.pages)
def page_cache(host: ExaminedHost, pages: Pages) -> Iterator[Check]:
    """On unified memory CUDA calls only that free which is not even a cache."""
    said = f"Page cache holds {pages.cached_bytes / GIB:.1f} GiB, {pages.free_bytes / GIB:.1f} GiB is free"
    if host.unified and pages.cached_bytes > _CACHED * host.facts.memory.total_bytes:
        yield host.better(
            said,
            cause="CUDA does not count the cache as free, and an older engine then fails with "
            "'Free memory on device is less than desired'",
            fix=host.mend(*_DROP, root=True),
        )
    else:
        yield host.ok(said)


@health_check("swap", "swap", lambda health: health.pages)
def swap(host: ExaminedHost, pages: Pages) -> Iterator[Check]:
    said = f"Swap: {pages.swapped_bytes / GIB:.1f} of {pages.swap_bytes / GIB:.1f} GiB used"
    if host.unified and pages.swapped_bytes > _SWAPPED:
        yield host.better(
            said,
            cause="the GPU reads only from memory, so a model on a host that swaps is very slow",
            fix="sudo swapoff -a; sudo swapon -a  # once there is room again",
        )
    else:
        yield host.ok(said if pages.swap_bytes else "none")


@health_check("guard", "out-of-memory guard", lambda health: health.processes)
def guard(host: ExaminedHost, found: tuple[ProcessUsage, ...]) -> Iterator[Check]:
    """On unified memory a process that ends the greedy one before the host stops answering."""
    guards = [each.name for each in found if each.sort == "guard"]
    if host.unified and guards:
        yield host.ok(f"{', '.join(guards)} is running")
    elif host.unified:
        yield host.better(
            "No guard ends a process that takes all memory",
            cause="GPU and host share memory: when it runs out the host hangs, and ssh with it",
            fix="sudo apt-get install -y earlyoom",
        )


@host_check("gpu-memory", "free GPU memory")
def gpu_free(host: ExaminedHost) -> Iterator[Check]:
    for gpu in host.facts.gpus:
        free, total = gpu.memory_free_bytes, gpu.memory_bytes
        if free is None or total is None:
            continue
        said = f"GPU {gpu.index}: {free / GIB:.1f} of {total / GIB:.1f} GiB is free"
        if free < _FREE * total:
            yield host.better(
                said,
                cause="engines ask for 90 % and fail with 'Free memory on device is less than desired'",
                fix="nvidia-smi --query-compute-apps=pid,process_name,used_memory --format=csv",
            )
        else:
            yield host.ok(said)


@host_check("gpu-users", "other GPU processes")
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
            f"A desktop uses the GPU: {_named(desktop)}",
            cause="it takes GPU memory from a model, and GPU time while it draws",
            fix="sudo systemctl set-default multi-user.target; sudo systemctl isolate multi-user.target",
        )
    if computing:
        pids = " ".join(str(user.pid) for user in computing)
        yield host.better(
            f"Other processes compute on the GPU: {_named(computing)}",
            cause="they take memory from a model, and share the GPU's speed",
            fix=f"ps -o pid,user,args -p {pids.replace(' ', ',')}  # and if they are yours: kill {pids}",
        )
    if not desktop and not computing:
        yield host.ok("only medley's model" if served else "none")


@health_check("leftovers", "other Rays and engines", lambda health: health.processes)
def leftovers(host: ExaminedHost, found: tuple[ProcessUsage, ...]) -> Iterator[Check]:
    """Rays and engines that are not part of this host's cluster.

    What another user, another state folder or another program started is named, and only its user ends it.
    """
    keeping = host.health.keeping
    served = keeping.serving if keeping else ()
    rays = [each for each in found if each.sort == "ray"]
    ours = [each for each in rays if each.ours]
    left = ours if keeping and not keeping.membership else []
    engines = [each for each in found if each.sort == "engine" and not each.ours and not served]
    if rays and not host.health.clusters_known:
        yield host.unknown(UNASKED)
        return
    theirs = [each for each in rays if not each.ours]
    if keeping and keeping.membership and not ours:  # its Ray is root's, in a container of docker
        theirs = [each for each in theirs if each.own]
    if theirs:
        yield host.better(
            f"Another Ray is running: {_named(theirs)}",
            cause=f"{_owner(theirs)} started it; it takes memory, and ports that medley's Ray uses",
            fix=_inspect(theirs),
        )
    if left:
        yield host.better(
            f"A Ray that medley started was left running: {_named(left)}",
            cause="it does not belong to any cluster that medley has recorded",
            fix=host.mend("medley", "ray-stop"),
        )
    if engines:
        yield host.better(
            f"An engine is already running: {_named(engines)}",
            cause="it takes memory that a model needs, and no server of this state folder started it",
            fix=_inspect(engines),
        )
    if not (theirs or left or engines):
        serves = f"medley serves at {', '.join(map(str, served))}" if served else ""
        our = f"medley's Ray ({len(ours)} processes)" if ours else ""
        yield host.ok("; ".join(filter(None, (our, serves))) or "none")


def _owner(found: Iterable[ProcessUsage]) -> str:
    """Name who started these, as far as this user may see it."""
    if not all(each.own for each in found):
        return "another user"
    if any(each.cluster for each in found):
        return "a medley with another state folder"
    return "a program other than medley"


def _inspect(found: Iterable[ProcessUsage]) -> str:
    """Return what shows the processes; a fix never ends what another cluster may need."""
    pids = ",".join(str(each.pid) for each in found)
    owner = "end them as you started them" if all(each.own for each in found) else "ask their user"
    return f"ps -o pid,user,lstart,args -p {pids}  # and {owner}"


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
        yield host.unknown(f"df does not list {_SHM}")
    elif size < _SHM_BYTES:
        inside = f"; in {container}: start it with --shm-size 16g" if container else ""
        yield host.wrong(
            f"Shared memory ({_SHM}) has only {size >> 20} MiB",
            cause=f"the processes of an engine and Ray's objects share memory there{inside}",
            fix="sudo mount -o remount,size=8G /dev/shm",
        )
    else:
        yield host.ok(f"{_SHM} has {size / GIB:.1f} GiB")
