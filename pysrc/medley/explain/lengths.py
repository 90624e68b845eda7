"""Lengths in tokens: of the context, of one pass, of a request, that do not fit each other."""

from medley.explain.known import LOW, Known, shape

KNOWN = (
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
                r"\([^)]*?=(?P<most>\d+)",
            ),
            shape(
                "is greater than the derived context_length",
                r"context_length \((?P<asked>\d+)\) is greater than the derived context_length "
                r"\((?P<most>\d+)\)",
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
                r"(?:Error|error).{0,4} .*maximum context length is (?P<most>\d+) tokens"
                r".*?total of at least (?P<asked>\d+)",
            ),
            shape(
                "maximum context length",
                r"(?:Error|error).{0,4} .*maximum context length is (?P<most>\d+) tokens"
                r".*?requested (?P<asked>\d+) tokens",
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
)
