"""Give advice for the engine of a log: vLLM's flags, or those of SGLang that do the same."""

import re
from collections.abc import Sequence
from typing import TypeVar

from medley.values import FileTable

_Row = TypeVar("_Row", bound=FileTable)
# Parts of a text for one engine: [vLLM: …][SGLang: …].
_ENGINE_PART = re.compile(r"\[(vLLM|SGLang): ([^\[\]]*)\](?:\[SGLang: ([^\[\]]*)\])?")
# Parts of a text for some versions: [vLLM before 0.17: …][vLLM from 0.17: …].
_VERSION_PART = re.compile(r"\[(vLLM|SGLang) (before|from) (\d[\d.]*): ([^\[\]]*)\]")
_RELEASE = re.compile(r"(\w+) (\d[\d.]*)")


class EngineFlag(FileTable):
    """A flag or variable of vLLM, and what SGLang has in its place; a fix names that of the log's engine."""

    vllm: str
    sglang: str


def add_sglang_flags(row: _Row, key: str, flags: Sequence[EngineFlag]) -> _Row:
    """Return a row with the flags of both engines in its advice, the text `key`."""
    text = getattr(row, key) or ""
    counterparts = {flag.vllm: flag.sglang for flag in flags if flag.vllm in text}
    if not counterparts:
        return row
    names = sorted(map(re.escape, counterparts), key=len, reverse=True)
    # What is for one engine already stays as it is.
    pattern = re.compile(rf"\[(?:vLLM|SGLang): [^\[\]]*\]|(?<![\w-])(?P<flag>{'|'.join(names)})(?![\w-])")
    new_text = pattern.sub(
        lambda match: (
            f"[vLLM: {match['flag']}][SGLang: {counterparts[match['flag']]}]" if match["flag"] else match[0]
        ),
        text,
    )
    return row.replace(**{key: new_text})


def keep_engine_parts(text: str, engine: str | None) -> str:
    """Return a text without its parts for another engine: [vLLM: …][SGLang: …]; with all if None."""

    def choose_part(match: re.Match[str]) -> str:
        name, own, other = match[1], match[2], match[3]
        if engine is None:
            return f"{own} (SGLang: {other})" if other else f"{name}: {own}"
        return own if name == engine else (other or "")

    return _ENGINE_PART.sub(choose_part, text).strip(" ,;")


def keep_version_parts(text: str, version: str | None) -> str:
    """Return a text without its parts for other versions than this one, such as vLLM 0.33.0.

    Of an unknown version, and of another engine, it has the parts for versions before.
    """
    release = _RELEASE.match(version or "")

    def choose_part(match: re.Match[str]) -> str:
        is_newer = bool(
            release and release[1] == match[1] and _parse_version(release[2]) >= _parse_version(match[3])
        )
        return match[4] if is_newer == (match[2] == "from") else ""

    return _VERSION_PART.sub(choose_part, text)


def _parse_version(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part)
