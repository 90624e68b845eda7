"""Which kernels vLLM chooses on each kind of host, and where their code comes from: read, not run.

    .venv/bin/medley env build vllm-cuda                     # 10 GB; it needs no GPU
    .venv/bin/python -m benchmarks.kernel_choice --write     # writes benchmarks/results/kernel_choice.txt

vLLM's own selectors run on a GPU that is only declared (declared_gpu.py), without medley's flags. A library
libcuda.so.1 without a driver lets its own load. docs/explanation/environments.md has the code of the wheels.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from medley import config, process
from medley.command import UNSET, Command
from medley.environment import cuda_folder, virtualenv

ENVIRONMENT = "vllm-cuda"
KINDS = ("spark", "rtx", "thor", "orin-r39")
RESULT = Path(__file__).parent / "results" / "kernel_choice.txt"
PROGRAM = Path(__file__).with_name("declared_gpu.py")
_LIMIT_S = 300
_DRIVER_VERSION = 13_000
# Where code comes from by the name of the choice, and the capabilities of the wheel's machine code (aarch64).
# It runs on later minors of its major; the driver compiles PTX 8.0 at its first use, which takes minutes.
_CODE: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (r"flashinfer", "compiled here by FlashInfer (nvcc)", ()),
    (r"deepgemm", "compiled here by DeepGEMM (nvcc)", ()),
    (r"triton", "compiled here by Triton", ()),
    (r"flashattention", "wheel, FA2", ("8.0",)),
    (r"marlin", "wheel, _moe_C", ("8.0", "8.7", "8.9", "9.0", "10.0", "11.0", "12.0")),
    (r"cutlass", "wheel, _C", ("8.0", "8.6", "8.7", "8.9", "9.0", "10.0", "11.0", "12.0")),
)


def origin(choice: str, capability: str) -> str:
    """Say where the code of this kernel for this GPU comes from; `NO CODE` if nowhere."""
    if choice.startswith("none"):
        return "-"
    for pattern, where, machine_code in _CODE:
        if re.search(pattern, choice, re.IGNORECASE):
            if not machine_code or _runs(machine_code, capability):
                return where
            return f"{where}: PTX 8.0" if machine_code[0] == "8.0" else "NO CODE"
    return "?"


def _runs(machine_code: tuple[str, ...], capability: str) -> bool:
    major, _, minor = capability.partition(".")
    versions = (each.split(".") for each in machine_code)
    return any(each[0] == major and int(each[1]) <= int(minor) for each in versions)


def choices(capability: str, driver: Path) -> Mapping[str, str]:
    environment = virtualenv.find(ENVIRONMENT)
    if environment is None:
        sys.exit(f"{ENVIRONMENT} is not built here: medley env build {ENVIRONMENT}")
    home = next(environment.path.glob(f"lib/python*/site-packages/{cuda_folder.FOLDER}"))
    _make_driver(home / "include" / "cuda.h", driver)
    env = {"LD_LIBRARY_PATH": str(driver), cuda_folder.CUDA_HOME: str(home), "VLLM_LOGGING_LEVEL": "ERROR"}
    lines: list[str] = []
    argv = (str(environment.python), str(PROGRAM), capability)
    process.run(Command(argv, env, UNSET), limit_s=_LIMIT_S, on_line=lines.append)
    found = next((json.loads(each) for each in reversed(lines) if each.startswith("{")), None)
    if found is None:
        sys.exit("\n".join(lines[-6:]))
    return dict(found)


def _make_driver(header: Path, folder: Path) -> None:
    """Compile a libcuda.so.1 that has a version and no GPU, because CUTLASS's Python checks the version."""
    names = set(re.findall(r"\bcu[A-Z]\w+\b", header.read_text(encoding="utf-8"))) - {"cuDriverGetVersion"}
    source = "".join(f"int {name}(void) {{ return 100; }}\n" for name in sorted(names))
    source += f"int cuDriverGetVersion(int *version) {{ *version = {_DRIVER_VERSION}; return 0; }}\n"
    library = folder / "libcuda.so.1"
    words = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-Wl,-soname,libcuda.so.1", "-o", str(library)]
    subprocess.run(words, input=source, text=True, check=True)


def lines() -> Iterator[str]:
    yield "vLLM's own choice for a GPU that is only declared, without medley's flags. Read, not run."
    with tempfile.TemporaryDirectory() as folder:
        for kind in KINDS:
            host = config.hosts()[kind]
            capability = host.capability or (host.toolkit.capability if host.toolkit else None) or ""
            yield f"\n{kind} ({capability})"
            for layer, choice in choices(capability, Path(folder)).items():
                yield f"  {layer:28}{choice:44}{origin(choice, capability)}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.name}")
    asked = parser.parse_args()
    text = "\n".join(lines()) + "\n"
    print(text, end="")
    if asked.write:
        RESULT.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
