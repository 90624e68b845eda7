"""Read from the prose of a log which steps its owner has tried, and leave them out of a fix."""

import re
from collections.abc import Iterable

from medley.explain.lines import LogLine

TRIED_WORDS = ("tried", "lready", "reseat", "Reseat", "not help", "the same", "no effect", "wapped")
"""Needles of sentences that report a test of the log's owner."""
_TRIED = re.compile(
    r"(?i)\b(?:(?:was|were|have|i|we|also|all|been)? ?tried\b|already\b|re-?seated\b|swapped\b|"
    r"(?:did|does|do|has|have)(?: not|n't) help|the same\b|same (?:result|error|thing|happens)|"
    r"no (?:effect|change|difference)\b)"
)
# What a program or an error prints about itself
_PROGRAM_WORDS = re.compile(
    r"(?i)^\s*(?:File |raise |\w*(?:Error|Exception|Warning)\b)|already (?:in use|exists|running|allocated|"
    r"loaded|checked|initialized|downloaded|registered)|at the same time|must (?:all )?(?:be|have) the same"
)
_STEPS = (
    (r"re-?seat|(?:another|other|different|swapped|new) (?:pcie )?slots?|moved .{0,30}slot", r"\bslot\b"),
    (r"\brisers?\b", r"\briser\b"),
    (r"\bcables?\b", r"\bcables?\b"),
    (r"\bdrivers?\b", r"\b(?:newer|older|other|another|release of the)\b[^;]{0,30}\bdrivers?\b"),
    (r"\breboot|power[- ]?cycl|restarted the (?:host|machine|system)", r"^(?:sudo )?reboot\b"),
    (r"power limit|nvidia-smi -pl", r"nvidia-smi -pl"),
    (r"\bPSU\b|power suppl", r"\bPSU\b|power suppl"),
    (r"(?:new|updat|flash)\w* .{0,12}\bBIOS\b|\bBIOS\b .{0,12}updat", r"newer BIOS"),
    (r"\bgen ?[34]\b", r"PCIe Gen"),
    (r"\bASPM\b", r"aspm"),
    (r"\bIOMMU\b", r"iommu"),
    (r"drop_caches|dropped .{0,12}caches?|(?:page )?cache (?:was )?dropped", r"drop_caches"),
    (
        r"(?:firewall|ufw)\b.{0,30}\b(?:off|disabled|stopped|inactive)|\b(?:no|without a?) ?firewall",
        r"firewall",
    ),
    (r"re-?download|downloaded .{0,20}again", r"download it again|pull MODEL --verify"),
)
"""What a sentence reports, and the clauses of a fix that ask for it."""
_CLAUSE_STOP = re.compile(r"; (?:or |else )?")


def is_tried(line: LogLine) -> bool:
    """Whether a person wrote the line, about what was tried."""
    if line.level is not None or line.rank is not None or _PROGRAM_WORDS.search(line.text[:400]):
        return False
    return bool(_TRIED.search(line.text[:400]))


def leave_out_tried(fix: str, sentences: Iterable[str]) -> str:
    """Return a fix without the clauses that ask for a tried step; all of it if nothing else remains."""
    text = " ".join(sentences)
    steps = [
        re.compile(clause, re.IGNORECASE) for said, clause in _STEPS if re.search(said, text, re.IGNORECASE)
    ]
    if not steps:
        return fix
    lines = (_leave_out_clauses(line, steps) for line in fix.split("\n"))
    return "\n".join(filter(None, lines)) or fix


def _leave_out_clauses(line: str, steps: Iterable[re.Pattern[str]]) -> str:
    lead, separator, first = _split_lead(line)
    clauses = [first, *_CLAUSE_STOP.split(line)[1:]]
    remaining = [clause for clause in clauses if not any(each.search(clause) for each in steps)]
    if len(remaining) == len(clauses):
        return line
    return f"{lead}{separator}{'; '.join(remaining)}" if remaining else ""


def _split_lead(line: str) -> tuple[str, str, str]:
    """Return the words that introduce the clauses of a line, a colon, and its first clause."""
    first = _CLAUSE_STOP.split(line)[0]
    lead, separator, rest = first.partition(": ")
    return (lead, separator, rest) if separator else ("", "", first)
