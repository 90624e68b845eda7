"""Give advice for the engine of a log: vLLM's flags, or those of SGLang that do the same."""

import re
from collections.abc import Sequence
from typing import TypeVar

from medley.schema import StrictTable

_Row = TypeVar("_Row", bound=StrictTable)
# Parts of a text for one engine: [vLLM: …][SGLang: …].
_OF_ENGINE = re.compile(r"\[(vLLM|SGLang): ([^\[\]]*)\](?:\[SGLang: ([^\[\]]*)\])?")
# Parts of a text for some versions: [vLLM before 0.17: …][vLLM from 0.17: …].
_OF_VERSION = re.compile(r"\[(vLLM|SGLang) (before|from) (\d[\d.]*): ([^\[\]]*)\]")
_RELEASE = re.compile(r"(\w+) (\d[\d.]*)")


class EngineFlag(StrictTable):
    """A flag or variable of vLLM, and what SGLang has in its place; a fix names that of the log's engine."""

    vllm: str
    sglang: str


def with_flags(row: _Row, key: str, flags: Sequence[EngineFlag]) -> _Row:
    """Return a row with the flags of both engines in its advice, the text `key`."""
    text = getattr(row, key) or ""
    both = {each.vllm: each.sglang for each in flags if each.vllm in text}
    if not both:
        return row
    longest = sorted(map(re.escape, both), key=len, reverse=True)
    # What is for one engine already stays as it is.
    pattern = re.compile(rf"\[(?:vLLM|SGLang): [^\[\]]*\]|(?<![\w-])(?P<flag>{'|'.join(longest)})(?![\w-])")
    parts = pattern.sub(
        lambda found: (
            f"[vLLM: {found['flag']}][SGLang: {both[found['flag']]}]" if found["flag"] else found[0]
        ),
        text,
    )
    return row.model_copy(update={key: parts})


def for_engine(text: str, engine: str | None) -> str:
    """Return a text without its parts for another engine: [vLLM: …][SGLang: …]; with all if None."""

    def part(found: re.Match[str]) -> str:
        name, own, other = found[1], found[2], found[3]
        if engine is None:
            return f"{own} (SGLang: {other})" if other else f"{name}: {own}"
        return own if name == engine else (other or "")

    return _OF_ENGINE.sub(part, text).strip(" ,;")


def for_version(text: str, version: str | None) -> str:
    """Return a text without its parts for other versions than this one, such as vLLM 0.33.0.

    Of an unknown version, and of another engine, it has the parts for versions before.
    """
    release = _RELEASE.match(version or "")

    def part(found: re.Match[str]) -> str:
        is_newer = bool(release and release[1] == found[1] and _numbers(release[2]) >= _numbers(found[3]))
        return found[4] if is_newer == (found[2] == "from") else ""

    return _OF_VERSION.sub(part, text)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(each) for each in version.split(".") if each)
