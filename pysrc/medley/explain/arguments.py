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
