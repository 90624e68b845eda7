"""Scripts that run in the Python of an engine environment; they import nothing of medley."""

from pathlib import Path

FOLDER = Path(__file__).parent
