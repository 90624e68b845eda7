"""Building kernels and images: headers that are not there, instructions a GPU lacks, and who ended it."""

from medley.explain.known import LOW, MEDIUM, Known, shape

KNOWN = (
    Known(
        "header-missing",
        what="the compiler does not find a header",
        cause="{file} is not there",
        fix="a header of C (stddef.h): sudo apt install --reinstall build-essential; of CUTLASS (cute/, "
        "cutlass/): git submodule update --init --recursive; or take what is built: medley env build",
        shapes=(shape("fatal error: ", r"fatal error: (?P<file>[\w./+-]+): No such file or directory"),),
        confidence=MEDIUM,
        over=("compile-failed", "flashinfer-jit"),
    ),
    Known(
        "ptx-instruction",
        what="a kernel uses an instruction that this GPU does not have",
        cause="[{feature} is not in {arch}: it was written for another GPU of the same generation]",
        fix="take another kernel for that layer: medley serve MODEL -- --moe-backend marlin, or "
        "--attention-backend TRITON_ATTN; or a newer image",
        shapes=(
            shape(
                "not supported on .target",
                r"(?:Feature|Instruction|Modifier) '(?P<feature>[^']+)'.{0,60} not supported on \.target "
                r"'(?P<arch>\w+)'",
            ),
        ),
        over=("compile-failed", "ptxas-architecture"),
    ),
    Known(
        "triton-cache",
        what="ranks disturbed each other in Triton's cache of kernels",
        cause="{file} was gone before it was renamed: several processes compiled into one folder",
        fix="start it again, most of it is compiled now; on a shared home give each host its own: export "
        "TRITON_CACHE_DIR=/tmp/triton",
        shapes=(
            shape(
                "No such file or directory: '",
                r"No such file or directory: "
                r"'(?P<file>[^']*(?:[Tt]riton|torchinductor)[^']*\.tmp\.pid_[^']*)'",
            ),
        ),
        over=("file-missing", "compile-failed"),
    ),
    Known(
        "image-build",
        what="the image could not be built",
        cause="{said}",
        fix="what its step says stands above it; all of it: docker build --progress plain",
        shapes=(
            shape(
                "failed to solve: ",
                r"failed to solve: (?P<said>process .{0,100}|Canceled: context canceled|[^\n]{0,160})",
            ),
        ),
        confidence=LOW,
    ),
)
