"""Find what the owner of a log reports about a hang: time without progress, and GPUs that compute nothing."""

import re
from collections.abc import Sequence

from medley.explain.lines import cut_at_blank

_MIN_MINUTES = 5
_WAITED = re.compile(
    r"(?i)(?:(?:after|for|since|over|more than|now|waited)\s+)?(?P<number>\d+(?:\.\d+)?)\s*\+?\s*"
    r"(?P<unit>min(?:ute)?s?|m|hours?|hrs?|h)\b(?P<rest>.{0,80})"
)
_UNCHANGED = re.compile(
    r"(?i)\bstill\b|\bstuck\b|\bno (?:further )?(?:progress|output|change|new line)|"
    r"\bnothing (?:more|happens|new|changes)|"
    r"\bsame\b|\bunchanged\b|\bfrozen\b|\bhang(?:s|ing)?\b|\bhung\b|\bnever (?:moves|continues|ends)"
)
# nvidia-smi dmon -s u: gpu, sm, mem
_DMON_HEAD = re.compile(r"^\s*#\s*gpu\s+(?:pwr\s+gtemp\s+mtemp\s+)?sm\s+mem\b")
_DMON_ROW = re.compile(r"^\s*\d+\s+(?P<sm>\d{1,3})\s+(?P<mem>\d{1,3})\b")
_TABLE_ROW = re.compile(r"\|\s+(?P<sm>9\d|100)%\s+(?:Default|E\. Process)")
_QUERY = re.compile(r"^(?P<sm>9\d|100) %, (?P<mem>\d{1,3}) %")
_BUSY_PERCENT, _IDLE_PERCENT = 80, 3
_LAST_LINES = 40
_MAX_CHARS = 160


def find_hang(tail: Sequence[str]) -> str | None:
    """Return the owner's words about time without progress, with the use of the GPUs that the log shows.

    None where the log has no such time: a busy GPU alone may compute.
    """
    lines = [line[:400] for line in tail[-_LAST_LINES:]]
    waited = next((line.strip(" #.\u2026") for line in reversed(lines) if _is_wait(line)), None)
    if waited is None:
        return None
    sentence = f'The owner of the log reports: "{cut_at_blank(waited, _MAX_CHARS)}"'
    use = _find_use(lines)
    return f"{sentence}, and {use}" if use else sentence


def _is_wait(line: str) -> bool:
    if not _UNCHANGED.search(line) or re.search(r"\[\d{4}-|pid=\d|\bINFO\b|\bWARN", line):
        return False
    match = _WAITED.search(line)
    if match is None:
        return False
    is_hours = match["unit"].lower().startswith("h")
    return float(match["number"]) * (60 if is_hours else 1) >= _MIN_MINUTES


def _find_use(lines: Sequence[str]) -> str | None:
    has_head = any(map(_DMON_HEAD.match, lines))
    patterns = [*([_DMON_ROW] if has_head else []), _QUERY, _TABLE_ROW]
    rows = [match.groupdict() for line in lines for pattern in patterns if (match := pattern.search(line))]
    busy = [row for row in rows if int(row["sm"]) >= _BUSY_PERCENT]
    if not busy or int(busy[-1].get("mem") or 0) > _IDLE_PERCENT:
        return None
    memory = f", memory {busy[-1]['mem']} %" if busy[-1].get("mem") else ""
    return f"the GPU is at SM {busy[-1]['sm']} %{memory}: it spins and computes nothing, as in a collective"
