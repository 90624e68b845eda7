"""Prove an engine environment by imports and kernels, or list what an image holds; prints one JSON object.

python probe.py cuda vllm    or `cpu`, or `sglang`: imports, then real kernels on the device
python probe.py image        the Python, the versions and the programs of the engine and of Ray
python probe.py nccl         the NCCL that torch is linked to: each file that is mapped once torch is there
"""

import contextlib
import ctypes
import hashlib
import importlib
import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = {"vllm": ("torch", "ray", "vllm"), "sglang": ("torch", "ray", "sgl_kernel", "sglang")}
SIZE = 256
# TF32, which a GPU may use for float32, keeps 10 bits of a mantissa.
TOLERANCE = 1e-2


def main(device: str, engine: str = "") -> dict[str, Any]:
    if device == "image":
        return image_contents()
    return linked_nccl() if device == "nccl" else proof(device, engine)


def proof(device: str, engine: str) -> dict[str, Any]:
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    if device == "cpu":
        os.environ.setdefault("SGLANG_USE_CPU_ENGINE", "1")
    found: dict[str, Any] = {
        "python": platform.python_version(),
        "libc": os.confstr("CS_GNU_LIBC_VERSION"),
        "device": device,
        "engine": engine,
        "packages": {name: imported(name) for name in PACKAGES[engine]},
    }
    if all("error" not in package for package in found["packages"].values()):
        found["platform"] = attempt(vllm_platform if engine == "vllm" else sglang_platform)
        found["devices"] = attempt(lambda: [*devices(device, engine)])
    return found


def attempt(work: Callable[[], Any]) -> Any:  # noqa: ANN401 - JSON
    """Return what it returns, or its error: a proof has all that can be found out."""
    try:
        return work()
    except Exception as error:  # noqa: BLE001 - whatever it is, it belongs in the answer
        return {"error": f"{type(error).__name__}: {error}"}


def imported(name: str) -> dict[str, Any]:
    start = time.monotonic()
    found = attempt(lambda: {"version": importlib.import_module(name).__version__})
    return {**found, "seconds": round(time.monotonic() - start, 1)}


def vllm_platform() -> str:
    return str(importlib.import_module("vllm.platforms").current_platform.device_type)


def sglang_platform() -> str:
    importlib.import_module("sglang.srt.entrypoints.http_server")  # all that its server is made of
    return str(importlib.import_module("sglang.srt.utils").get_device())


def devices(device: str, engine: str) -> Iterator[dict[str, Any]]:
    torch = importlib.import_module("torch")
    if device == "cpu":
        yield {"name": "CPU", "threads": torch.get_num_threads(), **kernels("cpu", engine)}
        return
    arches = torch.cuda.get_arch_list()
    for index in range(torch.cuda.device_count()):
        about = torch.cuda.get_device_properties(index)
        capability = torch.cuda.get_device_capability(index)
        yield {
            "name": about.name,
            "capability": "{}.{}".format(*capability),
            "memory_bytes": about.total_memory,
            "arch_list": arches,
            "built_for_it": built_for(capability, arches),
            **kernels(f"cuda:{index}", engine),
        }


def built_for(capability: tuple[int, int], arches: list[str]) -> bool:
    """Code of the same major and no higher minor runs; the driver compiles PTX of a lower capability."""
    major, minor = capability
    for arch in arches:
        kind, _, number = arch.partition("_")
        number = number.rstrip("af")
        if not number.isdigit():
            continue
        has_major, has_minor = divmod(int(number), 10)
        if kind == "sm" and has_major == major and has_minor <= minor:
            return True
        if kind == "compute" and (has_major, has_minor) <= (major, minor):
            return True
    return False


def kernels(place: str, engine: str) -> dict[str, Any]:
    """Torch's matmul and a kernel of the engine's own, each compared with the same in float64 on the CPU."""
    silu_and_mul = silu_and_mul_of_vllm if engine == "vllm" else silu_and_mul_of_sglang
    return {"matmul": attempt(lambda: matmul(place)), "silu_and_mul": attempt(lambda: silu_and_mul(place))}


def matmul(place: str) -> dict[str, Any]:
    torch = importlib.import_module("torch")
    torch.manual_seed(0)
    left, right = torch.randn(SIZE, SIZE), torch.randn(SIZE, SIZE)
    start = time.monotonic()
    found = (left.to(place) @ right.to(place)).cpu()
    return compared(found, left.double() @ right.double(), start)


def silu_and_mul_of_vllm(place: str) -> dict[str, Any]:
    torch = importlib.import_module("torch")
    with contextlib.suppress(AttributeError):
        importlib.import_module("vllm.platforms").current_platform.import_kernels()
    both = random_pairs("float32")
    out = torch.empty(8, SIZE, device=place)
    start = time.monotonic()
    torch.ops._C.silu_and_mul(out, both.to(place))  # noqa: SLF001 - where vLLM registers its kernels
    return compared(out.cpu(), right_silu_and_mul(both), start)


def silu_and_mul_of_sglang(place: str) -> dict[str, Any]:
    """Its layer, which chooses: the kernel of sglang-kernel on a GPU, torch's functions on a CPU."""
    layer = importlib.import_module("sglang.srt.layers.activation").SiluAndMul()
    both = random_pairs("float16")
    start = time.monotonic()
    return compared(layer(both.to(place)).cpu(), right_silu_and_mul(both), start)


def random_pairs(kind: str) -> Any:  # noqa: ANN401 - a tensor
    torch = importlib.import_module("torch")
    torch.manual_seed(0)
    return torch.randn(8, 2 * SIZE).to(getattr(torch, kind))


def right_silu_and_mul(both: Any) -> Any:  # noqa: ANN401 - tensors
    gate, up = both.double().chunk(2, dim=-1)
    return importlib.import_module("torch").nn.functional.silu(gate) * up


def compared(found: Any, right: Any, start: float) -> dict[str, Any]:  # noqa: ANN401 - tensors
    worst = (found.double() - right).abs().max().item() / right.abs().max().item()
    return {"ok": worst < TOLERANCE, "error_share": worst, "seconds": round(time.monotonic() - start, 3)}


def image_contents() -> dict[str, Any]:
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "machine": platform.machine(),
        "versions": {name: version(name) for name in ("vllm", "ray", "torch", "sglang")},
        "programs": {name: shutil.which(name) for name in ("vllm", "sglang", "ray")},
    }


def version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def linked_nccl() -> dict[str, Any]:
    torch = attempt(lambda: {"torch": importlib.import_module("torch").__name__})
    if "error" in torch:
        return {"error": torch["error"][:400]}
    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    paths = sorted({path for line in lines if "/libnccl.so" in (path := "".join(line.split(maxsplit=5)[5:]))})
    digests = {path: hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in paths}
    return {
        "nccl": [{"path": path, "sha256": digests[path], "version": nccl_version(path)} for path in paths]
    }


def nccl_version(path: str) -> int:
    """As NCCL counts it: 22707 is 2.27.7."""
    found = ctypes.c_int()
    try:
        ctypes.CDLL(path).ncclGetVersion(ctypes.byref(found))
    except (OSError, AttributeError):
        return 0
    return found.value


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
