"""What JITs of CUDA C++ make in a shell: an engine's Python runs it inside `nix develop`, and it prints JSON.

jit.py torch SOURCE FOLDER      torch.utils.cpp_extension's own ninja file, built: FOLDER/unit.so
jit.py nvrtc SOURCE FOLDER      nvrtc makes PTX of it, the toolkit's ptxas a cubin: FOLDER/unit.cubin
"""

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path

HOME = Path(os.environ["CUDA_HOME"])


def with_torch(source: str, folder: str) -> dict[str, object]:
    from torch.utils import cpp_extension as torch_extension

    # What a torch with CUDA does when it is imported; the one here is for CPUs.
    torch_extension.CUDA_HOME = torch_extension._find_cuda_home()  # noqa: SLF001 - as its own import does
    torch_extension._write_ninja_file_to_build_library(  # noqa: SLF001 - load() itself would link torch_cuda
        path=f"{folder}/build.ninja",
        name="unit",
        sources=[source],
        extra_cflags=[],
        extra_cuda_cflags=[],
        extra_sycl_cflags=[],
        extra_ldflags=[f"-L{torch_extension._join_cuda_home('lib64')}", "-lcudart"],  # noqa: SLF001 - as it links
        extra_include_paths=[],
        with_cuda=True,
        with_sycl=False,
        is_standalone=False,
    )
    return {"said": run("ninja", "-v", "-C", folder)}


def with_nvrtc(source: str, folder: str) -> dict[str, object]:
    nvrtc = ctypes.CDLL(str(next((HOME / "lib").glob("libnvrtc.so.*"))))
    number = os.environ["TORCH_CUDA_ARCH_LIST"].replace(".", "")
    options = [f"--gpu-architecture=compute_{number}", f"-I{HOME}/include", "-std=c++17"]
    program = ctypes.c_void_p()
    text = Path(source).read_bytes()
    assert not nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, b"kernel.cu", 0, None, None)
    given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    failed = nvrtc.nvrtcCompileProgram(program, len(options), given)
    assert not failed, got(nvrtc, program, "ProgramLog").decode()
    ptx = Path(folder, "unit.ptx")
    ptx.write_bytes(got(nvrtc, program, "PTX").rstrip(b"\0"))
    run(os.environ["TRITON_PTXAS_PATH"], f"--gpu-name=sm_{number}", str(ptx), "-o", f"{folder}/unit.cubin")
    return {"options": options}


def got(nvrtc: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    getattr(nvrtc, f"nvrtcGet{what}")(program, text)
    return text.raw


def run(*command: str) -> str:
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stdout + said.stderr
    return said.stdout


if __name__ == "__main__":
    made = {"torch": with_torch, "nvrtc": with_nvrtc}[sys.argv[1]](*sys.argv[2:])
    print(json.dumps(made))
