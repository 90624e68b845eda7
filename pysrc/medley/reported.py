"""A report of a failure, written: what is known of this host and its log, without secrets."""

import importlib.metadata
import platform
import sys
import time
from pathlib import Path

from medley import api_key, store, token, transcript
from medley.explain import Explained
from medley.explain.concealed import concealed
from medley.explain.report import report
from medley.facts.redact import redactor
from medley.recognised import answers


def write(found: Explained, file: Path | None = None) -> Path:
    """Into this file, or a new one among medley's own; returns which."""
    file = file or store.state() / "reports" / time.strftime("explain-%Y%m%d-%H%M%S.txt")
    redacted = redactor((platform.node(),))
    own = _own()

    def conceal(text: str) -> str:
        return redacted(concealed(text, own))

    versions = {"medley": importlib.metadata.version("medley"), "python": sys.version.split()[0]}
    store.write(file, report(found, versions, transcript.text(answers()), conceal), secret=True)
    return file


def _own() -> list[str]:
    """The secrets that medley keeps here: they may be in a log in any form."""
    files = (file for file in (token.path(), api_key.path()) if file.is_file())
    return [file.read_text(encoding="utf-8").strip() for file in files]
