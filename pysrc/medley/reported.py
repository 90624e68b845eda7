"""A report of a failure, written: what is known of this host and its log, without secrets."""

import sys
import time
from pathlib import Path

from medley import redaction, source, store, transcript
from medley.explain import Explained
from medley.explain.report import report
from medley.recognised import answers


def write(found: Explained, file: Path | None = None) -> Path:
    """Into this file, or a new one among medley's own; returns which."""
    file = file or store.state() / "reports" / time.strftime("explain-%Y%m%d-%H%M%S.txt")
    versions = {"medley": source.version(), "python": sys.version.split()[0]}
    store.write(file, report(found, versions, transcript.text(answers()), redaction.here().text), secret=True)
    return file
