"""Find the sentence of an error's message that tells its reader what to do."""

import re
from collections.abc import Sequence
from itertools import takewhile

from medley.explain.lines import LogLine, cut_at_blank, decode_start, parse_line

_MAX_ADVICE_CHARS = 200
_MAX_LINE_CHARS = 400
_MAX_TEXT_CHARS = 2000
# A sentence of an error that tells its reader what to do.
_ADVICE = re.compile(
    r"(?:^|[.;:!,] )(?P<advice>(?:"
    r"(?:[Pp]lease|[Tt]ry|[Cc]onsider|[Yy]ou (?:can|should|may|need to|must)) \S+|"
    r"(?:Install|Upgrade|Downgrade|Update|Set|Use|Pass|Run|Add|Disable|Enable|Reduce|Increase|Decrease|Specify|"
    r"Remove|Rebuild|Reinstall|Make sure|Ensure) |"
    r"(?:[Oo]ne )?(?:[Pp]otential|[Pp]ossible) (?:fix|solution|workaround) is |"
    r"To (?:work ?around|fix|resolve|avoid|disable) (?:this|it)\b|"
    r"(?:install|upgrade|set|use|pass|disable|enable) (?:[`'\"]|--|[A-Z_]{4,}=?)"
    r")[^\n]{4,200}?)(?=[.!]?$|[.!] [A-Z]|; )"
)
# These report to PyTorch or debug it, and mend nothing.
_DEBUG_ADVICE = re.compile(
    r"report a bug|stack ?trace|TORCH_USE_CUDA_DSA|CUDA_LAUNCH_BLOCKING|NCCL_DEBUG|root cause"
)
_MAX_MESSAGE_LINES = 10
# The message itself warns of what it names.
_WARNED = re.compile(
    r"[.;:! ]*(?:Warning|WARNING|Caution|CAUTION|[Oo]nly do (?:this|so)|This is (?:unsafe|dangerous))"
)
# The next traceback, or a report of another process.
_OTHER_REPORT = re.compile(
    r"Traceback|During handling|The above exception|\w*(?:Error|Exception): |Received sig"
)


def find_advice(text: str) -> str | None:
    matches = _ADVICE.finditer(cut_at_blank(text, _MAX_TEXT_CHARS))
    sentences = (match["advice"].strip() for match in matches if not _WARNED.match(text, match.end("advice")))
    return next(
        (
            cut_at_blank(sentence, _MAX_ADVICE_CHARS)
            for sentence in sentences
            if not _DEBUG_ADVICE.search(sentence)
        ),
        None,
    )


def find_advice_below(after: Sequence[bytes], error: LogLine) -> str | None:
    """Return the advice in further lines of an exception's message, before another line with a level."""
    lines = (parse_line(decode_start(raw, _MAX_LINE_CHARS)) for raw in after[:_MAX_MESSAGE_LINES])
    message_lines = takewhile(
        lambda line: line.level in (None, error.level) and not _OTHER_REPORT.match(line.text),
        (line for line in lines if line.rank in (None, error.rank)),
    )
    return next((advice for line in message_lines if (advice := find_advice(line.text))), None)
