"""An uncaught error: a program's own words for a failure that nothing else is known of."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from medley.explain.blocks import decoded
from medley.explain.known import LOW, Known, shape
from medley.explain.line import INFO, WARNING, Line, line

UNKNOWN = Known(
    "unknown-error",
    what="a failure that medley does not know: {kind}",
    cause="its own words: {said}",
    fix="search for these words in the issues of the engine; to ask there, attach the report that medley "
    "explain writes of it",
    shapes=(shape("rror"),),
    confidence=LOW,
)
# A traceback of which the reason stands elsewhere, and exceptions that end a program by intent.
_FOLLOWS = re.compile(
    r"EngineDeadError|Engine core initialization failed|EngineGenerateError|Engine process failed|"
    r"Executor failed|WorkerProc initialization failed|Worker failed with error|Process \S+ (?:died|exited)|"
    r"ChildFailedError|ChildProcessError|BrokenProcessPool|BrokenPipeError|EOFError|ConnectionResetError|"
    r"CancelledError|KeyboardInterrupt|SystemExit|GeneratorExit|ContextTerminated|ProcessRaisedException|"
    r"Initialization failed\. Please see|RayTaskError|ActorDiedError|WorkerCrashedError|cannot schedule new "
    r"futures|Event loop is closed|see (?:the )?(?:stack ?trace|error messages?|root cause)s? above|"
    r"Root Cause|Client disconnected|500 Internal Server Error"
)
_LEADS = re.compile(r"^(?:During handling of the above exception|The above exception was the direct cause)")
_CODE = re.compile(r"^\s+(?:\S|$)|^Traceback ")
_UNFINISHED = re.compile(r"(?::|\bfor \w+|\bof)\s*$")
_ENDS = re.compile(
    r"^(?:Traceback|During handling|The above|\s*For further information|Process |\[rank)|^\s*$"
)
_BACK = 4
# Lines around the engine's last word in which its reason is looked for.
NEAR = 600
_FIRST, _LAST = 24, 24


@dataclass(frozen=True)
class Slip:
    line: Line
    number: int
    said: str
    when: tuple[int, int, float] | None
    traced: bool
    """The end of a traceback, and not only a line that says error."""
    leads: bool
    """Another exception was raised because of it."""

    @property
    def follows(self) -> bool:
        return bool(_FOLLOWS.search(self.said))

    @property
    def kind(self) -> str:
        name, _, _ = self.said.partition(":")
        last = name.rpartition(".")[2]
        return last if re.fullmatch(r"\w*[A-Z]\w*(?:\(\w+\))?", last) else "an error"


def slip(
    said: Line,
    number: int,
    when: tuple[int, int, float] | None,
    before: Iterable[bytes],
    after: Sequence[bytes],
) -> Slip | None:
    """What a line shows to be one; none in a line that only informs or warns."""
    if said.level in (INFO, WARNING):
        return None
    near, then = (
        [each.text for each in (line(decoded(one[:2000])) for one in raw) if each.rank in (None, said.rank)]
        for raw in (before, after)
    )
    traced = any(_CODE.match(each) for each in near[-_BACK:])
    text = said.text.strip()
    if text.endswith("AssertionError") and traced:
        code = next((each for each in reversed(near) if re.match(r"\s+assert\b", each)), "")
        text = f"{text}: {code.strip()}" if code else text
    leads = any(_LEADS.match(each) for each in then[:3])
    return Slip(said, number, _whole(text, then), when, traced, leads)


def _whole(text: str, then: Sequence[str]) -> str:
    """With the lines that belong to it, where it is not all in one."""
    if not _UNFINISHED.search(text):
        return text
    more: list[str] = []
    for each in then[:6]:
        if _ENDS.match(each) and (more or each.strip()):
            break
        more.append(each.strip())
    return " ".join([text, *(each for each in more if each)])[:600]


def kept(slips: list[Slip], new: Slip) -> None:
    """The first and the last of them; what lies between repeats itself."""
    slips.append(new)
    if len(slips) > _FIRST + _LAST:
        del slips[_FIRST]


def reason(slips: Sequence[Slip], *, ready: bool, death: int | None, lines: int) -> Slip | None:
    """Of the one that ended it: the end of the first chain of exceptions that has a reason of its own."""
    if ready or death is not None:
        if death is None:
            return None
        slips = [each for each in slips if abs(each.number - death) <= NEAR]
    else:
        slips = [each for each in slips if each.number > lines - 4000]
    own = [each for each in slips if not each.follows]
    first = next((each for each in own if each.traced), next(iter(own), None))
    while first and first.leads:
        later = next((each for each in own if each.number > first.number and each.traced), None)
        if later is None or later.number - first.number > NEAR // 2:
            break
        first = later
    return first
