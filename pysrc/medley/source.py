"""The source is this medley's own text, so that two hosts can tell whether theirs is the same.

It imports little: every agent says it before anything else.
"""

import hashlib
from pathlib import Path

DISTRIBUTION = "medley-llm"
"""The name to install by; `medley` is another project's on PyPI."""


def version() -> str:
    """As it was installed, in a bare source tree `not installed`."""
    import importlib.metadata  # noqa: PLC0415 - an agent says no version

    try:
        return importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def digest() -> str:
    """Of medley's own modules and locks; what a user adds elsewhere does not count."""
    package = Path(__file__).parent
    locks = next(each for each in (package.parents[1] / "locks", package / "data" / "locks") if each.is_dir())
    whole = hashlib.sha256()
    for path in sorted(
        (*package.rglob("*.py"), *locks.glob("*-*.txt")), key=lambda each: (each.name, str(each))
    ):
        whole.update(f"{path.name}\0".encode() + path.read_bytes())
    return whole.hexdigest()[:16]
