"""GPU clocks, power, devices, driver libraries; compilers and kernels for the GPU; limits of processes."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from medley.doctor.checks import (
    UNASKED,
    Case,
    Check,
    ExaminedHost,
    State,
    case_check,
    health_check,
    host_check,
)
from medley.environment import driver
from medley.environment.engine_source import brings_nvcc, needs_nccl, no_nccl
from medley.host.driver_libraries import Seen
from medley.host.health.access import Access, low_limits
from medley.host.health.gpu import FOLDERS, Compilers, GpuState, GpuStates
from medley.host.kind import Kind
from medley.host_schema import Power
from medley.planner.compatibility import has_toolkit
from medley.schema import EngineName

_SLOW = ("HW Slowdown", "HW Thermal Slowdown", "HW Power Brake Slowdown", "SW Thermal Slowdown")
_FIRST_CUDA = {"8.7": "11.4", "8.9": "11.8", "9.0": "11.8", "10.0": "12.8", "10.3": "12.9"} | {
    "11.0": "13.0",  # Thor was sm_101 before
    "12.0": "12.8",
    "12.1": "12.9",
}
"""The first CUDA whose ptxas knows a capability: the table of releases in the PTX ISA."""
_TOOLKITS = "/usr/local/cuda/bin/ptxas"
_BLACKWELL = "10.0"


@health_check("clocks", "GPU clocks", lambda health: health.gpus)
def clocks(host: ExaminedHost, states: GpuStates) -> Iterator[Check]:
    for number, gpu in enumerate(states.gpus):
        held = [each for each in gpu.held if each in _SLOW]
        capped = gpu.set_mhz and gpu.default_mhz and gpu.set_mhz < gpu.default_mhz
        if held:
            yield host.better(
                f"GPU {number} is throttled: {', '.join(held)}",
                cause="it is too hot, or its power supply is too weak",
                fix="nvidia-smi -q -d TEMPERATURE,POWER,PERFORMANCE  # then check fans and power supply",
            )
        elif capped or "Applications Clocks Setting" in gpu.held:
            yield host.better(
                f"GPU {number} is limited to {gpu.set_mhz or gpu.mhz or '?'} MHz "
                f"of {gpu.default_mhz or gpu.most_mhz or '?'}",
                cause="its clocks were set by hand; 2,200 MHz on a GB10 cost 15 to 35 % of the speed",
                fix=f"sudo nvidia-smi -i {number} -rgc; sudo nvidia-smi -i {number} -rac",
            )
        elif power := _stuck(host, gpu):
            yield host.better(
                f"GPU {number} computes at {gpu.mhz} of {gpu.most_mhz} MHz without a reported reason",
                cause=power.stuck_cause or "",
                fix=power.slow_fix or "",
            )
        else:
            most = gpu.set_mhz or gpu.most_mhz or "?"
            yield host.ok(f"GPU {number}: {gpu.mhz or '?'} MHz now, {most} at most")
    if not states.gpus and host.facts.gpus and not host.facts.is_jetson:
        yield host.unknown("nvidia-smi does not report clocks")


def _stuck(host: ExaminedHost, gpu: GpuState) -> Power | None:
    """Return what the table of the kind has about a GPU that computes at such a clock."""
    power = host.kind.host.power if host.kind else Power()
    busy = any(not user.graphics for user in gpu.users) and "Idle" not in gpu.held
    is_slow = gpu.mhz and gpu.most_mhz and gpu.mhz < (power.stuck_below or 0) * gpu.most_mhz
    return power if busy and is_slow else None


@health_check("power", "Jetson power mode", lambda health: health.gpus)
def power(host: ExaminedHost, states: GpuStates) -> Iterator[Check]:
    """Of a Jetson, which runs slower than it could unless it is told to."""
    if not host.facts.is_jetson:
        return
    report = host.health.kernel
    mode, fastest = states.power_mode, host.kind.host.power.fastest if host.kind else ()
    if mode is None:
        yield host.unknown("nvpmodel is not installed")
    elif mode in fastest or mode.startswith("MAXN"):
        yield host.ok(f"{mode}, the fastest")
    else:
        numbers = dict(report.power_modes) if report else {}
        number = next((numbers[each] for each in fastest if each in numbers), None)
        yield host.better(
            f"Power mode is {mode}, not MAXN",
            cause="it lowers the clocks of processor, GPU and memory. Some modes need a "
            "reboot, and nvpmodel then asks for it",
            # Its number is 0 on AGX Orin and Thor, and another on smaller modules.
            fix=host.mend("nvpmodel", "-m", number, root=True)
            if number
            else "grep POWER_MODEL /etc/nvpmodel.conf; sudo nvpmodel -m 0  # or MAXN's number there",
        )
    if report and report.pinned_clocks is False:
        yield host.better(
            "GPU clock follows the load",
            cause="it rises only after some work; jetson_clocks keeps it at the power mode's maximum "
            "until the next boot, for more heat and noise",
            fix=host.mend("jetson_clocks", root=True),
        )


@health_check("devices", "device permissions", lambda health: health.access)
def devices(host: ExaminedHost, access: Access) -> Iterator[Check]:
    """Whether this user may open those of its GPUs and of RDMA."""
    closed = [path for path in access.closed if "infiniband" not in path]
    rdma = [path for path in access.closed if "infiniband" in path]
    if closed:
        yield host.wrong(
            f"This user cannot open {', '.join(closed)}",
            cause="CUDA then does not find a device",
            fix="sudo usermod -aG video,render $USER  # then log in again",
        )
    if rdma:
        yield host.wrong(
            f"This user cannot open {', '.join(rdma)}",
            cause="NCCL then finds no RDMA device and silently uses TCP",
            fix=f"sudo chmod 666 {' '.join(rdma)}",
        )
    if not access.closed:
        yield host.ok(", ".join(access.open) or "no GPU or RDMA devices here")


@health_check("driver-libraries", "driver libraries", lambda health: health.driver)
def libraries(host: ExaminedHost, files: Mapping[str, Seen]) -> Iterator[Check]:
    if host.gpu_kind is None:
        return
    table, software = host.gpu_kind.host, host.facts.software
    found = driver.libraries(table.driver, host.facts.system.partition("-")[0], files.get)
    wsl = "microsoft" in (software.kernel or "").lower()
    problem = driver.unfit(found, table, host.name, "NixOS" if software.nixos else "WSL" if wsl else None)
    if problem is None:
        version = f"{found.version}, " if found.version else ""
        yield host.ok(f"{version}libcuda is {found.paths[driver.CUDA]}")
    elif own := {*table.driver.directories, *table.driver.shared_directories}.difference(FOLDERS):
        yield host.unknown(f"only known folders are searched, not {', '.join(sorted(own))}")
    elif driver.CUDA in found.paths or found.refused or host.pinned:
        # On Nix's loader medley alone finds the driver.
        yield host.failed(problem)
    else:
        yield host.unknown("libcuda is not in a folder that medley searches; the host's loader may find it")


@health_check("limits", "process limits", lambda health: health.access)
def limits(host: ExaminedHost, access: Access) -> Iterator[Check]:
    """Memory that may be locked, and files that may be open, for what is started from here."""
    low = list(low_limits(access.limits, "$USER", rdma=any(port.active for port in host.facts.rdma)))
    for each in low:
        # In single quotes a shell leaves $USER as it is.
        command, _, then = each.fix.replace("'", '"').partition(", then ")
        state: State = "wrong" if each.what.startswith("Locked") else "better"
        yield host.report(state, each.what, cause=each.cause, fix=f"{command}  # then {then}")
    if not low:
        files, locked = access.limits.open_files or "unlimited", access.limits.locked_bytes
        yield host.ok(
            f"{files} open files, {'unlimited' if locked is None else f'{locked >> 10} KiB of'} locked memory"
        )


@health_check("ptxas", "ptxas for this GPU", lambda health: health.compilers)
def assembler(host: ExaminedHost, compilers: Compilers) -> Iterator[Check]:
    """A ptxas that knows this GPU, which Triton compiles every kernel with."""
    capability = host.capability or ""
    needs = _FIRST_CUDA.get(capability)
    if needs is None:
        return
    arch = f"sm_{capability.replace('.', '')}"
    names = f"TRITON_PTXAS_PATH={_TOOLKITS} TRITON_PTXAS_BLACKWELL_PATH={_TOOLKITS}"
    install = f"sudo apt-get install -y cuda-nvcc-{needs.replace('.', '-')}; export {names}"
    known = [(path, cuda) for path, cuda in compilers.ptxas if _at_least(cuda, needs)]
    if strange := _strange(host, compilers, capability, needs):
        variable, path, of = strange
        yield host.wrong(
            f"{variable}={path} does not know {arch}",
            cause=f"it is of CUDA {of}, and {arch} came with {needs}" if of else "the program does not exist",
            fix=f"export {variable}={known[0][0]}" if known else install,
        )
    elif known:
        yield host.ok(f"{known[0][0]} of CUDA {known[0][1]} knows {arch}")
    elif compilers.pinned:
        yield host.ok("part of Nix's toolkit for this host")
    elif compilers.ptxas:
        path, cuda = compilers.ptxas[-1]
        yield host.report(
            "wrong" if "/site-packages/" in path or host.member.env else "better",
            f"No ptxas here knows {arch}",
            cause=f"{path} is of CUDA {cuda} and fails with: Value '{arch}a' is not defined",
            fix=install,
        )
    else:
        yield host.ok("not installed; an engine environment has its own")


def _strange(
    host: ExaminedHost, compilers: Compilers, capability: str, needs: str
) -> tuple[str, str, str | None] | None:
    """A variable that names one that is too old, or not there: from 3.7 on Triton reads another of them."""
    said = host.health.settings.variables if host.health.settings else {}
    newer = "TRITON_PTXAS_BLACKWELL_PATH"
    variable = newer if newer in said and _at_least(capability, _BLACKWELL) else "TRITON_PTXAS_PATH"
    path = said.get(variable)
    cuda = dict(compilers.ptxas).get(path) if path else None
    return (variable, path, cuda) if path and not (cuda and _at_least(cuda, needs)) else None


def _at_least(cuda: str, needs: str) -> bool:
    ours, theirs = (
        [int(part) for part in version.split(".")[:2] if part.isdecimal()] for version in (cuda, needs)
    )
    return ours >= theirs


@case_check("compiler", "gcc, Python headers, CUDA toolkit")
def compiler(case: Case) -> Iterator[Check]:
    """Gcc for what Triton and torch compile while they run, nvcc for kernels that are compiled then."""
    for host in case.hosts.values():
        if host.gpu_kind is not None:
            yield _compiler(host, host.gpu_kind, case.engine)


def _compiler(host: ExaminedHost, kind: Kind, engine: EngineName) -> Check:
    if host.pinned:
        return host.ok("gcc and nvcc are part of Nix's toolkit for this host")
    return _c_compiler(host, kind) or _cuda_compiler(host, kind, engine)


def _c_compiler(host: ExaminedHost, kind: Kind) -> Check | None:
    """What is wrong with gcc or Python's headers, if anything."""
    if "gcc" not in host.facts.software.programs:
        return host.wrong(
            "gcc is not installed",
            cause="Triton compiles a small C program for every kernel it starts: 'Failed to find C compiler'",
            fix="sudo apt-get install -y build-essential",
        )
    if headless := _headless(host, kind):
        return host.wrong(
            f"Python of {headless} has no headers",
            cause="Triton compiles a C file with them for every kernel: 'Python.h: No such file'",
            fix="sudo apt-get install -y python3-dev",
        )
    return None


def _cuda_compiler(host: ExaminedHost, kind: Kind, engine: EngineName) -> Check:
    cuda = host.facts.software.cuda
    if host.member.image:
        return host.ok(f"gcc; nvcc is the image's own ({host.member.image})")
    if not host.member.env and brings_nvcc(kind.host.environments.get(engine, "")):
        return host.ok("gcc; nvcc is the engine environment's own")
    if has_toolkit(host.facts, kind.host):
        return host.ok(f"gcc; nvcc of CUDA {cuda or 'no known version'}")
    if cuda and (toolkit := kind.host.toolkit):
        return host.wrong(
            f"CUDA toolkit {cuda} is too old for this GPU",
            cause=f"/usr/local/cuda is of {cuda}, and engines compile for it with {toolkit.least_nvcc} or "
            "later; FlashInfer then reports that it requires sm75 or higher",
            fix="sudo apt-get install -y cuda-toolkit-13-0  # or: export VLLM_USE_FLASHINFER_SAMPLER=0",
        )
    return _without_toolkit(host, engine)


def _without_toolkit(host: ExaminedHost, engine: EngineName) -> Check:
    # Read in the wheels of both locks: has_flashinfer looks in CUDA_HOME, CUDA_PATH, PATH, /usr/local/cuda.
    # SGLang 0.5.23 compiles FlashInfer's and its own kernels (jit_kernel) for every model.
    fails = (
        "SGLang compiles kernels for every model, and fails without it"
        if engine == "sglang"
        else "vLLM runs without FlashInfer and DeepGEMM, as medley plans it, and cannot run the sparse "
        "attention of GLM-5 and DeepSeek; SGLang fails"
    )
    return host.report(
        "wrong" if engine == "sglang" else "better",
        "CUDA toolkit is not installed",
        cause="kernels are compiled with the nvcc of CUDA_HOME, PATH or /usr/local/cuda, and "
        f"{host.member.env or 'the engine environment'} brings none that fits its headers. {fails}",
        fix="sudo apt-get install -y cuda-toolkit-13-0  # cuda-nvcc-13-0 lacks the headers",
    )


def _headless(host: ExaminedHost, kind: Kind) -> str:
    """Of its kind's environments, or its own."""
    names = set(kind.host.environments.values())
    found = host.health.compilers.headless if host.health.compilers else ()
    ours = (each for each in found if Path(each).name.rpartition("-")[0] in names)
    own = (each for each in found if each == host.member.env)
    return ", ".join(Path(each).name for each in (*ours, *own))


@host_check("kernels", "engine kernels for this GPU")
def kernels(host: ExaminedHost) -> Iterator[Check]:
    """What was compiled before: an engine for a GPU, of a CUDA that knows it."""
    if (kind := host.gpu_kind) is None:
        return
    if host.member.image:
        yield host.ok(f"the engine comes from the image {host.member.image}")
        return
    if kind.no_image and not host.member.env:
        yield host.better(
            f"No engine environment and no image runs on this {kind.name}",
            cause=kind.no_image,
            fix=f"upgrade to {kind.host.upgrade}; or, with an image for its L4T: "
            "medley serve MODEL --image NAME",
        )
        return
    if kind.host.no_environment and not host.member.env:
        yield host.better(
            f"No engine environment can be built for {kind.name}",
            cause=kind.host.no_environment.replace("\n", " ").strip(),
            fix='in cluster.toml: image = "default"; on this host only: medley serve MODEL --image default',
        )
        return
    if needs_nccl(kind) and not (host.member.env or host.member.nccl or host.pinned):
        problem = no_nccl(kind)
        yield host.better(f"{problem.what}; one host can serve", cause=problem.cause, fix=problem.fix)
    keeping = host.health.keeping
    if keeping is None:
        yield host.unknown(UNASKED)
        return
    names = set(kind.host.environments.values())
    fit = {each: packages for each, packages in keeping.packages.items() if each.rpartition("-")[0] in names}
    there = {host.member.env: keeping.own} if host.member.env and keeping.own else fit
    found = [_unfit(host, name, packages.get("torch", "")) for name, packages in there.items()]
    yield from filter(None, found)
    if not any(found):
        yield host.ok(f"{', '.join(there) or 'no environment yet'}: built for a GPU like this")


def _unfit(host: ExaminedHost, name: str, torch: str) -> Check | None:
    needs = _FIRST_CUDA.get(host.capability or "")
    build = torch.partition("+")[2]
    cuda = f"{build[2:-1]}.{build[-1]}" if build.startswith("cu") and build[2:].isdecimal() else None
    if build != "cpu" and not (cuda and needs and not _at_least(cuda, needs)):
        return None
    why = f", and this GPU came with CUDA {needs}" if cuda else ", built for the CPU only"
    return host.wrong(
        f"{name} has no kernels for this GPU",
        cause=f"its torch is {torch}{why}: 'no kernel image is available for execution on the device'",
        fix=f"medley env build  # or into {name} a torch for CUDA {needs or '13.0'} and an engine for it",
    )
