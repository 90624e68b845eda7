"""The GPU's own: its clocks and power, and whether what compiles or was compiled for it knows it."""

from collections.abc import Iterator
from pathlib import Path

from medley.condition.access import Access
from medley.condition.compilers import Compilers
from medley.condition.gpu_state import GpuStates
from medley.doctor.shapes import UNASKED, Check, Host, better, ok, unknown, wrong
from medley.facts.gpu import Gpu
from medley.origin import needs_nccl, no_nccl

_SLOW = ("HW Slowdown", "HW Thermal Slowdown", "HW Power Brake Slowdown", "SW Thermal Slowdown")
_FIRST_CUDA = {"8.7": "11.4", "8.9": "11.8", "9.0": "11.8", "10.0": "12.8", "10.3": "12.9"} | {
    "11.0": "13.0",  # Thor was sm_101 before
    "12.0": "12.8",
    "12.1": "12.9",
}
"""The first CUDA whose ptxas knows a capability: the table of releases in the PTX ISA."""
_TOOLKITS = "/usr/local/cuda/bin/ptxas"
_BLACKWELL = "10.0"


def clocks(host: Host, states: GpuStates) -> Iterator[Check]:
    for number, gpu in enumerate(states.gpus):
        held = [each for each in gpu.held if each in _SLOW]
        capped = gpu.set_mhz and gpu.default_mhz and gpu.set_mhz < gpu.default_mhz
        said = f"GPU {number}: {gpu.mhz or '?'} MHz now, {gpu.set_mhz or gpu.most_mhz or '?'} at most"
        if held:
            yield better(
                host.name,
                f"GPU {number} is slowed down: {', '.join(held)}",
                cause="it is too hot, or its supply gives too little",
                fix="nvidia-smi -q -d TEMPERATURE,POWER,PERFORMANCE  # then its fans and its supply",
            )
        elif capped or "Applications Clocks Setting" in gpu.held:
            yield better(
                host.name,
                f"GPU {number} is held to {gpu.set_mhz or gpu.mhz or '?'} MHz "
                f"of {gpu.default_mhz or gpu.most_mhz or '?'}",
                cause="somebody has set its clocks; 2200 MHz on a GB10 was seen to cost 15 to 35 %",
                fix=f"sudo nvidia-smi -i {number} -rgc; sudo nvidia-smi -i {number} -rac",
            )
        else:
            yield ok(host.name, said)
    if not states.gpus and host.facts.gpus and not host.facts.is_jetson:
        yield unknown(host.name, "nvidia-smi tells nothing of its clocks")


def power(host: Host, states: GpuStates) -> Iterator[Check]:
    """Of a Jetson, which runs slower than it could unless it is told to."""
    if not host.facts.is_jetson:
        return
    mode = states.power_mode
    if mode is None:
        yield unknown(host.name, "there is no nvpmodel to ask")
    elif mode.startswith("MAXN"):
        yield ok(host.name, f"{mode}, the fastest")
    else:
        yield better(
            host.name,
            f"its power mode is {mode}",
            cause="it lowers the clocks of processor, GPU and memory; MAXN does not",
            # Its number is 0 on AGX Orin and Thor, and another on smaller modules.
            fix="grep POWER_MODEL /etc/nvpmodel.conf; sudo nvpmodel -m 0  # or MAXN's number there",
        )


def assembler(host: Host, compilers: Compilers) -> Iterator[Check]:
    """A ptxas that knows this GPU, which Triton compiles every kernel with."""
    gpu = next(iter(host.facts.gpus), None)
    capability = _capability(host, gpu) or ""
    needs = _FIRST_CUDA.get(capability)
    if gpu is None or needs is None:
        return
    arch = f"sm_{capability.replace('.', '')}"
    known = [(path, cuda) for path, cuda in compilers.ptxas if _at_least(cuda, needs)]
    if strange := _strange(host, compilers, capability, needs):
        variable, path, of = strange
        yield wrong(
            host.name,
            f"{variable}={path} does not know {arch}",
            cause=f"it is of CUDA {of}, and {arch} came with {needs}" if of else "there is no such program",
            fix=f"export {variable}={known[0][0]}" if known else _install(needs),
        )
    elif known:
        yield ok(host.name, f"{known[0][0]} of CUDA {known[0][1]} knows {arch}")
    elif compilers.pinned:
        yield ok(host.name, "Nix brings one with the toolkit of this kind of host")
    elif compilers.ptxas:
        path, cuda = compilers.ptxas[-1]
        found = wrong if "/site-packages/" in path or host.member.env else better
        yield found(
            host.name,
            f"no ptxas here knows {arch}",
            cause=f"{path} is of CUDA {cuda}; it says: Value '{arch}a' is not defined",
            fix=_install(needs),
        )
    else:
        yield ok(host.name, "there is none, and an engine environment brings its own")


def _strange(
    host: Host, compilers: Compilers, capability: str, needs: str
) -> tuple[str, str, str | None] | None:
    """A variable that names one that is too old, or not there: from 3.7 on Triton reads another of them."""
    said = host.condition.settings.variables if host.condition.settings else {}
    new = _at_least(capability, _BLACKWELL)
    for variable in ("TRITON_PTXAS_BLACKWELL_PATH", "TRITON_PTXAS_PATH"):
        path = said.get(variable)
        older = variable == "TRITON_PTXAS_PATH" and "TRITON_PTXAS_BLACKWELL_PATH" in said
        if not path or (variable == "TRITON_PTXAS_BLACKWELL_PATH" and not new) or (older and new):
            continue
        cuda = dict(compilers.ptxas).get(path)
        if cuda is None or not _at_least(cuda, needs):
            return variable, path, cuda
    return None


def _install(needs: str) -> str:
    words = needs.replace(".", "-")
    names = f"TRITON_PTXAS_PATH={_TOOLKITS} TRITON_PTXAS_BLACKWELL_PATH={_TOOLKITS}"
    return f"sudo apt-get install -y cuda-nvcc-{words}; export {names}"


def _capability(host: Host, gpu: Gpu | None) -> str | None:
    if gpu is None:
        return None
    return gpu.capability or (host.kind.host.capability if host.kind else None)


def _at_least(cuda: str, needs: str) -> bool:
    return _numbers(cuda) >= _numbers(needs)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())


def compiler(host: Host) -> Iterator[Check]:
    """Gcc for what Triton and torch compile while they run, nvcc for kernels that are compiled then."""
    if host.kind is None or host.kind.host.device == "cpu":
        return
    programs, compilers = host.facts.software.programs, host.condition.compilers
    if compilers and compilers.pinned:
        yield ok(host.name, "Nix brings gcc and nvcc with the toolkit of this kind of host")
    elif "gcc" not in programs:
        yield wrong(
            host.name,
            "there is no gcc",
            cause="Triton compiles a small C program for every kernel it starts: 'Failed to find C compiler'",
            fix="sudo apt-get install -y build-essential",
        )
    elif compilers and (headless := _headless(host, compilers)):
        yield wrong(
            host.name,
            f"the Python of {headless} has no headers",
            cause="what Triton compiles for every kernel it starts includes them: 'Python.h: No such file'",
            fix="sudo apt-get install -y python3-dev",
        )
    elif host.member.image:
        yield ok(host.name, f"gcc; nvcc is the image's own ({host.member.image})")
    elif "nvcc" not in programs and not host.facts.software.cuda:
        # Read in the wheels of both locks: vLLM's has_flashinfer looks in CUDA_HOME, CUDA_PATH, PATH and
        # /usr/local/cuda; the wheel's nvcc is of 13.5, the headers beside it are of 13.0.
        yield better(
            host.name,
            "there is no CUDA toolkit",
            cause="FlashInfer compiles its kernels with the nvcc of CUDA_HOME, PATH or /usr/local/cuda. That "
            "among an environment's wheels is in none of these, and newer than the headers beside it. vLLM "
            "goes on without FlashInfer, SGLang fails",
            fix="sudo apt-get install -y cuda-toolkit-13-0  # cuda-nvcc-13-0 lacks the headers",
        )
    else:
        yield ok(host.name, f"gcc; nvcc of CUDA {host.facts.software.cuda or 'no known version'}")


def _headless(host: Host, compilers: Compilers) -> str:
    """Of its kind's environments, or its own."""
    names = set(host.kind.host.environments.values()) if host.kind else set()
    ours = (each for each in compilers.headless if Path(each).name.rpartition("-")[0] in names)
    own = (each for each in compilers.headless if each == host.member.env)
    return ", ".join(Path(each).name for each in (*ours, *own))


def kernels(host: Host) -> Iterator[Check]:
    """What was compiled before: an engine for a GPU, of a CUDA that knows it."""
    if host.kind is None or host.kind.host.device == "cpu":
        return
    keeping = host.condition.keeping
    if host.member.image:
        yield ok(host.name, f"its engine is that of an image ({host.member.image})")
        return
    if host.kind.host.no_environment and not host.member.env:
        yield better(
            host.name,
            f"no environment can be built for {host.kind.name}",
            cause=host.kind.host.no_environment.replace("\n", " ").strip(),
            fix='in cluster.toml: image = "default"; on this host alone: medley serve MODEL --image default',
        )
        return
    yield from _unable(host)
    if keeping is None:
        yield unknown(host.name, UNASKED)
        return
    names = set(host.kind.host.environments.values())
    fit = {each: packages for each, packages in keeping.packages.items() if each.rpartition("-")[0] in names}
    own = {host.member.env: keeping.own} if host.member.env and keeping.own else {}
    needs = _FIRST_CUDA.get(_capability(host, next(iter(host.facts.gpus), None)) or "")
    found = [
        problem
        for name, packages in (own or fit).items()
        if (problem := _unfit(host, name, packages.get("torch", ""), needs))
    ]
    yield from found or [
        ok(host.name, f"{', '.join(own or fit) or 'no environment yet'}: built for a GPU like this")
    ]


def _unable(host: Host) -> Iterator[Check]:
    """A host whose engine can serve, and cannot talk to another."""
    pinned = host.condition.compilers and host.condition.compilers.pinned
    if host.kind and needs_nccl(host.kind) and not host.member.env and not pinned:
        problem = no_nccl(host.kind)
        yield better(host.name, f"{problem.what}; alone it serves", cause=problem.cause, fix=problem.fix)


def _unfit(host: Host, name: str, torch: str, needs: str | None) -> Check | None:
    build = torch.partition("+")[2]
    cuda = f"{build[2:-1]}.{build[-1]}" if build.startswith("cu") and build[2:].isdecimal() else None
    if build != "cpu" and not (cuda and needs and not _at_least(cuda, needs)):
        return None
    return wrong(
        host.name,
        f"{name} has no kernels for this GPU",
        cause=f"its torch is {torch}"
        + (f", and this GPU came with CUDA {needs}" if cuda else ", which is built for the processor alone")
        + ": 'no kernel image is available for execution on the device'",
        fix=f"medley env build  # or into {name} a torch for CUDA {needs or '13.0'} and an engine for it",
    )


def devices(host: Host, access: Access) -> Iterator[Check]:
    """Whether this user may open those of its GPUs and of RDMA."""
    closed = [path for path in access.closed if "infiniband" not in path]
    rdma = [path for path in access.closed if "infiniband" in path]
    if closed:
        yield wrong(
            host.name,
            f"this user may not open {', '.join(closed)}",
            cause="CUDA then finds no device",
            fix="sudo usermod -aG video,render $USER  # then log in anew",
        )
    if rdma:
        yield wrong(
            host.name,
            f"this user may not open {', '.join(rdma)}",
            cause="NCCL then finds no RDMA device, and goes by TCP without a word",
            fix=f"sudo chmod 666 {' '.join(rdma)}",
        )
    if not closed and not rdma:
        yield ok(host.name, ", ".join(access.open) or "no device of a GPU or of RDMA is here")
