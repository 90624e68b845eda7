"""A model cut into ranks and stages as it, the host or the engine does not bear."""

from medley.explain.known import Known, shape

KNOWN = (
    Known(
        "heads-indivisible",
        what="the attention heads cannot be divided by so many tensor parallel ranks",
        cause="{heads} heads cannot be shared by {ranks} ranks",
        fix="take a size that divides them, or stages instead: medley serve MODEL --pp {ranks}; medley "
        "plan MODEL --all says which fit",
        shapes=(
            shape(
                "must be divisible by tensor parallel size",
                r"attention heads \((?P<heads>\d+)\) must be divisible by tensor parallel size "
                r"\((?P<ranks>\d+)\)",
            ),
            shape(
                "is not divisible by", r"AssertionError: (?P<heads>\d+) is not divisible by (?P<ranks>\d+)"
            ),
            shape(
                "divisible by tp_size",
                r"(?P<heads>\S+) +(?:must be|is not) divisible by tp_size[= (]*(?P<ranks>\d*)",
            ),
            shape(
                "divisible by tensor",
                r"num_heads=(?P<heads>\d+) must be divisible by "
                r"(?:tensor_parallel_size|tp_size)=(?P<ranks>\d+)",
            ),
        ),
    ),
    Known(
        "quantization-cut",
        what="a quantised weight cannot be cut so fine",
        cause="[{said}]: its groups or blocks do not divide into so many tensor parallel ranks",
        fix="fewer tensor parallel ranks, and stages instead: medley serve MODEL --tp 1 --pp 2; medley "
        "plan MODEL --all",
        shapes=(
            shape(
                "not aligned with the quantized weight shape",
                r"(?P<said>The \w+ size is not aligned with the quantized weight shape)",
            ),
            shape(
                "weight quantization block",
                r"(?P<said>The \w+ of .{0,40} = \d+ is not divisible by weight quantization block_\w = \d+)",
            ),
            shape("min_thread", r"(?P<said>Weight \w+ = \d+ is not divisible by min_thread_\w = \d+)"),
        ),
    ),
    Known(
        "layers-partition",
        what="the layers are not cut into stages as they should be",
        cause="[{said}]: each stage needs its number, and together they must be the model's layers",
        fix="unset VLLM_PP_LAYER_PARTITION SGLANG_PP_LAYER_PARTITION; medley plan MODEL finds the numbers "
        "and serve sets them",
        shapes=(
            shape("partitions", r"(?P<said>(?:len|sum)\(partitions\)=\d+ does not match \w+=\d+)"),
            shape("Invalid partition string", r"(?P<said>Invalid partition string: .+)"),
        ),
    ),
    Known(
        "pipeline-unsupported",
        what="the engine cannot cut this model into stages",
        cause="its code of the model has no pipeline parallelism",
        fix="share the layers instead: medley serve MODEL --pp 1 --tp 2, or the other engine: --engine "
        "sglang",
        shapes=(
            shape("Pipeline parallelism is not supported for this model"),
            shape("does not support pipeline parallel"),
        ),
    ),
    Known(
        "ranks-over-gpus",
        what="more ranks are asked for than this host has GPUs",
        cause="{ranks} ranks and {gpus} GPUs",
        fix="ask for fewer: medley serve MODEL --tp {gpus}; over several hosts: medley ray-head, then "
        "serve; medley plan MODEL",
        shapes=(
            shape(
                "World size (",
                r"World size \((?P<ranks>\d+)\) is larger than the number of available GPUs "
                r"\((?P<gpus>\d+)\)",
            ),
            shape(
                "cannot be larger than the number of available",
                r"\((?P<ranks>\d+)\) cannot be larger than the number of available \w+ \((?P<gpus>\d+)\)",
            ),
            shape(
                "please set tensor_parallel_size",
                r"please set tensor_parallel_size \((?P<ranks>\d+)\) to less than max local \w+ count "
                r"\((?P<gpus>\d+)\)",
            ),
        ),
    ),
    Known(
        "nodes-indivisible",
        what="--nnodes does not divide the number of ranks",
        cause="{said}",
        fix="medley serve MODEL counts hosts and ranks itself; by hand make --tensor-parallel-size times "
        "--pipeline-parallel-size a multiple of --nnodes",
        shapes=(
            shape(
                "must evenly divide",
                r"(?P<said>[^\n:]{0,20}--nnodes[^\n:]{0,10} must evenly divide the total world size \(\d+\))",
            ),
            shape(
                "nnodes",
                r"(?P<said>(?:[Tt]p_size|[Ww]orld size|tensor parallel size|tp_size \* pp_size)[^\n]{0,60} "
                r"(?:must be|is not) divisible by "
                r"(?:number of nodes|nnodes).*)",
            ),
        ),
    ),
    Known(
        "ranks-over-numa",
        what="more ranks are put on this host than it has NUMA nodes",
        cause="[{ranks} ranks]: the engine binds each to a node of its own unless it is told the cores",
        fix="medley serve sets them; by hand: VLLM_CPU_OMP_THREADS_BIND='0|1' or "
        "SGLANG_CPU_OMP_THREADS_BIND='0|1'",
        shapes=(
            shape(
                "Not enough allowed NUMA nodes",
                r"Not enough allowed NUMA nodes to bind threads of (?P<ranks>\d+)",
            ),
            shape(
                "OMP_THREADS_BIND is not set",
                r"total number of ranks \(dp_size \* tp_size \* pp_size = (?P<ranks>\d+)\) should be smaller",
            ),
            shape(
                "OMP_THREADS_BIND",
                r"is out of range for (?:the )?\d+ (?:numa nodes|SGLANG_CPU_OMP_THREADS_BIND)",
            ),
        ),
    ),
)
