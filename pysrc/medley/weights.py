"""A model's weights are a folder on this host, or a repository on the model hub."""

import difflib
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import join

from medley import demo, hub
from medley.problem import Problem
from medley.retyped import renamed
from medley.tables import Model

_REPOSITORY = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")


@dataclass(frozen=True)
class Weights:
    """What the engine is told to load, and what is known of it."""

    name: str
    """What people call it, and the name it is served under."""
    target: str
    """A folder's path, or ORG/NAME."""
    model: Model | None
    """Its table in models/, if it has one."""

    @property
    def local(self) -> bool:
        """Nothing needs to be fetched."""
        return Path(self.target).is_absolute()


def weights(word: str, models: Mapping[str, Model], cache: Path, typed: Sequence[str] = ()) -> Weights:
    """What `word` names: a known model, a folder with a config.json, or ORG/NAME, in this order.

    A known model that medley makes itself lies below `cache`. Raises a Problem for anything else, whose fix
    is what was `typed`, with a model that there is.
    """
    if word in models:
        return _known(word, models[word], cache)
    folder = Path(word).expanduser()
    if folder.is_dir():
        return _folder(folder.resolve())
    if _REPOSITORY.fullmatch(word):
        known = next((model for model in models.values() if model.repository == word), None)
        return Weights(word, word, known)
    if word.startswith((".", "~", "/")) or folder.exists():
        raise Problem(
            f"{word} is a file, and a model is a folder" if folder.exists() else f"there is no folder {word}",
            cause=f"{folder.absolute()} {'holds no config.json' if folder.exists() else 'does not exist'}",
            fix="name the folder that holds config.json and the weights",
        )
    near = _near(word.lower(), models)
    raise Problem(
        f"there is no model {word!r}",
        cause=f"it is no folder and no ORG/NAME of the hub; known names: {', '.join(sorted(models))}",
        fix=join(renamed(typed or ("medley", "serve", word), word, near or "demo")),
    )


def _near(word: str, names: Iterable[str]) -> str | None:
    """The shortest name that goes on where `word` ends, else the one most like it, or whose beginning is."""
    longer = min((name for name in names if name.startswith(word)), key=len, default=None)
    begins = {name[: len(word) + 1]: name for name in sorted(names, key=len, reverse=True)}
    like = difflib.get_close_matches(word, names, n=1) or difflib.get_close_matches(word, begins, n=1)
    return longer or next((begins.get(each, each) for each in like), None)


def _known(name: str, model: Model, cache: Path) -> Weights:
    if model.made is None:
        return Weights(name, str(model.repository), model)
    # Named by what it is made of: a table that has changed is another model.
    return Weights(name, str(cache / "models" / f"{name}-{demo.digest(model.made)}"), model)


def _folder(folder: Path) -> Weights:
    if not (folder / "config.json").is_file():
        raise Problem(
            f"{folder} holds no model",
            cause="it has no config.json, which every model of the hub has",
            fix=f"ls {shlex.quote(str(folder))}  # name the folder that holds config.json",
        )
    return Weights(folder.name, str(folder), None)


def ready(found: Weights) -> None:
    """Make the model, or see that the hub has it, before anything slow begins."""
    if found.model and found.model.made:
        demo.make(found.model.made, Path(found.target))
    elif not found.local:
        hub.require(found.target)
