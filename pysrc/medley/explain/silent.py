"""A silent end: a log that breaks off in the middle of a start, as where the kernel killed the process."""

import re
from collections.abc import Sequence

from medley.explain.known import LOW, Known, shape
from medley.explain.line import line

SILENT = Known(
    "ended-silently",
    what="the log breaks off in the middle of the start, without an error: killed (out of memory), or it "
    "still runs",
    cause="its last words are: {said}; a process that the kernel kills (SIGKILL, most often for want of host "
    "memory) says nothing",
    fix="see whether it was: sudo dmesg | grep -i -E 'out of memory|killed process'; and what is free: free "
    "-g; if so: medley plan MODEL, or medley serve MODEL -- --gpu-memory-utilization 0.80",
    shapes=(shape("Loading"),),
    confidence=LOW,
    symptom=True,
)
# What a start does for long, and what takes most memory in it.
_BUSY = re.compile(
    r"Loading (?:safetensors|pt|bin) checkpoint shards|oading shards:|Load weight begin|Loading weights took|"
    r"Model loading took|Starting to load model|Compiling a graph|Dynamo bytecode|torch\.compile took|"
    r"saved AOT compiled|Cache the graph of|Capturing (?:CUDA|cuda|batches)|utotun"
)
# Python's own word for what a parent that was killed left behind.
_LEFT = re.compile(r"resource_tracker")


def last_words(tail: Sequence[str]) -> tuple[int, str] | None:
    """What it was at when it broke off, and how many lines before the end."""
    said = ((at, line(text).text.strip()) for at, text in enumerate(reversed(tail)))
    at, last = next(
        ((at, text) for at, text in said if text and (_busy(text) or not _LEFT.search(text))), (0, "")
    )
    words = _busy(last)
    return (at, words) if words else None


def _busy(text: str) -> str:
    """The last of it, in a line that is drawn again and again."""
    *_, last = (None, *_BUSY.finditer(text))
    return text[last.start() :][:160] if last else ""
