"""Kernels of an engine that a GPU, a shape or a quantisation does not let run."""

from medley.explain.known import MEDIUM, Known, shape

KNOWN = (
    Known(
        "kernel-none",
        what="no kernel of the engine can compute a layer of this model here",
        cause="{said}",
        fix="do what it says of a kernel; else another quantisation of the model, or a newer image: medley "
        "serve MODEL --image IMAGE",
        shapes=(
            shape(
                "ailed to find a kernel",
                r"(?P<said>Failed to find a kernel that can implement the [\w ]+? layer\. Reasons:"
                r"\s*[^\n]{0,300})",
            ),
        ),
        more=1,
    ),
    Known(
        "cutlass-failed",
        what="a kernel of CUTLASS refused to run on this GPU",
        cause="{said}: it was built for another GPU, or not for this shape of layer",
        fix="take another kernel: export VLLM_TEST_FORCE_FP8_MARLIN=1 for FP8, "
        "VLLM_NVFP4_GEMM_BACKEND=marlin "
        "for NVFP4; or an image built for this GPU",
        shapes=(
            shape(
                "Error Internal",
                r"RuntimeError: (?P<said>(?:cutlass_\w+[^\n]{0,160} )?Error Internal)\b",
            ),
            shape(
                "Failed to run cutlass",
                r"^RuntimeError: .{0,200}(?P<said>Failed to run cutlass [^\n]{0,120})",
            ),
        ),
        confidence=MEDIUM,
        over=("cuda-graph",),
    ),
)
