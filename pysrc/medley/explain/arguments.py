"""What an engine is told that it does not know, or that does not fit the model."""

from medley.explain.known import MEDIUM, Known, shape

# What there is instead, as far as one wants to read.
_THOSE = r"(?:.{1,12}(?:chose from|Available parsers:)[ {]*(?P<those>[^}]{1,400}))?"

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
                "validation error",
                r"validation errors? for "
                r"(?!\w*(?:Request|Response|Choice|Message|Delta))\w+\n(?P<flag>[\w.]+?)(?:\.literal)?(?:\[[^\n]*)?\n"
                r"\s*Input should be (?P<several>.{1,300}?) \[type=literal_error, "
                r"input_value=(?P<value>[^,]+),",
            ),
            shape(
                "expected one argument", r"error: argument (?P<flag>\S+): (?P<value>expected one argument)"
            ),
        ),
        more=2,
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
            shape(
                "cannot be converted to <function loads",
                r"argument (?P<flag>--[\w-]+)\S*: (?P<said>Value (?P<value>.+) cannot be converted to) <func"
                r"tion loads",
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
                r"validation errors? for \w+\n(?P<flag>[\w.]+)\n\s*(?P<line>Input (?P<said>should be (?:less|"
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
        cause="{name} is none of its tool or reasoning parsers[; it has {those}]",
        fix="take one that it has, or leave the flag out: medley serve MODEL picks the model's own",
        shapes=(
            shape("invalid tool call parser", r"invalid tool call parser: (?P<name>\S+)" + _THOSE),
            shape("invalid reasoning parser", r"invalid reasoning parser: (?P<name>\S+)" + _THOSE),
            shape("ool parser", r"(?:Error: )?[Tt]ool parser:? '(?P<name>[^']+)' not found" + _THOSE),
            shape("easoning parser", r"[Rr]easoning parser:? '(?P<name>[^']+)' not found" + _THOSE),
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
                r"(?P<said>[^\n]{0,200}(?:kv_cache_dtype|kv-cache-dtype)[^\n]{0,80}(?:not "
                r"supported|unsupported|does not support)[^\n]{0,80})",
            ),
            shape("KV cache", r"(?P<said>[^\n]{0,80}does not support (?:fp8|\w+) KV cache[^\n]{0,60})"),
        ),
        confidence=MEDIUM,
    ),
)
