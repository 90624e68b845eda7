"""Compiling on the host: Triton, TorchInductor, nvcc and the JITs of kernel libraries, and what they lack."""

from medley.explain.known import MEDIUM, Known, shape

KNOWN = (
    Known(
        "ptxas-architecture",
        what="Triton's ptxas does not know this GPU ({arch})",
        cause="its ptxas has no {arch}: it is older than the GPU (Thor is sm_110a, Spark sm_121a)",
        # Triton reads the second from capability 10.0 on.
        fix="take the one of CUDA 13: export TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas "
        "TRITON_PTXAS_BLACKWELL_PATH=/usr/local/cuda/bin/ptxas (Nix's toolkit sets both),\n"
        "or compile nothing: medley serve MODEL -- --enforce-eager",
        shapes=(
            shape(
                "is not defined for option 'gpu-name'",
                r"ptxas\S* fatal +: Value '(?P<arch>sm_\w+)' is not defined for option",
            ),
            shape("PTXASError", r"PTXASError.*(?P<arch>sm_\w+)"),
        ),
        over=("compile-failed",),
    ),
    Known(
        "nvcc-architecture",
        what="nvcc does not know this GPU's architecture ({arch})",
        cause="nvcc has no {arch}: its CUDA is older than the GPU",
        fix="use CUDA 13's: export CUDA_HOME=/usr/local/cuda-13.0 PATH=/usr/local/cuda-13.0/bin:$PATH, or "
        "medley env build, whose toolkit fits the host",
        shapes=(
            shape(
                "Unsupported gpu architecture", r"nvcc fatal +: Unsupported gpu architecture '(?P<arch>\w+)'"
            ),
            shape(
                "No supported CUDA architectures found",
                r"No supported CUDA architectures found for (?P<arch>major versions \[[^\]]*\])",
            ),
            shape("Unknown CUDA arch", r"Unknown CUDA arch \((?P<arch>[^)]+)\)"),
        ),
        over=("compile-failed",),
    ),
    Known(
        "compiler-missing",
        what="no C or C++ compiler is found",
        cause="{said}: PyTorch and Triton compile small programs at the first start",
        fix="sudo apt install build-essential (or run inside nix develop .#KIND), or compile nothing: "
        "medley serve MODEL -- --enforce-eager",
        shapes=(
            shape("Failed to find C compiler", r"(?P<said>Failed to find C compiler)"),
            shape("No working C++ compiler", r"(?P<said>No working C\+\+ compiler found)"),
            shape("InvalidCxxCompiler", r"(?P<said>InvalidCxxCompiler)"),
            shape(
                "No such file or directory: '",
                r"(?P<said>No such file or directory: '(?:\S*/)?(?:gcc|g\+\+|cc|c\+\+|clang|clang\+\+)')",
            ),
            shape("command not found", r"(?P<said>\b(?:gcc|g\+\+|cc|c\+\+): (?:command )?not found)"),
            shape(
                "command '",
                r"error: command '(?P<said>(?:\S*/)?(?:gcc|g\+\+|cc|c\+\+)' failed: No such file or "
                r"directory)",
            ),
        ),
        over=("compile-failed",),
    ),
    Known(
        "python-headers",
        what="the headers of this Python are missing (Python.h)",
        cause="Triton compiles a small module and does not find {file}",
        fix="sudo apt install python3-dev of the same version, or take an environment with a Python that "
        "has them: medley env build",
        shapes=(shape("fatal error: ", r"fatal error: (?P<file>Python\.h|pyconfig\.h): No such file"),),
        over=("compile-failed",),
    ),
    Known(
        "cuda-headers",
        what="a header of the CUDA toolkit is missing",
        cause="the compiler does not find {file}",
        fix="install the whole toolkit of this CUDA (not the runtime alone), and name it: export "
        "CUDA_HOME=/usr/local/cuda; or medley env build",
        shapes=(
            shape(
                "fatal error: ",
                r"fatal error: (?P<file>(?:crt/|cuda|cublas|curand|cusparse|cusolver|nv|cccl|cub/|thrust/)"
                r"[\w./]*\.(?:h|hpp|cuh)): No such file",
            ),
        ),
        over=("compile-failed",),
    ),
    Known(
        "cuda-toolkit-missing",
        what="no CUDA toolkit is found (nvcc)",
        cause="{said}",
        fix="medley env build brings the host's toolkit; by hand: install it and export "
        "CUDA_HOME=/usr/local/cuda PATH=/usr/local/cuda/bin:$PATH",
        shapes=(
            shape("Could not find nvcc", r"(?P<said>Could not find nvcc[^\n]{0,100})"),
            shape(
                "CUDA_HOME environment variable is not set",
                r"(?P<said>CUDA_HOME environment variable is not set)",
            ),
            shape("nvcc'", r"(?P<said>No such file or directory: '(?:\S*/)?nvcc')"),
            shape("nvcc: ", r"(?P<said>nvcc: (?:command )?not found)"),
            shape("ptxas", r"(?P<said>No such file or directory: '(?:\S*/)?ptxas\S*'|Cannot find ptxas)"),
        ),
    ),
    Known(
        "ninja-missing",
        what="the build program ninja is missing",
        cause="{said}",
        fix="pip install ninja in that environment, or medley env build",
        shapes=(
            shape("inja is required", r"(?P<said>[Nn]inja is required to load C\+\+ extensions)"),
            shape("ninja'", r"(?P<said>No such file or directory: '(?:\S*/)?ninja')"),
        ),
    ),
    Known(
        "compiler-killed",
        what="the compiler was killed: the host's memory ran out while kernels were compiled",
        cause="'{program}' died of signal {signal}; each of these takes gigabytes, and several run at once",
        fix="compile one at a time: MAX_JOBS=1 medley serve MODEL; or none of the experts' kernels: "
        "medley serve MODEL -- --moe-backend marlin",
        shapes=(
            shape("died due to signal", r"'(?P<program>\w+)' died due to signal (?P<signal>\d+)"),
            shape(
                "fatal error: Killed signal terminated program",
                r"Killed (?P<signal>signal) terminated program (?P<program>\w+)",
            ),
            shape(
                "FAILED: ",
                r"FAILED: (?:\[code=\d+\] "
                r")?\S+\.o\b[^\n]*\n\s*\S*?(?P<program>nvcc|cicc|g\+\+|c\+\+|clang\+\+)"
                r"\b[^\n]*\n\s*(?P<signal>Killed)$",
            ),
        ),
        more=2,
        over=("compile-failed",),
    ),
    Known(
        "cuda-versions-differ",
        what="the CUDA toolkit is not the one PyTorch was built for",
        cause="the toolkit is {here} and PyTorch's {wanted}",
        fix="export CUDA_HOME=/usr/local/cuda-{wanted}, or take one environment for both: medley env build",
        shapes=(
            shape(
                "detected CUDA version",
                r"detected CUDA version \((?P<here>[\d.]+)\) mismatches the version that was used to "
                r"compile\s*PyTorch \((?P<wanted>[\d.]+)\)",
            ),
        ),
    ),
    Known(
        "glibc-too-new",
        what="this CUDA's headers do not fit the host's libc",
        cause="{said}: glibc 2.41 and newer declare these functions in another way",
        fix="use CUDA 13.2 or newer, or the toolkit of medley env build (Nix patches it); never a host's "
        "nvcc with Nix's gcc",
        shapes=(
            shape(
                "exception specification is incompatible",
                r"(?P<said>exception specification is incompatible with that of previous function "
                r"\"?(?:rsqrt|sinpi|cospi)\S*)",
            ),
        ),
        over=("compile-failed",),
    ),
    Known(
        "kernel-too-large",
        what="a Triton kernel needs more shared memory than this GPU has",
        cause="it needs {needed} bytes and the GPU has {has}: it was tuned for another GPU",
        fix="take another kernel: -- --attention-backend FLASHINFER (vLLM), or the other way: "
        "TRITON_ATTN; a newer engine tunes for it",
        shapes=(
            shape(
                "out of resource",
                r"out of resource: shared memory, Required: (?P<needed>\d+), Hardware limit: (?P<has>\d+)",
            ),
        ),
    ),
    Known(
        "flashinfer-jit",
        what="FlashInfer could not compile its kernels (JIT with nvcc and ninja)",
        cause="{said}",
        fix="clear what it kept, and give it the toolkit of PyTorch's CUDA: rm -r ~/.cache/flashinfer; "
        "medley env build; or "
        "another backend: medley serve MODEL -- --attention-backend TRITON_ATTN (SGLang: triton)",
        shapes=(
            shape("Ninja build failed", r"(?P<said>Ninja build failed.*)"),
            shape(
                "'ninja'",
                r"(?P<said>Command '\['(?:\S*/)?ninja'.{0,40}/flashinfer/.{0,200}).*returned non-zero exit "
                r"status \d+",
            ),
        ),
        over=("compile-failed", "cuda-graph"),
        confidence=MEDIUM,
    ),
    Known(
        "compile-failed",
        what="the model or a kernel could not be compiled",
        cause="{said}",
        fix="compile nothing: medley serve MODEL -- --enforce-eager; what it lacks stands above that line",
        shapes=(
            shape("PassManager::run failed", r"^(?P<said>(?:RuntimeError: )?PassManager::run failed)"),
            shape("LLVM ERROR", r"(?P<said>LLVM ERROR: .+)"),
            shape("InductorError", r"(?P<said>(?:torch\._inductor\.exc\.)?InductorError: .+)"),
            shape("BackendCompilerFailed", r"BackendCompilerFailed[^\n]* raised:\n(?P<said>[^\n]+)"),
            shape("BackendCompilerFailed", r"(?P<said>BackendCompilerFailed.*)"),
            shape("terminated (signal", r"(?P<said>(?:ptxas|cicc|nvlink) terminated \(signal: \d+\))"),
            shape("CppCompileError", r"(?P<said>CppCompileError.*)"),
            shape("Error building extension", r"(?P<said>Error building extension .+)"),
            shape("'ninja'", r"(?P<said>Command '\['(?:\S*/)?ninja'.*returned non-zero exit status \d+)"),
            shape("Ninja build failed", r"(?P<said>Ninja build failed.*)"),
            shape("triton.compiler.errors", r"(?P<said>triton\.compiler\.errors\.\w+.*)"),
        ),
        more=1,
        confidence=MEDIUM,
    ),
)
