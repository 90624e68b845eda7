"""The course of what wrote a log: it began, was ready, was told to stop, or said that something is wrong."""

import re
from dataclasses import dataclass

from medley.explain.known import Shape, shape

BEGINS, READY, STOPPED, MENDED, WRONG = "begins", "ready", "stopped", "mended", "wrong"
# A configuration, a request or a program's own text is shown here, and nothing is said by it.
_ECHO = re.compile(
    r"non-default args:|Initializing an? (?:V[01] )?LLM engine|server_args=|^args: Namespace|^Namespace\(|"
    r"Received request|[\"']?(?:content|prompt|role|messages)[\"']?: ?[\"'\[]|prompt=|"
    r"^medley: (?!ready)|^\s*\+{1,3} |^\s*(?:\$|#) |override-neuron|compilation_config=|"
    # Said in every good start: it goes on without
    r"^Ignore import error|Will ignore error and continue|^Skipping import of cpp extensions"
)
_SOURCE = re.compile(r"^\s+(?:raise |return |assert |logger\.|f?[\"'])|^raise [\w.]+\(")


@dataclass(frozen=True)
class Turn:
    kind: str
    shapes: tuple[Shape, ...]
    mends: tuple[str, ...] = ()
    """How the names of failures begin that are over with it."""


def echoed(text: str) -> bool:
    """Whether a line shows somebody else's words."""
    return bool(_ECHO.search(text[:2000]))


def source(text: str) -> bool:
    """Whether a line is of a program's own text, as a traceback shows it."""
    return bool(_SOURCE.match(text))


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
        MENDED,
        (shape("Ray runtime started"), shape("Connected to Ray cluster")),
        mends=("ray-", "refused", "name-unknown", "host-unreachable"),
    ),
    Turn(
        MENDED,
        (
            shape("Init COMPLETE"),
            shape("peer ranks", r"is connected to [1-9]\d* peer ranks"),
            shape("is assigned as", r"^rank \d+ in world size \d+ is assigned as"),
            shape("Init torch distributed ends"),
        ),
        mends=("nccl-connect", "nccl-link-local", "gloo-refused", "rendezvous-", "refused"),
    ),
    Turn(MENDED, (shape("ink up"), shape("Link is Up")), mends=("link-fell",)),
    # A benchmark of a server takes another tokenizer to count with, and goes on
    Turn(MENDED, (shape("alling back to", r"^Falling back to .{1,60} tokenizer"),), mends=("hub-",)),
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
            shape("[shutdown] API server: shutdown triggered"),
        ),
    ),
    Turn(
        WRONG,
        (
            shape(
                "rror", r"^[\w.]*(?:Error|Failure)(?:\(\w+\))?(?::|$)|^(?:fatal )?error: |: error: |^Error: "
            ),
            shape("xception", r"^[\w.]*Exception(?:\(\w+\))?(?::|$)"),
            shape("rrors.", r"^\w[\w.]*\berrors\.[A-Z]\w+(?::|$)"),
            shape("xpired", r"^[\w.]+Expired: "),
            shape("what():", r"^\s*what\(\):"),
        ),
    ),
)
