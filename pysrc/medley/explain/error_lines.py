"""Read uncaught exceptions in logs, and find the one that ended the program."""

import re
from collections.abc import Iterable, Sequence

from msgspec import field

from medley.explain.context import Context
from medley.explain.lines import INFO, WARNING, LogLine, cut_at_blank, decode, parse_line
from medley.values import Value

# vLLM 0.33.0, v1/executor/multiproc_executor.py: the text of a worker's exception, without its type.
_WORKER_REPORT = re.compile(
    r"^(?P<kind>[\w.]+: )?Worker failed with error '(?P<own>(?!', please|'$).+?)'?"
    r"(?:, please check the stack trace above[^']*)?$"
)
# Tracebacks whose reason is elsewhere, and exceptions that end a program intentionally.
_CONSEQUENCE = re.compile(
    r"EngineDeadError|Engine core initialization failed|EngineGenerateError|Engine process failed|"
    r"Executor failed|WorkerProc initialization failed|Process \S+ (?:died|exited)|"
    r"ChildFailedError|ChildProcessError|BrokenProcessPool|BrokenPipeError|EOFError|ConnectionResetError|"
    r"CancelledError|KeyboardInterrupt|SystemExit|GeneratorExit|ContextTerminated|ProcessRaisedException|"
    r"Initialization failed\. Please see|RayTaskError|ActorDiedError|WorkerCrashedError|cannot schedule new "
    r"futures|Event loop is closed|see (?:the )?(?:stack ?trace|error messages?|root cause)s? above|"
    r"Worker failed with error ''|Root Cause|Client disconnected|500 Internal Server Error|"
    r"ExceptionGroup: unhandled errors"
)
_DIRECT_CAUSE = "The above exception was the direct cause"
_NEXT_EXCEPTION = re.compile(rf"^(?:During handling of the above exception|{_DIRECT_CAUSE})")
_CALL = re.compile(r'^\s*File "[^"]+", line \d+')
_CODE = re.compile(r'^\s+(?:\S|$)|^Traceback |^File "')
_UNFINISHED_SENTENCE = re.compile(r"(?::|\bfor \w+|\bof)\s*$")
_MESSAGE_END = re.compile(
    r"^(?:Traceback|During handling|The above|\s*For further information|Process |\[rank|[\w.]+Error: )|^\s*$"
)
_TRACEBACK_LINES = 4
_MAX_MESSAGE_CHARS = 600
# Lines around the engine's last error that are searched for its reason.
NEAR_LINES = 600


def unwrap_worker_error(line: LogLine) -> LogLine:
    """Return the line with a worker's error in the place of the sentence that reports it."""
    if (match := _WORKER_REPORT.match(line.text)) is None:
        return line
    message = match["own"]
    text = message if re.match(r"[\w.]+(?:Error|Exception)\b", message) else f"{match['kind'] or ''}{message}"
    return line.replace(text=text, is_worker_report=True)


class ErrorLine(Value):
    """An error of a log."""

    line: LogLine
    number: int
    message: str
    when: tuple[int, int, float] | None
    ends_traceback: bool
    """Whether it is the end of a traceback."""
    is_chained: bool
    """Whether it caused another exception."""
    is_direct_cause: bool = False
    """Whether that exception was raised from it."""
    context: Context = field(default_factory=Context)
    origin: str | None = None
    """The first exception of the chain that it ends."""

    @property
    def is_consequence(self) -> bool:
        return bool(_CONSEQUENCE.search(self.message))

    @property
    def kind(self) -> str:
        name, _, _ = self.message.partition(":")
        last = name.rpartition(".")[2]
        return last if re.fullmatch(r"\w*[A-Z]\w*(?:\(\w+\))?", last) else "an error"


LINES_BELOW_CALL = 16
"""Lines below a call in which its traceback ends, with those of other ranks."""
_EXCEPTION_CLASS = re.compile(r"^[A-Za-z_][\w.]*(?:\([\w.]+\))?(?::(?: |$)|$)")


class TracebackEnd(Value):
    line: LogLine
    lines_below: int
    """Number of lines below the call."""


def find_traceback_end(call: LogLine, after: Sequence[bytes]) -> TracebackEnd | None:
    """Return the error in which a traceback ends: the first line of its rank without indentation.

    The name of the exception's class does not matter. Return None where another call follows.
    """
    indented = call.text[:1].isspace()
    own_lines = [
        (lines_below, line)
        for lines_below, line in enumerate((parse_line(decode(raw[:2000])) for raw in after), 1)
        if line.rank in (None, call.rank) and line.text.strip()
    ]
    # A report may have lost the indentation: then the first line is code, and so may be some more.
    for lines_below, line in own_lines[0 if indented else 1 : None if indented else _TRACEBACK_LINES]:
        if _CALL.match(line.text):
            return None
        if _EXCEPTION_CLASS.match(line.text):
            return TracebackEnd(unwrap_worker_error(line), lines_below)
        if indented and not line.text[0].isspace():
            return None
    return None


def read_error_line(
    line: LogLine,
    number: int,
    when: tuple[int, int, float] | None,
    before: Iterable[bytes],
    after: Sequence[bytes],
) -> ErrorLine | None:
    """Return the error of a line; None for information and warnings."""
    if line.level in (INFO, WARNING):
        return None
    texts_before, texts_after = (
        [
            other.text
            for other in (parse_line(decode(raw[:2000])) for raw in raws)
            if other.rank in (None, line.rank)
        ]
        for raws in (before, after)
    )
    ends_traceback = any(_CODE.match(text) for text in texts_before[-_TRACEBACK_LINES:])
    text = line.text.strip()
    if text.endswith("AssertionError"):
        code = next(
            (other for other in (*reversed(texts_before), *texts_after) if re.match(r"\s+assert\b", other)),
            "",
        )
        text = f"{text}: {code.strip()}" if code else text
    next_exception = next((other for other in texts_after[:3] if _NEXT_EXCEPTION.match(other)), "")
    is_direct_cause = next_exception.startswith(_DIRECT_CAUSE)
    return ErrorLine(
        line,
        number,
        _join_message(text, texts_after),
        when,
        ends_traceback,
        bool(next_exception),
        is_direct_cause=is_direct_cause,
    )


def _join_message(text: str, texts_after: Sequence[str]) -> str:
    if not _UNFINISHED_SENTENCE.search(text):
        return text
    further_texts: list[str] = []
    for part in texts_after[:6]:
        if _MESSAGE_END.match(part) and (further_texts or part.strip()):
            break
        further_texts.append(part.strip())
    return cut_at_blank(" ".join([text, *(part for part in further_texts if part)]), _MAX_MESSAGE_CHARS)


def find_reason(
    errors: Sequence[ErrorLine], *, ready: bool, end_number: int | None, lines: int
) -> ErrorLine | None:
    """Return the error that ended the program: the end of the first chain of exceptions with a reason."""
    if ready or end_number is not None:
        if end_number is None:
            return None
        errors = [error for error in errors if abs(error.number - end_number) <= NEAR_LINES]
    else:
        errors = [error for error in errors if error.number > lines - 4000]
    candidates = [error for error in errors if not error.is_consequence]
    candidates = [error for error in candidates if not error.line.is_worker_report] or candidates
    first = next((error for error in candidates if error.ends_traceback), next(iter(candidates), None))
    return first and _follow_chain(first, candidates)


def _follow_chain(first: ErrorLine, errors: Sequence[ErrorLine]) -> ErrorLine:
    last = first
    while last.is_chained:
        later = next((error for error in errors if error.number > last.number and error.ends_traceback), None)
        if later is None or later.number - last.number > NEAR_LINES // 2:
            break
        first, last = (first if last.is_direct_cause else later), later
    return last if last is first else last.replace(origin=first.message)
