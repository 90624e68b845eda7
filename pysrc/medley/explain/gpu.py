"""GPUs that lack what a model needs, that are not there, or that fail themselves."""

from medley.explain.known import MEDIUM, Known, shape

KNOWN = (
    Known(
        "gpu-ordinal",
        what="a rank was given a GPU that is not there",
        cause="this host has fewer GPUs than ranks were put on it, or CUDA_VISIBLE_DEVICES hides some",
        fix="medley plan MODEL counts the GPUs of each host; unset CUDA_VISIBLE_DEVICES",
        shapes=(
            shape("invalid device ordinal"),
            shape("device < num_gpus", r"device >= 0 && device < num_gpus INTERNAL ASSERT FAILED"),
        ),
    ),
    Known(
        "gpu-bfloat16",
        what="this GPU cannot compute in bfloat16",
        cause="[a {gpu} has compute capability {has}, and bfloat16 needs {needs}]",
        fix="serve it in float16: medley serve MODEL -- --dtype float16",
        shapes=(
            shape(
                "Bfloat16 is only supported",
                r"compute capability of at least (?P<needs>[\d.]+)\. Your (?P<gpu>.+?) GPU(?: \w+)? has "
                r"compute capability (?P<has>\d+(?:\.\d+)?)",
            ),
        ),
    ),
    Known(
        "gpu-quantization",
        what="this GPU has no kernels for the model's quantisation",
        cause="{method} needs compute capability {needs}, and this GPU has {has}",
        fix="take another form of the model (AWQ or GPTQ run from 7.5 and 8.0 on): medley plan MODEL",
        shapes=(
            shape(
                "Minimum capability",
                r"quantization method (?P<method>\S+) is not supported for the current GPU\. Minimum "
                r"capability: (?P<needs>\d+)\. Current capability: (?P<has>\d+)",
            ),
            shape("minimum capability", r"(?P<method>[\w-]+) .*minimum capability[: ]+(?P<needs>[\d.]+)"),
        ),
    ),
    Known(
        "gpu-type",
        what="this GPU's architecture does not have a number format or instruction that the kernel needs",
        cause="{said}",
        fix="take another form of the model (AWQ, GPTQ, bfloat16) or another backend: medley serve MODEL "
        "--kv-type auto "
        "-- --attention-backend TRITON_ATTN; what fits: medley plan MODEL",
        shapes=(
            shape(
                "not supported in this architecture",
                r"(?P<said>type \w+ not supported in this architecture.{0,80})",
            ),
            shape(
                "expects arch to be",
                r"(?P<said>expects arch to be (?:one of )?\[?[^\]\n]*\]?, but got (?:Arch\.)?(?P<arch>sm"
                r"_\w+))",
            ),
            shape("nsupported architecture", r"(?P<said>[Uu]nsupported architecture:? (?:Arch\.)?sm_\w+)"),
            shape(
                "equires compute capability", r"Error: (?P<said>.{0,120}[Rr]equires compute capability .+)"
            ),
            shape("only supported on", r"Error: (?P<said>[^\n]{0,120}only supported on (?:SM|sm_?)\d+.*)"),
        ),
        over=("compile-failed", "cuda-graph"),
    ),
    Known(
        "gpu-failed",
        what="the GPU itself failed",
        cause="the driver reports Xid {number}: {said}",
        fix="look it up (docs.nvidia.com/deploy/xid-errors); power the host off and on; if it comes again "
        "the GPU, its power"
        " or its seat is bad",
        shapes=(
            shape(
                "Xid (",
                r"NVRM: Xid \([^)]*\): (?P<number>48|61|62|63|64|74|79|92|94|95|119|120|140|143|149|154), "
                r"?(?P<said>[^\n]{0,120})",
            ),
            shape("fallen off the bus", r"(?P<said>GPU has fallen off the bus)(?P<number>)"),
            shape("uncorrectable ECC error", r"(?P<said>uncorrectable ECC error)(?P<number>)"),
        ),
        quiet=True,
        stays=True,
        over=("cuda-failed",),
    ),
    Known(
        "gpu-kernel-fault",
        what="a kernel on the GPU broke off",
        cause="the driver reports Xid {number}[ of {who}]: the program's own fault, seldom the GPU's",
        fix="without compiled graphs: medley serve MODEL -- --enforce-eager; another version of the "
        "engine: medley env build",
        shapes=(
            shape(
                "Xid (", r"NVRM: Xid \([^)]*\): (?P<number>13|31|32|43|45|69)\b(?:.*name=(?P<who>[^,\s]+))?"
            ),
        ),
        quiet=True,
        confidence=MEDIUM,
    ),
    Known(
        "gpu-attention",
        what="the attention backend is invalid here",
        cause="{backend}: {said}",
        fix="leave the choice to the engine (no --attention-backend), or take another: -- "
        "--attention-backend TRITON_ATTN"
        " (vLLM), triton (SGLang)",
        shapes=(
            shape(
                "nknown attention backend",
                r"(?P<said>Unknown attention backend): '(?P<backend>[^']+)'",
            ),
            shape(
                "expects attention_backend to be",
                r"(?P<said>\w+ \w+ expects attention_backend to be one of \[[^\]]*\]), but got "
                r"(?P<backend>\w+)",
            ),
            shape(
                "is not valid for this configuration",
                r"Selected backend (?:AttentionBackendEnum\.)?(?P<backend>\S+) is not valid for this "
                r"configuration\. Reason: (?P<said>.+)",
            ),
            shape(
                "No valid attention backend found",
                r"(?P<backend>No valid attention backend found)(?P<said>.*)",
            ),
            shape(
                "Backend requires SM",
                r"(?P<backend>FlashAttention v\d) Backend requires (?P<said>SM\S+(?: and SM\S+)?)",
            ),
            shape("FlashAttention only supports", r"(?P<backend>FlashAttention) (?P<said>only supports .+)"),
            shape(
                "Invalid attention backend",
                r"Invalid attention backend: ?'?(?P<backend>[\w-]+)'?(?P<said>.*)",
            ),
            shape(
                "VLLM_ATTENTION_BACKEND",
                r"(?P<said>Invalid value '(?P<backend>\w+)' for VLLM_ATTENTION_BACKEND)",
            ),
        ),
    ),
)
