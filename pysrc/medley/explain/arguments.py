"""What an engine is told that it does not know, or that does not fit the model."""

from medley.explain.known import MEDIUM, Known, shape

KNOWN = (
    Known(
        "flag-unknown",
        what="the engine does not know a flag",
        cause="{flag} is none of this version's: flags come and go with versions, and guides grow old",
        fix="leave it out; what there is: vllm serve --help=all, or sglang serve --help",
        shapes=(
            shape("unrecognized arguments", r"error: unrecognized arguments: (?P<flag>.+)"),
            shape(
                "unexpected keyword argument",
                r"(?:EngineArgs|LLM|ServerArgs|ModelConfig|VllmConfig)\.__init__\(\) got an unexpected "
                r"keyword argument (?P<flag>'\w+')",
            ),
        ),
    ),
    Known(
        "flag-ambiguous",
        what="a flag is the beginning of several",
        cause="{flag} could be {several}",
        fix="write it out, as --pp-size or --tp-size",
        shapes=(shape("ambiguous option", r"ambiguous option: (?P<flag>\S+) could match (?P<several>.+)"),),
    ),
    Known(
        "flag-value",
        what="a flag has a value that the engine does not take",
        cause="[{flag}: ]it may not be {value}[; it may be {several}]",
        fix="give one of those, or leave the flag out",
        shapes=(
            shape(
                "invalid choice",
                r"error: argument (?P<flag>\S+): invalid choice: '?(?P<value>[^'\s]*)'?(?: \(choose from "
                r"(?P<several>[^)]{0,300})\)?)?",
            ),
            shape(
                "invalid",
                r"error: argument (?P<flag>\S+): invalid (?!choice)(?:\w+ )?value: '?(?P<value>[^'\n]*)'?",
            ),
            shape(
                "Input should be ",
                r"Input should be (?P<several>.{1,300}?) \[type=literal_error, input_value=(?P<value>[^,]+),",
            ),
            shape(
                "expected one argument", r"error: argument (?P<flag>\S+): (?P<value>expected one argument)"
            ),
        ),
    ),
    Known(
        "parser-unknown",
        what="the engine knows no such parser",
        cause="{name} is none of its tool or reasoning parsers",
        fix="take one that it names in that line; medley serve MODEL picks the model's own",
        shapes=(
            shape("invalid tool call parser", r"invalid tool call parser: (?P<name>\S+)"),
            shape("invalid reasoning parser", r"invalid reasoning parser: (?P<name>\S+)"),
            shape("ool parser", r"(?:Error: )?[Tt]ool parser:? '(?P<name>[^']+)' not found"),
            shape("easoning parser", r"[Rr]easoning parser:? '(?P<name>[^']+)' not found"),
            shape("Unsupported tool_call_parser", r"Unsupported tool_call_parser: (?P<name>\S+)"),
            shape("Unsupported model type", r"Unsupported model type: (?P<name>\S+)"),
        ),
        over=("flag-value",),
    ),
    Known(
        "tool-parser-missing",
        what="automatic tool choice needs a parser",
        cause="--enable-auto-tool-choice was given without --tool-call-parser",
        fix="medley serve MODEL -- --enable-auto-tool-choice --tool-call-parser hermes (the one that fits "
        "the model)",
        shapes=(
            shape("requires --tool-call-parser", r"enable-auto-tool-choice requires --tool-call-parser"),
        ),
    ),
    Known(
        "context-too-long",
        what="the context is longer than the model was made for",
        cause="{asked} tokens are asked for, and the model has [{most}]",
        fix="medley serve MODEL --context {most}; for more, the model needs RoPE scaling that its makers "
        "describe",
        shapes=(
            shape(
                "User-specified max_model_len",
                r"max_model_len \((?P<asked>\d+)\) is greater than the derived max_model_len "
                r"\([^)]*?=(?P<most>[\d.]+)",
            ),
            shape(
                "is greater than the derived context_length",
                r"context_length \((?P<asked>\d+)\) is greater than the derived context_length "
                r"\((?P<most>\d+)\)",
            ),
        ),
    ),
    Known(
        "heads-indivisible",
        what="the model cannot be cut into so many tensor parallel ranks",
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
        "quantization-unknown",
        what="the engine knows no such quantisation",
        cause="{name} is none of its methods",
        fix="leave --quantization out: the model's config.json says what it is",
        shapes=(
            shape("Unknown quantization method", r"Unknown quantization method: (?P<name>[^.\s]+)"),
            shape("Invalid quantization method", r"Invalid quantization method: (?P<name>[^.\s]+)"),
            shape(
                "quantization is currently not supported",
                r"(?P<name>\S+) quantization is currently not supported",
            ),
        ),
    ),
    Known(
        "quantization-differs",
        what="the model is quantised in another way than was asked for",
        cause="its config.json says {real}, and {asked} was given",
        fix="leave --quantization out",
        shapes=(
            shape(
                "does not match the quantization",
                r"model config \((?P<real>[^)]+)\) does not match the quantization method specified in "
                r"the `quantization` argument \((?P<asked>[^)]+)\)",
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
    Known(
        "batch-smaller-than-context",
        what="one pass may have fewer tokens than the context",
        cause="max_num_batched_tokens is {batch} and max_model_len {context}",
        fix="raise it: -- --max-num-batched-tokens {context}, or allow chunks: -- --enable-chunked-prefill",
        shapes=(
            shape(
                "is smaller than max_model_len",
                r"max_num_batched_tokens \((?P<batch>\d+)\) is smaller than max_model_len "
                r"\((?P<context>\d+)\)",
            ),
        ),
    ),
    Known(
        "dtype-unsupported",
        what="the model does not run in this number format",
        cause="{said}",
        fix="leave --dtype out, or: medley serve MODEL -- --dtype bfloat16",
        shapes=(
            shape(
                "does not support float16",
                r"(?P<said>The model type '\S+' does not support float16\. Reason: .+)",
            ),
            shape("Unknown dtype", r"(?P<said>Unknown dtype: \S+)"),
            shape("not implemented for 'Half'", r"(?P<said>\"?\w+\"? not implemented for 'Half')"),
        ),
    ),
    Known(
        "kv-type-unsupported",
        what="the KV cache cannot have this number format here",
        cause="{said}",
        fix="leave it as it is: medley serve MODEL --kv-type auto",
        shapes=(
            shape(
                "kv_cache_dtype",
                r"(?P<said>[^\n]*(?:kv_cache_dtype|kv-cache-dtype)[^\n]{0,80}(?:not "
                r"supported|unsupported|does not support)[^\n]{0,80})",
            ),
            shape("KV cache", r"(?P<said>[^\n]{0,80}does not support (?:fp8|\w+) KV cache[^\n]{0,60})"),
        ),
        confidence=MEDIUM,
    ),
)
