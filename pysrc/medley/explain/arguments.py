"""What an engine is told that it does not know, or that does not fit the model."""

from medley.explain.known import LOW, MEDIUM, Known, shape

KNOWN = (
    Known(
        "flag-unknown",
        what="the engine does not know a flag (unrecognized arguments)",
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
        what="a flag is ambiguous: the beginning of several",
        cause="{flag} could be {several}",
        fix="write it out, as --pp-size or --tp-size",
        shapes=(shape("ambiguous option", r"ambiguous option: (?P<flag>\S+) could match (?P<several>.+)"),),
    ),
    Known(
        "flag-value",
        what="a flag has an invalid value, which the engine does not take",
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
        "flag-json",
        what="a flag's value is not valid JSON",
        cause="[{flag}: ]{said}[; it was given {value}]",
        fix="""write it as JSON in single quotes: medley serve MODEL -- {flag} '{"key": 3}'""",
        shapes=(
            shape(
                "argument --",
                r"error: argument (?P<flag>--[\w-]+)[^\n]*\n[^\n]*(?P<line>(?P<said>Invalid JSON: .+?)"
                r" \[type=json_invalid, input_value='?(?P<value>[^,]+?)'?,)",
            ),
            shape(
                "argument --",
                r"error: argument (?P<flag>--[\w-]+)(?:/-\w+)?: (?P<said>.*(?:JSON|json)[^:\n]*)(?:: "
                r"(?P<value>.+))?",
            ),
        ),
        more=1,
        over=("flag-refused",),
    ),
    Known(
        "flag-range",
        what="a setting is out of range",
        cause="{flag} is {value}: it {said}",
        fix="give one in that range, or leave it out: medley plan MODEL prints flags that go together",
        shapes=(
            shape(
                "validation error",
                r"validation errors? for \w+\n(?P<flag>[\w.]+)\n\s+(?P<line>Input (?P<said>should be (?:less|"
                r"greater|a multiple|finite).+?) \[type=\w+, input_value=(?P<value>[^,]+),)",
            ),
            shape(
                "must be",
                r"(?:ValueError|AssertionError|error): (?P<flag>[\w -]*?(?:utilization|fraction|_size|_len|_"
                r"tokens|"
                r"_seqs|_blocks|port|timeout)\w*) ?(?P<said>must be (?:in|between|less|greater|positive|at l"
                r"east|>|<)"
                r".{0,60}?)(?:[.,;]? (?:but )?[Gg]ot:? ?(?P<value>\S+?))?\.?$",
            ),
        ),
        more=2,
    ),
    Known(
        "flag-missing",
        what="a flag that the others need is missing",
        cause="{said}",
        fix="add it: medley serve MODEL -- {flag} VALUE; or leave out what needs it",
        shapes=(
            shape(
                "arguments are required",
                r"error: (?P<said>the following arguments are required: (?P<flag>\S+).*)",
            ),
            shape(
                "equire",
                r"^(?:ValueError|AssertionError|RuntimeError): (?P<said>[^\n]{0,160}\b[Rr]equires? "
                r"[^\n]{0,160}"
                r"(?P<flag>--[a-z][\w-]+).*)",
            ),
            shape(
                "must be s",
                r"^(?:ValueError|AssertionError|RuntimeError): (?P<said>(?P<flag>--[a-z][\w-]+)[^\n]{0,80} m"
                r"ust be "
                r"(?:set|specified).*)",
            ),
        ),
        confidence=MEDIUM,
    ),
    Known(
        "flag-refused",
        what="the command line is refused",
        cause="{said}",
        fix="mend what that line names; what there is: vllm serve --help=all, sglang serve --help, ray start "
        "--help",
        shapes=(
            shape(
                "error: argument",
                r"^[\w ./-]+: error: (?P<said>argument (?!\S+ (?:invalid|expected)).+)",
            ),
            shape("Error: No such ", r"^Error: (?P<said>No such (?:option|command).+)"),
            shape("Error: Invalid value", r"^Error: (?P<said>Invalid value.+)"),
            shape("Error: Missing ", r"^Error: (?P<said>Missing (?:argument|option|parameter).+)"),
        ),
        confidence=MEDIUM,
    ),
    Known(
        "parser-unknown",
        what="the engine knows no such tool call or reasoning parser",
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
        what="the context (max_model_len) is longer than the model was made for",
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
        what="the engine knows no such quantization method",
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
        what="max_num_batched_tokens is smaller than the context (max_model_len)",
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
        "batch-smaller-than-item",
        what="max_num_batched_tokens is smaller than one image or sound takes",
        cause="one multimodal item has up to {item} tokens, and max_num_batched_tokens is {batch}",
        fix="raise it: medley serve MODEL -- --max-num-batched-tokens {item}",
        shapes=(
            shape(
                "max_tokens_per_mm_item",
                r"max_tokens_per_mm_item \((?P<item>\d+)\) is larger than max_num_batched_tokens "
                r"\((?P<batch>\d+)\)",
            ),
        ),
    ),
    Known(
        "request-too-long",
        what="a request is longer than the model's context (400), and was refused",
        cause="the context has [{most} tokens, and {asked} were asked for][{said}]",
        fix="shorten the prompt or max_tokens, or give more context: medley serve MODEL --context 32768",
        shapes=(
            shape(
                "maximum context length",
                r"(?:Error|error).{0,4} .*maximum context length is (?P<most>\d+) tokens.*?(?:requested "
                r"(?P<asked>\d+)|"
                r"total of at least (?P<asked2>\d+))",
            ),
            shape("maximum context length", r"Error: (?P<said>.*maximum context length.{0,120})"),
            shape(
                "than the model's context length",
                r"(?P<said>The input \(\d+ tokens\) is longer than the model's context length \(\d+ token"
                r"s\))",
            ),
            shape(
                "exceeds the model's", r"Error: (?P<said>.*exceeds the model's (?:maximum )?context.{0,120})"
            ),
            shape(
                "is longer than the maximum model length",
                r"(?P<said>prompt \(length \d+\) is longer than the maximum model length of \d+)",
            ),
        ),
        confidence=LOW,
        stays=True,
    ),
    Known(
        "tls-file",
        what="the server's TLS certificate or key file is missing or broken (--ssl-certfile, --ssl-keyfile)",
        cause="{said}",
        fix="name files that are there: ls -l CERT KEY; medley serve MODEL -- --ssl-certfile CERT "
        "--ssl-keyfile KEY",
        shapes=(
            shape(
                "load_cert_chain(",
                r"load_cert_chain\([^\n]*\n(?:[^\n]*\n){0,3}?(?P<line>(?P<said>(?:FileNotFoundError|Permissi"
                r"onError|"
                r"ssl\.SSLError|IsADirectoryError)\b.*))",
            ),
        ),
        more=4,
        echoes=True,
    ),
    Known(
        "template-file",
        what="the chat template file is missing",
        cause="--chat-template names {file}, and it is not there",
        fix="ls {file}; or leave --chat-template out: the model has one of its own",
        shapes=(
            shape("chat template string (", r"chat template string \((?P<file>[^)]+)\) appears path-like"),
            shape(
                "hat template",
                r"[Cc]hat template (?:file )?(?:path )?[\"'`]?(?P<file>[^\s\"'`]+)[\"'`]? (?:is not a buil"
                r"t-in|not found|does not "
                r"exist)",
            ),
        ),
    ),
    Known(
        "lora-missing",
        what="a LoRA adapter is missing",
        cause="{said}",
        fix="name the folder that holds its adapter_config.json: medley serve MODEL -- --lora-modules "
        "NAME=FOLDER",
        shapes=(
            shape("No adapter found for", r"(?P<said>(?:Loading lora \S+ failed: )?No adapter found for .+)"),
            shape(
                "LoRA", r"(?P<said>(?:LoRA|lora) (?:adapter|path|\S+).{0,80}(?:does not exist|not found).*)"
            ),
            shape(
                "adapter_config.json",
                r"(?P<said>(?:No such file|Can't find|Cannot find).{0,160}adapter_config\.json.{0,100})",
            ),
        ),
        confidence=MEDIUM,
        over=("hub-name", "hub-not-found"),
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
