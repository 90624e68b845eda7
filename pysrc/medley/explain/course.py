"""The course of what wrote a log: it began, was ready, was told to stop, or said that something is wrong."""

import re
from dataclasses import dataclass

from medley.explain.known import Shape, shape

BEGINS, READY, STOPPED, WRONG = "begins", "ready", "stopped", "wrong"
# A configuration, a request or a program's own text is shown here, and nothing is said by it.
_ECHO = re.compile(
    r"non-default args:|Initializing an? (?:V[01] )?LLM engine|server_args=|^args: Namespace|^Namespace\(|"
    r"Received request|[\"']?(?:content|prompt|role|messages)[\"']?: ?[\"'\[]|prompt=|"
    r"^\s+(?:raise |return |logger\.|f?[\"'])|^\s*\+{1,3} |^\s*(?:\$|#) |override-neuron|compilation_config="
)


@dataclass(frozen=True)
class Turn:
    kind: str
    shapes: tuple[Shape, ...]


def echoed(text: str) -> bool:
    """Whether a line shows somebody else's words."""
    return bool(_ECHO.search(text[:2000]))


TURNS = (
    Turn(BEGINS, (shape("medley keeps ", r"^medley keeps "),)),
    Turn(
        READY,
        (
            shape("Application startup complete", r"Application startup complete\.?$"),
            shape("fired up and ready to roll"),
            shape("medley: ready", r"^medley: ready"),
        ),
    ),
    Turn(
        STOPPED,
        (
            shape("Shutting down", r"^Shutting down$"),
            shape("KeyboardInterrupt", r"^KeyboardInterrupt"),
            shape("stopped; nothing of it runs any more"),
            shape("Received SIGTERM", r"^Received SIGTERM"),
            shape("SIGTERM received"),
            shape("Received SIGINT", r"^Received SIGINT"),
            shape("Gracefully stopping http server"),
        ),
    ),
    Turn(
        WRONG,
        (
            shape("Error: ", r"^(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception|Exit|Interrupt): \S"),
            shape("rror", r"^(?:fatal )?error: |: error: |^Error: "),
            shape("Exception", r"^(?:[\w.]+\.)?\w+Exception: \S"),
            shape("Segmentation fault"),
            shape("core dumped"),
            shape("what():", r"^\s*what\(\):"),
            shape("Fatal Python error"),
        ),
    ),
)
