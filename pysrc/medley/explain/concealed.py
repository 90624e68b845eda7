"""A concealed text says the same without secrets: tokens, keys and passwords, in whatever form they are."""

import re
from collections.abc import Iterable

HIDDEN = "HIDDEN"
_NAMES = r"[\w-]*(?:token|secret|passwo?r?d|passwd|credential|api[_-]?key|access[_-]?key|auth)[\w-]*"
_ASSIGNED = re.compile(
    rf"(?i)(?P<name>[\"']?--?{_NAMES}[\"']?|[\"']?\b{_NAMES}[\"']?)(?P<by>\s*[=:]\s*|\s+(?=[\"']?\S))"
    r"(?P<quote>[\"']?)(?P<value>(?:Bearer |Basic )?[^\s\"',;)}\]]{8,})"
)
_SHAPES = re.compile(
    r"\b(?:hf|api_org|sk|sk-proj|ghp|gho|ghs|github_pat|glpat|nvapi|xox[abp]|dckr_pat|pypi)[-_][\w-]{8,}"
    r"|\bAKIA[0-9A-Z]{16}\b|\beyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?"
    r"|(?<!sha256[:-])(?<![\w:/])[0-9a-f]{48,128}(?![\w])"
)
_BEARER = re.compile(r"(?i)\b(Bearer|Basic)\s+[\w.~+/=-]{8,}")
_IN_URL = re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)")
_PRIVATE = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
)
_SHORTEST = 6


def concealed(text: str, secrets: Iterable[str] = ()) -> str:
    """Without what looks like a secret, and without these, which are some."""
    for secret in secrets:
        if len(secret) >= _SHORTEST:
            text = text.replace(secret, HIDDEN)
    text = _PRIVATE.sub(HIDDEN, text)
    text = _SHAPES.sub(HIDDEN, text)
    text = _BEARER.sub(rf"\1 {HIDDEN}", text)
    text = _IN_URL.sub(HIDDEN, text)
    return _ASSIGNED.sub(_hidden, text)


def _hidden(match: re.Match[str]) -> str:
    """A flag or a quoted or assigned value; what words say in a sentence stays."""
    value, by, name = match["value"], match["by"], match["name"]
    plain = not by.strip() and not name.startswith("-")
    if plain or value.startswith((HIDDEN, "None", "/", "~", "False", "True")):
        return match[0]
    return f"{name}{by}{match['quote']}{HIDDEN}"
