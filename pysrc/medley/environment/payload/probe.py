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
MATRIX_SIDE = 256
# The largest error, as a share of the largest value: a GPU may use TF32, which has 10 bits of mantissa.
MAX_ERROR_SHARE = 1e-2


def main(device: str, engine: str = "") -> dict[str, Any]:
    if device == "image":
        return list_image_contents()
    return find_linked_nccl() if device == "nccl" else prove_environment(device, engine)


def prove_environment(device: str, engine: str) -> dict[str, Any]:
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    if device == "cpu":
        os.environ.setdefault("SGLANG_USE_CPU_ENGINE", "1")
    answer: dict[str, Any] = {
        "python": platform.python_version(),
        "libc": os.confstr("CS_GNU_LIBC_VERSION"),
        "device": device,
        "engine": engine,
        "packages": {name: import_package(name) for name in PACKAGES[engine]},
    }
    if all("error" not in package for package in answer["packages"].values()):
        answer["platform"] = attempt(detect_vllm_platform if engine == "vllm" else detect_sglang_platform)
        answer["devices"] = attempt(lambda: [*prove_devices(device, engine)])
    return answer


def attempt(work: Callable[[], Any]) -> Any:  # noqa: ANN401 - JSON
    """Return the function's result, or its error: a proof reports every result it can get."""
    try:
        return work()
    except Exception as error:  # noqa: BLE001 - any error belongs in the answer
        return {"error": f"{type(error).__name__}: {error}"}


def import_package(name: str) -> dict[str, Any]:
    started_s = time.monotonic()
    result = attempt(lambda: {"version": importlib.import_module(name).__version__})
    return {**result, "seconds": round(time.monotonic() - started_s, 1)}


def detect_vllm_platform() -> str:
    return str(importlib.import_module("vllm.platforms").current_platform.device_type)


def detect_sglang_platform() -> str:
    importlib.import_module("sglang.srt.entrypoints.http_server")  # imports all modules of its server
    return str(importlib.import_module("sglang.srt.utils").get_device())


def prove_devices(device: str, engine: str) -> Iterator[dict[str, Any]]:
    torch = importlib.import_module("torch")
    if device == "cpu":
        yield {"name": "CPU", "threads": torch.get_num_threads(), **run_kernels("cpu", engine)}
        return
    arches = torch.cuda.get_arch_list()
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        capability = torch.cuda.get_device_capability(index)
        yield {
            "name": properties.name,
            "capability": "{}.{}".format(*capability),
            "memory_bytes": properties.total_memory,
            "arch_list": arches,
            "built_for_it": is_built_for(capability, arches),
            **run_kernels(f"cuda:{index}", engine),
        }


def is_built_for(capability: tuple[int, int], arches: list[str]) -> bool:
    """Return whether torch has code for the GPU: the same major, no higher minor; or PTX of no higher one."""
    major, minor = capability
    for arch in arches:
        code, _, number = arch.partition("_")
        number = number.rstrip("af")
        if not number.isdigit():
            continue
        code_major, code_minor = divmod(int(number), 10)
        if code == "sm" and code_major == major and code_minor <= minor:
            return True
        if code == "compute" and (code_major, code_minor) <= (major, minor):
            return True
    return False


def run_kernels(device: str, engine: str) -> dict[str, Any]:
    """Run torch's matmul and a kernel of the engine; compare each with float64 on the CPU."""
    run_silu_and_mul = run_vllm_silu_and_mul if engine == "vllm" else run_sglang_silu_and_mul
    return {
        "matmul": attempt(lambda: run_matmul(device)),
        "silu_and_mul": attempt(lambda: run_silu_and_mul(device)),
    }


def run_matmul(device: str) -> dict[str, Any]:
    torch = importlib.import_module("torch")
    torch.manual_seed(0)
    left, right = torch.randn(MATRIX_SIDE, MATRIX_SIDE), torch.randn(MATRIX_SIDE, MATRIX_SIDE)
    started_s = time.monotonic()
    product = (left.to(device) @ right.to(device)).cpu()
    return compare(product, left.double() @ right.double(), started_s)


def run_vllm_silu_and_mul(device: str) -> dict[str, Any]:
    torch = importlib.import_module("torch")
    with contextlib.suppress(AttributeError):
        importlib.import_module("vllm.platforms").current_platform.import_kernels()
    pairs = create_random_pairs("float32")
    output = torch.empty(8, MATRIX_SIDE, device=device)
    started_s = time.monotonic()
    torch.ops._C.silu_and_mul(output, pairs.to(device))  # noqa: SLF001 - where vLLM registers its kernels
    return compare(output.cpu(), compute_silu_and_mul(pairs), started_s)


def run_sglang_silu_and_mul(device: str) -> dict[str, Any]:
    """Run SGLang's layer, which uses sglang-kernel's kernel on a GPU and torch's functions on a CPU."""
    layer = importlib.import_module("sglang.srt.layers.activation").SiluAndMul()
    pairs = create_random_pairs("float16")
    started_s = time.monotonic()
    return compare(layer(pairs.to(device)).cpu(), compute_silu_and_mul(pairs), started_s)


def create_random_pairs(kind: str) -> Any:  # noqa: ANN401 - a tensor
    torch = importlib.import_module("torch")
    torch.manual_seed(0)
    return torch.randn(8, 2 * MATRIX_SIDE).to(getattr(torch, kind))


def compute_silu_and_mul(pairs: Any) -> Any:  # noqa: ANN401 - tensors
    gate, up = pairs.double().chunk(2, dim=-1)
    return importlib.import_module("torch").nn.functional.silu(gate) * up


def compare(result: Any, reference: Any, started_s: float) -> dict[str, Any]:  # noqa: ANN401 - tensors
    error_share = (result.double() - reference).abs().max().item() / reference.abs().max().item()
    return {
        "ok": error_share < MAX_ERROR_SHARE,
        "error_share": error_share,
        "seconds": round(time.monotonic() - started_s, 3),
    }


def list_image_contents() -> dict[str, Any]:
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "machine": platform.machine(),
        "versions": {name: read_version(name) for name in ("vllm", "ray", "torch", "sglang")},
        "programs": {name: shutil.which(name) for name in ("vllm", "sglang", "ray")},
    }


def read_version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def find_linked_nccl() -> dict[str, Any]:
    torch = attempt(lambda: {"torch": importlib.import_module("torch").__name__})
    if "error" in torch:
        return {"error": torch["error"][:400]}
    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    paths = sorted({path for line in lines if "/libnccl.so" in (path := "".join(line.split(maxsplit=5)[5:]))})
    digests = {path: hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in paths}
    return {
        "nccl": [
            {"path": path, "sha256": digests[path], "version": read_nccl_version(path)} for path in paths
        ]
    }


def read_nccl_version(path: str) -> int:
    """Return NCCL's version number, 22707 for 2.27.7; 0 if the library cannot be loaded."""
    number = ctypes.c_int()
    try:
        ctypes.CDLL(path).ncclGetVersion(ctypes.byref(number))
    except (OSError, AttributeError):
        return 0
    return number.value


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
