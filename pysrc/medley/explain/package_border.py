"""Recognize a call between two packages with an argument that the called one does not know."""

import re
from collections.abc import Sequence

_REFUSED = re.compile(
    r"(?:Kwargs \[|[Uu]nexpected kwargs?:? \[?|"
    r"[Uu]nknown (?:keyword )?arguments?:? \[?)"
    r"'(?P<name>\w{2,60})'|`(?P<quoted>\w{2,60})` is not (?:supported|accepted|a valid (?:argument|kwarg))"
)
_PACKAGE = re.compile(r"(?:.*(?:site|dist)-packages/|(?:.*/)?(?=(?:vllm|sglang)/))(?P<package>[A-Za-z]\w+)/")


def find_border(
    text: str, calls: Sequence[tuple[str, str]], settings: str, before: Sequence[str]
) -> str | None:
    """Return the two packages in words; None if the argument is of the request or of a flag.

    `calls`: file and function, the innermost last. `before`: the lines before the error.
    """
    refused = _REFUSED.search(text[:1000])
    packages = [match["package"] for file, _ in calls if (match := _PACKAGE.match(file))]
    callers = [package for package in packages if package != packages[-1]]
    if refused is None or not callers:
        return None
    name = refused["name"] or refused["quoted"]
    sent = re.compile(rf"\"{name}\\?\"\s*:|--{name.replace('_', '-')}\b")
    if sent.search(settings) or any(map(sent.search, before)):
        return None
    return (
        f"{callers[-1]} calls {packages[-1]} with {name}, which neither the request nor a flag of the log has"
    )
