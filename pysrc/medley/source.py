"""The source is this medley itself: which version, and which text, so that two hosts can compare theirs."""

import hashlib
import importlib.metadata
from pathlib import Path

from medley import config


def version() -> str:
    try:
        return importlib.metadata.version("medley")
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def digest() -> str:
    """Of medley's own modules and locks; what a user adds elsewhere does not count."""
    package = Path(__file__).parent
    folder = next((each for each in config.folders()[1:] if (each / "locks").is_dir()), package)
    found = [*package.rglob("*.py"), *(folder / "locks").glob("*-*.txt")]
    whole = hashlib.sha256()
    for path in sorted(found, key=lambda each: (each.name, str(each))):
        whole.update(f"{path.name}\0".encode() + path.read_bytes())
    return whole.hexdigest()[:16]
