"""Check GPU clocks, power, devices, driver libraries, compilers, kernels, and limits of processes."""

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from medley.doctor.checks import (
    NOT_RECORDED,
    Check,
    Examination,
    ExaminedHost,
    State,
    all_hosts_check,
    health_check,
    host_check,
)
from medley.environment import driver
from medley.environment.engine_source import build_missing_nccl_problem, has_matching_nvcc, needs_nccl
from medley.host.driver_libraries import LibraryFile
from medley.host.health.access import Access, list_low_limits
from medley.host.health.gpu import FOLDERS, Compilers, GpuState, GpuStates
from medley.host.health.software import MedleyFiles
from medley.host.kind import Kind
from medley.host_schema import (
    ENGINE_TABLES,
    Power,
)
from medley.planner.compatibility import has_toolkit
from medley.schema import (
    TITLES,
    EngineName,
)

_THROTTLE_REASONS = ("HW Slowdown", "HW Thermal Slowdown", "HW Power Brake Slowdown", "SW Thermal Slowdown")
_FIRST_CUDA_BY_CAPABILITY = {"8.7": "11.4", "8.9": "11.8", "9.0": "11.8", "10.0": "12.8", "10.3": "12.9"} | {
    "11.0": "13.0",  # Thor was sm_101 before
    "12.0": "12.8",
    "12.1": "12.9",
}
"""The first CUDA whose ptxas supports a capability: the table of releases in the PTX ISA."""
_TOOLKIT_PTXAS = "/usr/local/cuda/bin/ptxas"
_BLACKWELL_CAPABILITY = "10.0"


@health_check("clocks", "GPU clocks", lambda health: health.gpus)
def clocks(host: ExaminedHost, states: GpuStates) -> Iterator[Check]:
    for number, gpu in enumerate(states.gpus):
        throttle_reasons = [reason for reason in gpu.clock_limits if reason in _THROTTLE_REASONS]
        is_capped = gpu.set_mhz and gpu.default_mhz and gpu.set_mhz < gpu.default_mhz
        if throttle_reasons:
            yield host.report_improvable(
                f"GPU {number} is throttled: {', '.join(throttle_reasons)}",
                cause="it is too hot, or its power supply is too weak",
                fix="nvidia-smi -q -d TEMPERATURE,POWER,PERFORMANCE  # then check fans and power supply",
            )
        elif is_capped or "Applications Clocks Setting" in gpu.clock_limits:
            yield host.report_improvable(
                f"GPU {number} is limited to {gpu.set_mhz or gpu.mhz or '?'} MHz "
                f"of {gpu.default_mhz or gpu.max_mhz or '?'}",
                cause="its clocks were set by hand; 2,200 MHz on a GB10 cost 15 to 35 % of the speed",
                fix=f"sudo nvidia-smi -i {number} -rgc; sudo nvidia-smi -i {number} -rac",
            )
        elif power_table := _find_stuck_power(host, gpu):
            yield host.report_improvable(
                f"GPU {number} computes at {gpu.mhz} of {gpu.max_mhz} MHz without a reported reason",
                cause=power_table.stuck_cause or "",
                fix=power_table.slow_fix or "",
            )
        else:
            max_mhz = gpu.set_mhz or gpu.max_mhz or "?"
            yield host.report_ok(f"GPU {number}: {gpu.mhz or '?'} MHz now, {max_mhz} at most")
    if not states.gpus and host.facts.gpus and not host.facts.is_jetson:
        yield host.report_unknown("nvidia-smi does not report clocks")


def _find_stuck_power(host: ExaminedHost, gpu: GpuState) -> Power | None:
    """Return the power table of the kind if this GPU computes at a clock below `stuck_below`."""
    power_table = host.kind.table.power if host.kind else Power()
    is_busy = any(not user.is_graphics for user in gpu.users) and "Idle" not in gpu.clock_limits
    is_slow = gpu.mhz and gpu.max_mhz and gpu.mhz < (power_table.stuck_below or 0) * gpu.max_mhz
    return power_table if is_busy and is_slow else None


@health_check("power", "Jetson power mode", lambda health: health.gpus)
def power_mode(host: ExaminedHost, states: GpuStates) -> Iterator[Check]:
    """Check that a Jetson runs in its fastest power mode, and whether its clocks are pinned."""
    if not host.facts.is_jetson:
        return
    report = host.health.kernel
    mode, fastest = states.power_mode, host.kind.table.power.fastest if host.kind else ()
    if mode is None:
        yield host.report_unknown("nvpmodel is not installed")
    elif mode in fastest or mode.startswith("MAXN"):
        yield host.report_ok(f"{mode}, the fastest")
    else:
        mode_numbers = dict(report.power_modes) if report else {}
        number = next((mode_numbers[name] for name in fastest if name in mode_numbers), None)
        yield host.report_improvable(
            f"Power mode is {mode}, not MAXN",
            cause="it lowers the clocks of processor, GPU and memory. Some modes need a "
            "reboot, and nvpmodel then asks for it",
            # MAXN's number is 0 on AGX Orin and Thor; smaller modules have other numbers.
            fix=host.build_fix("nvpmodel", "-m", number, needs_root=True)
            if number
            else "grep POWER_MODEL /etc/nvpmodel.conf; sudo nvpmodel -m 0  # or MAXN's number there",
        )
    if report and report.has_pinned_clocks is False:
        yield host.report_improvable(
            "GPU clock follows the load",
            cause="it rises only after some work; jetson_clocks keeps it at the power mode's maximum "
            "until the next boot, for more heat and noise",
            fix=host.build_fix("jetson_clocks", needs_root=True),
        )


@health_check("devices", "device permissions", lambda health: health.access)
def device_permissions(host: ExaminedHost, access: Access) -> Iterator[Check]:
    """Check that this user may open the devices of GPUs and of RDMA."""
    closed = [path for path in access.closed_devices if "infiniband" not in path]
    rdma = [path for path in access.closed_devices if "infiniband" in path]
    if closed:
        yield host.report_wrong(
            f"This user cannot open {', '.join(closed)}",
            cause="CUDA then does not find a device",
            fix="sudo usermod -aG video,render $USER  # then log in again",
        )
    if rdma:
        yield host.report_wrong(
            f"This user cannot open {', '.join(rdma)}",
            cause="NCCL then finds no RDMA device and silently uses TCP",
            fix=shlex.join(("sudo", "chmod", "666", *rdma)),
        )
    if not access.closed_devices:
        yield host.report_ok(", ".join(access.open_devices) or "no GPU or RDMA devices here")


@health_check("driver-libraries", "driver libraries", lambda health: health.driver)
def driver_libraries(host: ExaminedHost, files: Mapping[str, LibraryFile]) -> Iterator[Check]:
    if host.gpu_kind is None:
        return
    table, software = host.gpu_kind.table, host.facts.software
    found_libraries = driver.find_libraries(table.driver, host.facts.system.partition("-")[0], files.get)
    system: Literal["NixOS", "WSL"] | None = None
    if software.nixos:
        system = "NixOS"
    elif "microsoft" in (software.kernel or "").lower():
        system = "WSL"
    problem = driver.find_install_problem(found_libraries, table, host.name, system)
    if problem is None:
        version = f"{found_libraries.version}, " if found_libraries.version else ""
        yield host.report_ok(f"{version}libcuda is {found_libraries.paths[driver.CUDA_LIBRARY]}")
    elif unsearched := {*table.driver.directories, *table.driver.shared_directories}.difference(FOLDERS):
        yield host.report_unknown(f"only known folders are searched, not {', '.join(sorted(unsearched))}")
    elif driver.CUDA_LIBRARY in found_libraries.paths or found_libraries.refusals or host.has_nix_toolkit:
        # Nix's loader has no host folders, so medley has to find the driver itself.
        yield host.report_problem(problem)
    else:
        yield host.report_unknown(
            "libcuda is not in a folder that medley searches; the host's loader may find it"
        )


@health_check("limits", "process limits", lambda health: health.access)
def process_limits(host: ExaminedHost, access: Access) -> Iterator[Check]:
    """Check how much memory processes may lock here, and how many files they may open."""
    problems = list(
        list_low_limits(access.limits, "$USER", rdma=any(port.active for port in host.facts.rdma))
    )
    for problem in problems:
        # A shell does not expand $USER in single quotes.
        command, _, next_step = problem.fix.replace("'", '"').partition(", then ")
        state: State = "wrong" if problem.what.startswith("Locked") else "better"
        yield host.report(state, problem.what, cause=problem.cause, fix=f"{command}  # then {next_step}")
    if not problems:
        files, locked_bytes = access.limits.open_files or "unlimited", access.limits.locked_bytes
        locked_text = "unlimited" if locked_bytes is None else f"{locked_bytes >> 10} KiB of"
        yield host.report_ok(f"{files} open files, {locked_text} locked memory")


@health_check("ptxas", "ptxas for this GPU", lambda health: health.compilers)
def ptxas(host: ExaminedHost, host_compilers: Compilers) -> Iterator[Check]:
    """Check for a ptxas that supports this GPU; Triton compiles every kernel with it."""
    capability = host.capability or ""
    first_cuda = _FIRST_CUDA_BY_CAPABILITY.get(capability)
    if first_cuda is None:
        return
    arch = f"sm_{capability.replace('.', '')}"
    names = f"TRITON_PTXAS_PATH={_TOOLKIT_PTXAS} TRITON_PTXAS_BLACKWELL_PATH={_TOOLKIT_PTXAS}"
    install = f"sudo apt-get install -y cuda-nvcc-{first_cuda.replace('.', '-')}; export {names}"
    suitable = [(path, cuda) for path, cuda in host_compilers.ptxas if _is_version_at_least(cuda, first_cuda)]
    if setting := _find_bad_setting(host, host_compilers, capability, first_cuda):
        variable, path, cuda = setting
        cause = f"it is of CUDA {cuda}, and {arch} came with {first_cuda}"
        yield host.report_wrong(
            f"{variable}={path} does not know {arch}",
            cause=cause if cuda else "the program does not exist",
            fix=f"export {variable}={shlex.quote(suitable[0][0])}" if suitable else install,
        )
    elif suitable:
        yield host.report_ok(f"{suitable[0][0]} of CUDA {suitable[0][1]} knows {arch}")
    elif host_compilers.is_from_nix:
        yield host.report_ok("part of Nix's toolkit for this host")
    elif host_compilers.ptxas:
        path, cuda = host_compilers.ptxas[-1]
        yield host.report(
            "wrong" if "/site-packages/" in path or host.member.env else "better",
            f"No ptxas here knows {arch}",
            cause=f"{path} is of CUDA {cuda} and fails with: Value '{arch}a' is not defined",
            fix=install,
        )
    else:
        yield host.report_ok("not installed; an engine environment has its own")


def _find_bad_setting(
    host: ExaminedHost, host_compilers: Compilers, capability: str, first_cuda: str
) -> tuple[str, str, str | None] | None:
    """Return the variable that names a ptxas that is too old or absent, its value, and the ptxas' CUDA.

    From 3.7 on Triton reads TRITON_PTXAS_BLACKWELL_PATH for GPUs from Blackwell on.
    """
    values = host.health.settings.variables if host.health.settings else {}
    variable = "TRITON_PTXAS_BLACKWELL_PATH"
    if variable not in values or not _is_version_at_least(capability, _BLACKWELL_CAPABILITY):
        variable = "TRITON_PTXAS_PATH"
    path = values.get(variable)
    cuda = dict(host_compilers.ptxas).get(path) if path else None
    return (variable, path, cuda) if path and not (cuda and _is_version_at_least(cuda, first_cuda)) else None


def _is_version_at_least(version: str, minimum: str) -> bool:
    """Return whether the version is the minimum or later, by the first two numbers of both."""
    numbers, minimum_numbers = (
        [int(part) for part in text.split(".")[:2] if part.isdecimal()] for text in (version, minimum)
    )
    return numbers >= minimum_numbers


@all_hosts_check("compiler", "gcc, Python headers, CUDA toolkit")
def compilers(examination: Examination) -> Iterator[Check]:
    """Check for gcc, which Triton and torch run, and for nvcc, which compiles kernels at run time."""
    for host in examination.hosts.values():
        if host.gpu_kind is not None:
            yield _check_compilers(host, host.gpu_kind, examination.engine)


def _check_compilers(host: ExaminedHost, kind: Kind, engine: EngineName) -> Check:
    if host.has_nix_toolkit:
        return host.report_ok("gcc and nvcc are part of Nix's toolkit for this host")
    return _check_c_compiler(host, kind) or _check_cuda_compiler(host, kind, engine)


def _check_c_compiler(host: ExaminedHost, kind: Kind) -> Check | None:
    """Return what is wrong with gcc or Python's headers, if anything."""
    if "gcc" not in host.facts.software.programs:
        return host.report_wrong(
            "gcc is not installed",
            cause="Triton compiles a small C program for every kernel it starts: 'Failed to find C compiler'",
            fix="sudo apt-get install -y build-essential",
        )
    if environments := _list_headless_environments(host, kind):
        return host.report_wrong(
            f"Python of {environments} has no headers",
            cause="Triton compiles a C file with them for every kernel: 'Python.h: No such file'",
            fix="sudo apt-get install -y python3-dev",
        )
    return None


def _check_cuda_compiler(host: ExaminedHost, kind: Kind, engine: EngineName) -> Check:
    cuda = host.facts.software.cuda
    if host.member.image:
        return host.report_ok(f"gcc; nvcc is the image's own ({host.member.image})")
    if not host.member.env and has_matching_nvcc(kind.table.environments.get(engine, "")):
        return host.report_ok("gcc; nvcc is the engine environment's own")
    if has_toolkit(host.facts, kind.table):
        return host.report_ok(f"gcc; nvcc of CUDA {cuda or 'no known version'}")
    if cuda and (toolkit := kind.table.toolkit):
        return host.report_wrong(
            f"CUDA toolkit {cuda} is too old for this GPU",
            cause=f"/usr/local/cuda is of {cuda}, and engines compile for it with {toolkit.least_nvcc} or "
            "later; FlashInfer then reports that it requires sm75 or higher",
            fix="sudo apt-get install -y cuda-toolkit-13-0  # or: export VLLM_USE_FLASHINFER_SAMPLER=0",
        )
    return _report_no_toolkit(host, engine)


def _report_no_toolkit(host: ExaminedHost, engine: EngineName) -> Check:
    # Read in the wheels of both locks: has_flashinfer looks in CUDA_HOME, CUDA_PATH, PATH, /usr/local/cuda.
    needs_toolkit, consequence = ENGINE_TABLES[engine].needs_toolkit, ENGINE_TABLES[engine].without_toolkit
    for name, table in ENGINE_TABLES.items():
        if table.needs_toolkit and not needs_toolkit:
            consequence += f"; {TITLES[name]} fails"
    return host.report(
        "wrong" if needs_toolkit else "better",
        "CUDA toolkit is not installed",
        cause="kernels are compiled with the nvcc of CUDA_HOME, PATH or /usr/local/cuda, and "
        f"{host.member.env or 'the engine environment'} brings none that fits its headers. {consequence}",
        fix="sudo apt-get install -y cuda-toolkit-13-0  # cuda-nvcc-13-0 lacks the headers",
    )


def _list_headless_environments(host: ExaminedHost, kind: Kind) -> str:
    """Name the environments of its kind, and the one of cluster.toml, whose Python has no headers."""
    locks = set(kind.table.environments.values())
    paths = host.health.compilers.without_headers if host.health.compilers else ()
    built = [path for path in paths if Path(path).name.rpartition("-")[0] in locks]
    configured = [path for path in paths if path == host.member.env]
    return ", ".join(Path(path).name for path in (*built, *configured))


@host_check("kernels", "engine kernels for this GPU")
def engine_kernels(host: ExaminedHost) -> Iterator[Check]:
    """Check that the engine's environment or image was built for this GPU."""
    if (kind := host.gpu_kind) is None:
        return
    if host.member.image:
        yield host.report_ok(f"the engine comes from the image {host.member.image}")
        return
    if kind.no_image_reason and not host.member.env:
        yield host.report_improvable(
            f"No engine environment and no image runs on this {kind.name}",
            cause=kind.no_image_reason,
            fix=f"upgrade to {kind.table.upgrade}; or, with an image for its L4T: "
            "medley serve MODEL --image NAME",
        )
        return
    if kind.table.no_environment and not host.member.env:
        yield host.report_improvable(
            f"No engine environment can be built for {kind.name}",
            cause=kind.table.no_environment.replace("\n", " ").strip(),
            fix='in cluster.toml: image = "default"; on this host only: medley serve MODEL --image default',
        )
        return
    if needs_nccl(kind) and not (host.member.env or host.member.nccl or host.has_nix_toolkit):
        problem = build_missing_nccl_problem(kind)
        yield host.report_improvable(
            f"{problem.what}; one host can serve", cause=problem.cause, fix=problem.fix
        )
    medley_files = host.health.medley_files
    if medley_files is None:
        yield host.report_unknown(NOT_RECORDED)
        return
    environments = _list_environments(host, kind, medley_files)
    failures = [
        failure
        for name, packages in environments.items()
        if (failure := _check_torch(host, name, packages.get("torch", "")))
    ]
    yield from failures
    if not failures:
        yield host.report_ok(f"{', '.join(environments) or 'no environment yet'}: built for a GPU like this")


def _list_environments(
    host: ExaminedHost, kind: Kind, medley_files: MedleyFiles
) -> Mapping[str, Mapping[str, str]]:
    """Return packages by environment: the virtualenv of cluster.toml, or all of the kind's locks."""
    if host.member.env and medley_files.user_packages:
        return {host.member.env: medley_files.user_packages}
    locks = set(kind.table.environments.values())
    return {
        name: packages for name, packages in medley_files.packages.items() if name.rpartition("-")[0] in locks
    }


def _check_torch(host: ExaminedHost, name: str, torch: str) -> Check | None:
    """Compare the CUDA in torch's version, as 2.13.0+cu130, with the first one that supports this GPU."""
    first_cuda = _FIRST_CUDA_BY_CAPABILITY.get(host.capability or "")
    build = torch.partition("+")[2]
    cuda = f"{build[2:-1]}.{build[-1]}" if build.startswith("cu") and build[2:].isdecimal() else None
    if build != "cpu" and not (cuda and first_cuda and not _is_version_at_least(cuda, first_cuda)):
        return None
    reason = f", and this GPU came with CUDA {first_cuda}" if cuda else ", built for the CPU only"
    return host.report_wrong(
        f"{name} has no kernels for this GPU",
        cause=f"its torch is {torch}{reason}: 'no kernel image is available for execution on the device'",
        fix=f"medley env build  # or into {shlex.quote(name)} a torch for CUDA {first_cuda or '13.0'} "
        "and an engine for it",
    )
