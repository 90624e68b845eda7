"""CUDA: a driver, a GPU and the kernels of a wheel that do not fit each other, and GPUs that fail."""

import re

from medley.explain.known import MEDIUM, Known, shape

KNOWN = (
    Known(
        "no-kernel-image",
        what="the environment has no CUDA kernels for this GPU (no kernel image)",
        cause="a wheel was built without this GPU's architecture (Orin sm_87, Thor sm_110, Spark sm_121)",
        fix="take the environment that is made for this kind of host: medley env build; by hand, wheels "
        "of the CUDA 13"
        " index, or a build with TORCH_CUDA_ARCH_LIST (11.0a for Thor, 12.1a for Spark, 8.7 for Orin)",
        shapes=(
            shape("no kernel image is available"),
            shape("cudaErrorNoKernelImageForDevice"),
            shape("cutlass", r"Failed to (?:initialize|run) cutlass"),
            shape(
                "No compiled", r"No compiled \w+ for (?:a compute capability|CUDA device capability|current)"
            ),
            shape("CUDA_ERROR_NO_BINARY_FOR_GPU"),
        ),
        over=("cuda-failed",),
    ),
    Known(
        "driver-old",
        what="the NVIDIA driver is too old for this CUDA",
        cause="[CUDA says: {said}][the driver knows CUDA {found}, and the environment was built for a "
        "newer one][PyTorch was "
        "built for a newer"
        " CUDA than the driver {what} knows]",
        fix="update the driver (on Jetson: JetPack), or take an environment of the driver's CUDA: medley "
        "env build;"
        " nvidia-smi says what the driver knows",
        shapes=(
            shape(
                "unsupported display driver",
                r"(?P<said>system has unsupported display driver / cuda driver combination)",
            ),
            shape("driver on your system is too old", r"too old \(found version (?P<found>\d+)\)"),
            shape("driver version is insufficient for CUDA runtime version"),
            shape("compiled with an unsupported toolchain"),
            shape("cudaErrorInsufficientDriver"),
            shape("CUDA_ERROR_UNSUPPORTED_PTX_VERSION"),
            shape("unsatisfied condition: cuda", r"unsatisfied condition: cuda ?>= ?(?P<wanted>[\d.]+)"),
        ),
        over=("cuda-failed", "gpu-none"),
    ),
    Known(
        "driver-library",
        what="the NVIDIA driver's library is not found",
        cause="{file} is in no place that this process looks at: no driver here, a container without "
        "--gpus all, or a Nix"
        " program on a host that is not NixOS",
        fix="see whether the driver answers: nvidia-smi; in a container: --gpus all (Jetson: --runtime "
        "nvidia); then"
        " medley facts shows the GPU",
        shapes=(
            shape(
                "cannot open shared object file",
                r"(?P<file>lib(?:cuda|nvidia-ml|nvrm_gpu|nvcucompat)\.so[.\d]*): cannot open shared "
                r"object file",
            ),
            shape("libcuda.so cannot found", r"(?P<file>libcuda\.so) cannot found"),
            shape("Shared Library Not Found", r"NVML Shared Library Not Found(?P<file>)"),
        ),
        over=("kernels-missing", "library-missing", "gpu-none", "device-unknown"),
    ),
    Known(
        "driver-mismatch",
        what="the driver was updated, and the old one still runs",
        cause="the library is of another version than the kernel's module",
        fix="sudo reboot",
        shapes=(shape("Driver/library version mismatch"),),
        over=("gpu-none",),
    ),
    Known(
        "gpu-none",
        what="CUDA finds no GPU",
        cause="[{said}]",
        fix="see what the host says: nvidia-smi, and medley facts; unset CUDA_VISIBLE_DEVICES; in a "
        "container: --gpus all"
        " (Jetson: --runtime nvidia)",
        shapes=(
            shape("active drivers (", r"(?P<said>0 active drivers) \(\[\]\)"),
            shape("no GPUs found", r"(?P<said>ProcessGroupNCCL is only supported with GPUs, no GPUs found)"),
            shape("No CUDA GPUs are available", r"(?P<said>No CUDA GPUs are available)"),
            shape("Found no NVIDIA driver", r"(?P<said>Found no NVIDIA driver on your system)"),
            shape("no CUDA-capable device", r"(?P<said>no CUDA-capable device is detected)"),
            shape("CUDA unknown error", r"(?P<said>CUDA unknown error)"),
            shape("No accelerator", r"(?P<said>No accelerator \([^)]*\) is available)"),
            shape(
                "couldn't communicate with the NVIDIA driver",
                r"(?P<said>NVIDIA-SMI has failed because it couldn't communicate)",
            ),
        ),
    ),
    Known(
        "nvidia-smi-missing",
        what="nvidia-smi is missing: the NVIDIA driver's tools are not on this host",
        cause="{said}: no driver is installed, or this is a container without --gpus all",
        fix="sudo ubuntu-drivers install (a Jetson's JetPack brings it); in a container: --gpus all",
        shapes=(
            shape("nvidia-smi", r"(?P<said>nvidia-smi: (?:command )?not found)"),
            shape("nvidia-smi", r"(?P<said>No such file or directory: '(?:\S*/)?nvidia-smi')"),
            shape("nvidia-smi", r"(?P<said>exec: \"nvidia-smi\": executable file not found)"),
        ),
    ),
    Known(
        "kernel-image-invalid",
        what="the driver cannot load a compiled kernel (device kernel image is invalid)",
        cause="it was compiled for another CUDA or GPU than the driver knows: {said}",
        fix="clear what was compiled: rm -r ~/.triton/cache ~/.cache/flashinfer "
        "~/.cache/vllm/torch_compile_cache; then "
        "one CUDA for driver and environment: medley env build",
        shapes=(
            shape("kernel image is invalid", r"(?P<said>[^\n]{0,80}device kernel image is invalid)"),
            shape("PTX JIT compil", r"(?P<said>a PTX JIT compilation failed)"),
            shape("CUDA_ERROR_INVALID_IMAGE", r"(?P<said>CUDA_ERROR_INVALID_IMAGE)"),
            shape("CUDA_ERROR_INVALID_PTX", r"(?P<said>CUDA_ERROR_INVALID_PTX)"),
        ),
        over=("cuda-failed", "compile-failed", "cuda-graph"),
    ),
    Known(
        "device-unknown",
        what="the engine finds no device that it can run on: no GPU",
        cause="no GPU answers, or this build of the engine is for another kind of device",
        fix="medley facts says what the host has; medley env list which environments fit it; on a CPU "
        "host take one whose"
        " name ends with -cpu",
        shapes=(
            shape("Failed to infer device type"),
            shape("Device string must not be empty"),
        ),
        confidence=MEDIUM,
    ),
    Known(
        "torch-without-cuda",
        what="PyTorch was built without CUDA",
        cause="the environment has the CPU's wheel of torch on a host with a GPU",
        fix="medley env build makes the one for this host; by hand: install torch of the CUDA index",
        shapes=(
            shape("Torch not compiled with CUDA enabled"),
            shape("_cuda_setDevice", r"has no attribute '_cuda_setDevice'"),
            shape("PyTorch is not linked with support for cuda"),
        ),
    ),
    Known(
        "cuda-forked",
        what="a process that had used CUDA was forked",
        cause="CUDA cannot be used in a fork",
        fix="export VLLM_WORKER_MULTIPROCESSING_METHOD=spawn; in a script, guard its main part with"
        " if __name__ == '__main__':",
        shapes=(shape("Cannot re-initialize CUDA in forked subprocess"),),
    ),
    Known(
        "main-unguarded",
        what="the script starts the engine again in each process that the engine starts",
        cause="a process that is spawned imports the script, and its main part stands unguarded",
        fix="put it below: if __name__ == '__main__':   # medley run --help shows it",
        shapes=(shape("current process has finished its bootstrapping phase"),),
    ),
    Known(
        "fabric-manager",
        what="the GPUs' fabric is not initialised",
        cause="CUDA says that the system is not yet initialised (802): NVSwitch hosts need a service "
        "for that",
        fix="sudo systemctl enable --now nvidia-fabricmanager",
        shapes=(shape("system not yet initialized"), shape("cudaErrorSystemNotReady")),
        over=("gpu-none",),
    ),
    Known(
        "cuda-graph",
        what="CUDA graphs could not be captured",
        cause="{said}",
        fix="capture none: medley serve MODEL -- --enforce-eager (vLLM), -- --disable-cuda-graph (SGLang)",
        shapes=(
            shape("uda graph failed", r"Capture cuda graph failed: ?(?P<said>.+)"),
            shape("CUDA graph failed", r"Capture \w* ?CUDA graph failed: ?(?P<said>.+)"),
            shape(
                "operation not permitted when stream is capturing",
                r"(?P<said>operation not permitted when stream is capturing)",
            ),
            shape("cudaErrorStreamCapture", r"(?P<said>cudaErrorStreamCapture\w+)"),
        ),
        unless=re.compile(r"graph failed: .*(?:Connection closed by peer|NCCL (?:error|communicator))"),
        confidence=MEDIUM,
        over=("cuda-failed",),
    ),
    Known(
        "cuda-failed",
        what="a CUDA kernel failed on the GPU",
        cause="CUDA says: {said}; the call that shows it is often not the one that did it",
        fix="start it once with CUDA_LAUNCH_BLOCKING=1 to see the true place; without compiled graphs: "
        "medley serve MODEL"
        " -- --enforce-eager; and see the kernel's word: sudo dmesg | grep Xid",
        shapes=(
            shape(
                "failed with error",
                r"^(?:RuntimeError: )?Check failed: .{0,60}cudaSuccess.{0,40}: (?P<said>\w+ failed with erro"
                r"r [^\n']{0,80})",
            ),
            shape("CUDA error at", r"(?P<said>CUDA error at [^\n]{0,120})"),
            shape("CUDA error: ", r"CUDA error: (?P<said>(?!out of memory)[^\n]{0,100})"),
            shape(
                "Cuda failure",
                r"Cuda failure(?: \d+)? '(?P<said>(?!out of memory)[^']+)'",
            ),
            shape("CUBLAS_STATUS_", r"(?P<said>CUBLAS_STATUS_(?!ALLOC)\w+)"),
            shape("CUDNN_STATUS_", r"(?P<said>CUDNN_STATUS_\w+)"),
            shape("Triton Error [CUDA]", r"Triton Error \[CUDA\]: (?P<said>.+)"),
        ),
        confidence=MEDIUM,
    ),
)
