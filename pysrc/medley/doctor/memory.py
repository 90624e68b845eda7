"""Check the memory of hosts and GPUs, and the processes that use it."""

from collections.abc import Iterable, Iterator

from medley.doctor.checks import NOT_RECORDED, Check, ExaminedHost, health_check, host_check
from medley.host.facts import GIB
from medley.host.health import Pages, ProcessUsage
from medley.host.health.gpu import GpuUser

_MIN_AVAILABLE_SHARE = 0.8
"""The share of memory that is available after boot: 102 of 121.7 GiB on a Spark (MiaAI-Lab issue 47)."""
_MAX_CACHED_SHARE = 0.25
_MIN_FREE_SHARE = 0.9
"""The share of a GPU's own memory that engines allocate by default."""
_MIN_AVAILABLE_BYTES = 4 * GIB
_MAX_SWAPPED_BYTES = 1 * GIB
_SHM_FOLDER = "/dev/shm"  # noqa: S108 - no file of ours
_MIN_SHM_BYTES = 1 * GIB
_DROP_CACHES = ("sh", "-c", "sync; echo 3 > /proc/sys/vm/drop_caches")


@host_check("memory", "available memory")
def available_memory(host: ExaminedHost) -> Iterator[Check]:
    memory = host.facts.memory
    total_bytes, available_bytes = memory.total_bytes, memory.available_bytes
    summary = f"Memory: {available_bytes / GIB:.1f} of {total_bytes / GIB:.1f} GiB available"
    large_roles = {"engine", "ray", "desktop"}
    processes = host.health.processes or ()
    names = dict.fromkeys(process.name for process in processes if process.role in large_roles)
    cause = f"{', '.join(names)} is running" if names else "other processes use the rest"
    fix = "ps -eo pid,rss,comm --sort=-rss | head  # end what is not needed"
    if available_bytes < min(_MIN_AVAILABLE_BYTES, total_bytes // 2):
        yield host.report_wrong(summary, cause=cause, fix=fix)
    elif available_bytes < _MIN_AVAILABLE_SHARE * total_bytes and (
        host.has_unified_memory or host.facts.is_jetson
    ):
        yield host.report_improvable(summary, cause=f"the GPU has no other memory; {cause}", fix=fix)
    else:
        yield host.report_ok(summary)


@health_check("page-cache", "page cache", lambda health: health.pages)
def page_cache(host: ExaminedHost, pages: Pages) -> Iterator[Check]:
    """Check how much memory the cache holds: on unified memory CUDA does not count the cache as free."""
    summary = f"Page cache holds {pages.cached_bytes / GIB:.1f} GiB, {pages.free_bytes / GIB:.1f} GiB is free"
    if host.has_unified_memory and pages.cached_bytes > _MAX_CACHED_SHARE * host.facts.memory.total_bytes:
        yield host.report_improvable(
            summary,
            cause="CUDA does not count the cache as free, and an older engine then fails with "
            "'Free memory on device is less than desired'",
            fix=host.build_fix(*_DROP_CACHES, needs_root=True),
        )
    else:
        yield host.report_ok(summary)


@health_check("swap", "swap", lambda health: health.pages)
def swap(host: ExaminedHost, pages: Pages) -> Iterator[Check]:
    summary = f"Swap: {pages.swapped_bytes / GIB:.1f} of {pages.swap_bytes / GIB:.1f} GiB used"
    if host.has_unified_memory and pages.swapped_bytes > _MAX_SWAPPED_BYTES:
        yield host.report_improvable(
            summary,
            cause="the GPU reads only from memory, so a model on a host that swaps is very slow",
            fix="sudo swapoff -a; sudo swapon -a  # once there is room again",
        )
    else:
        yield host.report_ok(summary if pages.swap_bytes else "none")


@health_check("guard", "out-of-memory guard", lambda health: health.processes)
def guard(host: ExaminedHost, processes: tuple[ProcessUsage, ...]) -> Iterator[Check]:
    """Check, on unified memory, for a process that ends the largest one before the host hangs."""
    guards = [process.name for process in processes if process.role == "guard"]
    if host.has_unified_memory and guards:
        yield host.report_ok(f"{', '.join(guards)} is running")
    elif host.has_unified_memory:
        yield host.report_improvable(
            "No guard ends a process that takes all memory",
            cause="GPU and host share memory: when it runs out the host hangs, and ssh with it",
            fix="sudo apt-get install -y earlyoom",
        )


@host_check("gpu-memory", "free GPU memory")
def free_gpu_memory(host: ExaminedHost) -> Iterator[Check]:
    for gpu in host.facts.gpus:
        free_bytes, total_bytes = gpu.memory_free_bytes, gpu.memory_bytes
        if free_bytes is None or total_bytes is None:
            continue
        summary = f"GPU {gpu.index}: {free_bytes / GIB:.1f} of {total_bytes / GIB:.1f} GiB is free"
        if free_bytes < _MIN_FREE_SHARE * total_bytes:
            yield host.report_improvable(
                summary,
                cause="engines ask for 90 % and fail with 'Free memory on device is less than desired'",
                fix="nvidia-smi --query-compute-apps=pid,process_name,used_memory --format=csv",
            )
        else:
            yield host.report_ok(summary)


@host_check("gpu-users", "other GPU processes")
def gpu_users(host: ExaminedHost) -> Iterator[Check]:
    """Find other processes on the GPUs; a desktop also by its processes, if nvidia-smi does not list it."""
    gpu_health, processes = host.health.gpus, host.health.processes or ()
    if not host.facts.gpus:
        return
    if gpu_health is None and host.health.processes is None:
        yield host.report_unknown(NOT_RECORDED)
        return
    users = [user for gpu in (gpu_health.gpus if gpu_health else ()) for user in gpu.users]
    medley_pids = {process.pid for process in processes if process.is_own_ray}
    desktop = [user for user in users if user.is_graphics] or [
        GpuUser(process.pid, process.name, is_graphics=True)
        for process in processes
        if process.role == "desktop"
    ]
    is_serving = bool(host.health.medley_files and host.health.medley_files.serving)
    computing = [user for user in users if not (user.is_graphics or user.pid in medley_pids or is_serving)]
    if desktop:
        yield host.report_improvable(
            f"A desktop uses the GPU: {_format_processes(desktop)}",
            cause="it takes GPU memory from a model, and GPU time while it draws",
            fix="sudo systemctl set-default multi-user.target; sudo systemctl isolate multi-user.target",
        )
    if computing:
        pids = " ".join(str(user.pid) for user in computing)
        yield host.report_improvable(
            f"Other processes compute on the GPU: {_format_processes(computing)}",
            cause="they take memory from a model, and share the GPU's speed",
            fix=f"ps -o pid,user,args -p {pids.replace(' ', ',')}  # and if they are yours: kill {pids}",
        )
    if not desktop and not computing:
        yield host.report_ok("only medley's model" if is_serving else "none")


@health_check("leftovers", "other Rays and engines", lambda health: health.processes)
def other_processes(host: ExaminedHost, processes: tuple[ProcessUsage, ...]) -> Iterator[Check]:
    """Find processes of Ray and of engines that are not part of this host's cluster.

    The check names the processes that others started; a fix never ends them, because only their users may.
    """
    medley_files = host.health.medley_files
    served_ports = medley_files.serving if medley_files else ()
    rays = [process for process in processes if process.role == "ray"]
    medley_rays = [process for process in rays if process.is_own_ray]
    stale_rays = medley_rays if medley_files and not medley_files.membership else []
    engines = [
        process
        for process in processes
        if process.role == "engine" and not process.is_own_ray and not served_ports
    ]
    if rays and not host.health.records_clusters:
        yield host.report_unknown(NOT_RECORDED)
        return
    other_rays = [process for process in rays if not process.is_own_ray]
    if (
        medley_files and medley_files.membership and not medley_rays
    ):  # its Ray is root's, in a container of docker
        other_rays = [process for process in other_rays if process.is_of_user]
    if other_rays:
        owner = _describe_owner(other_rays)
        yield host.report_improvable(
            f"Another Ray is running: {_format_processes(other_rays)}",
            cause=f"{owner} started it; it takes memory, and ports that medley's Ray uses",
            fix=_format_inspect_fix(other_rays),
        )
    if stale_rays:
        yield host.report_improvable(
            f"A Ray that medley started was left running: {_format_processes(stale_rays)}",
            cause="it does not belong to any cluster that medley has recorded",
            fix=host.build_fix("medley", "ray-stop"),
        )
    if engines:
        yield host.report_improvable(
            f"An engine is already running: {_format_processes(engines)}",
            cause="it takes memory that a model needs, and no server of this state folder started it",
            fix=_format_inspect_fix(engines),
        )
    if not (other_rays or stale_rays or engines):
        serving_text = f"medley serves at {', '.join(map(str, served_ports))}" if served_ports else ""
        ray_text = f"medley's Ray ({len(medley_rays)} processes)" if medley_rays else ""
        yield host.report_ok("; ".join(filter(None, (ray_text, serving_text))) or "none")


def _describe_owner(processes: Iterable[ProcessUsage]) -> str:
    """Return in words who owns the processes, as far as this user can read it."""
    if not all(process.is_of_user for process in processes):
        return "another user"
    if any(process.cluster for process in processes):
        return "a medley with another state folder"
    return "a program other than medley"


def _format_inspect_fix(processes: Iterable[ProcessUsage]) -> str:
    """Return a command that lists the processes; a fix never ends what another cluster may need."""
    pids = ",".join(str(process.pid) for process in processes)
    advice = (
        "end them as you started them"
        if all(process.is_of_user for process in processes)
        else "ask their user"
    )
    return f"ps -o pid,user,lstart,args -p {pids}  # and {advice}"


def _format_processes(processes: Iterable[GpuUser | ProcessUsage]) -> str:
    """Return names and numbers of processes, and the GPU memory in GiB of those that have some."""
    texts = []
    for process in processes:
        size_bytes = process.memory_bytes if isinstance(process, GpuUser) else None
        size_text = f", {size_bytes / GIB:.1f} GiB" if size_bytes else ""
        texts.append(f"{process.name} ({process.pid}{size_text})")
    return ", ".join(texts)


@host_check("shm", "shared memory")
def shared_memory(host: ExaminedHost) -> Iterator[Check]:
    size_bytes, container = host.facts.memory.shm_bytes, host.facts.software.container
    if size_bytes is None:
        yield host.report_unknown(f"df does not list {_SHM_FOLDER}")
    elif size_bytes < _MIN_SHM_BYTES:
        container_advice = f"; in {container}: start it with --shm-size 16g" if container else ""
        yield host.report_wrong(
            f"Shared memory ({_SHM_FOLDER}) has only {size_bytes >> 20} MiB",
            cause=f"the processes of an engine and Ray's objects share memory there{container_advice}",
            fix="sudo mount -o remount,size=8G /dev/shm",
        )
    else:
        yield host.report_ok(f"{_SHM_FOLDER} has {size_bytes / GIB:.1f} GiB")
