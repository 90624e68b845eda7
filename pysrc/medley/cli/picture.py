"""`--svg FILE`: a text into a file that a user names."""

from pathlib import Path

from medley import store
from medley.problem import Problem, in_words


def save(name: str, text: str) -> None:
    """Whole, and only over a file: as root, /dev/null too could be replaced."""
    try:
        path = Path(name).resolve()
        if path.exists() and not path.is_file():
            raise _unwritable(name, "it is a folder or a device, not a file")
        if not path.parent.is_dir():
            raise _unwritable(name, f"there is no folder {path.parent}")
        store.write(path, text)
    except OSError as error:
        raise _unwritable(name, in_words(error)) from error


def _unwritable(name: str, cause: str) -> Problem:
    return Problem(
        f"{name or 'a file without a name'} cannot be written",
        cause=cause,
        fix="name a file in a folder that you can write: --svg plan.svg",
    )
