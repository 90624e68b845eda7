"""Find what MODEL names: a table, a folder or a hub repository."""

import difflib
import hashlib
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from medley import user
from medley.command import renamed
from medley.errors import Problem
from medley.model import demo, hub
from medley.model.checkpoint import has_weights
from medley.schema import Model

_TWINS = {"deepseek-r1": ("deepseek-v3", "deepseek-ai/DeepSeek-R1")}
"""Models without a table that have the shape of one with a table; and their repositories."""
_PAGE = re.compile(
    r"(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/([\w-][\w.-]*/[\w-][\w.-]*)(?:[/?#].*)?"
)
_LEAST_LIKE = 0.85
"""How alike a word must be to the name of a model that medley makes, as difflib counts."""
# Raised when the same package is written into other files.
_PACKAGED_FORMAT = 1
_REPOSITORY = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")


@dataclass(frozen=True)
class Weights:
    name: str
    """The name it is served under."""
    target: str
    """A folder's path, or ORG/NAME."""
    model: Model | None
    word: str = field(default="", compare=False)
    """What the user typed for it: a name in other case, an alias, a folder or ORG/NAME."""

    @property
    def local(self) -> bool:
        return Path(self.target).is_absolute()

    @property
    def is_built(self) -> bool:
        """Whether medley writes the folder; else it is the user's, or a repository of the hub."""
        return self.model is not None and self.model.is_built

    @property
    def notice(self) -> str | None:
        """The line that says that a folder was taken for a word that may also name a repository."""
        if not self.local or not _REPOSITORY.fullmatch(self.word):
            return None
        return f"{self.word} is the folder {self.target} here, not the hub's repository of that name"


def weights(word: str, models: Mapping[str, Model], cache: Path, typed: Sequence[str] = ()) -> Weights:
    """Find the model, folder or ORG/NAME that `word` names; a fix corrects what was `typed`."""
    as_typed, word = word, _table_name(word, models)
    if model := models.get(word):
        target = model.repository or str(cache / "models" / f"{word}-{_digest(model)}")
        return Weights(word, target, model, as_typed)
    folder = user.expand(word)
    if _exists(folder) and folder.is_dir():
        folder = folder.resolve()
        if not (folder / "config.json").is_file():
            raise Problem(
                f"{folder} holds no model",
                cause="it has no config.json, which every model of the hub has",
                fix=f"ls {shlex.quote(str(folder))}  # name the folder that holds config.json",
            )
        return Weights(folder.name, str(folder), None, as_typed)
    if _REPOSITORY.fullmatch(word):
        known = (each for each in models.values() if each.repository == word)
        return Weights(word, word, next(known, None), as_typed)
    typed = tuple(typed) or ("medley", "serve", word)
    if page := _PAGE.fullmatch(word):
        raise Problem(
            f"{word} is a page of the hub",
            cause="a model is named by its repository, ORG/NAME",
            fix=shlex.join(renamed(typed, word, page[1])),
        )
    if word.lower().endswith(".gguf"):
        raise Problem(
            f"{word} is a GGUF file, which medley does not serve",
            cause="it is in llama.cpp's format, and the engines load config.json and *.safetensors",
            fix="medley models  # or name the repository whose weights are safetensors: ORG/NAME",
        )
    if word.startswith((".", "~", "/")) or _exists(folder):
        raise Problem(
            f"{word} is a file, and a model is a folder" if _exists(folder) else f"there is no folder {word}",
            cause=f"{folder.absolute()} {'holds no config.json' if _exists(folder) else 'does not exist'}",
            fix="name the folder that holds config.json and the weights",
        )
    raise _unknown(word, models, typed)


def _digest(model: Model) -> str:
    """Return what a built model is made of, because a table that has changed is another model."""
    if model.package:
        text = f"{_PACKAGED_FORMAT} {model.package.model_dump_json()}"
        return hashlib.sha256(text.encode()).hexdigest()[:8]
    return demo.digest(model.made) if model.made else ""


def _unknown(word: str, models: Mapping[str, Model], typed: tuple[str, ...]) -> Problem:
    """Return a Problem whose cause has the nearest names, and whose fix is the nearest typed."""
    what, small = f"there is no model {word!r}", word.lower()
    for name, (twin, repository) in _TWINS.items():
        if small == name and twin in models:
            fix = shlex.join(renamed(typed, word, twin if typed[1] == "plan" else repository))
            return Problem(what, cause=f"it has the shape of {twin}, whose plan holds for it too", fix=fix)
    near = _near(small, models)
    like = [each for each in difflib.get_close_matches(small, models, cutoff=0.5) if not models[each].made]
    nearest = ", ".join(dict.fromkeys((near, *like))) if near else ""
    return Problem(
        what,
        cause=f"it is not a folder, not ORG/NAME of the hub, and not one of {len(models)} known models"
        + (f"; the nearest: {nearest}" if nearest else ""),
        fix=shlex.join(renamed(typed, word, near)) if near else "medley models",
    )


def require_repository(word: str) -> None:
    """Raise a Problem for a word that is not ORG/NAME."""
    if not _REPOSITORY.fullmatch(word):
        if word.startswith((".", "~", "/")) or _exists(Path(word)):
            folder = f"medley plan {shlex.quote(word)}"
            raise Problem(f"{word} is a folder", cause="a folder on disk needs no table", fix=folder)
        raise Problem(
            f"{word!r} is not a repository of the hub",
            cause="it has the form ORG/NAME",
            fix="medley models add Qwen/Qwen3-14B",
        )


def _table_name(word: str, models: Mapping[str, Model]) -> str:
    """Find the table for `word` in other case or by alias; else return `word`."""
    if word in models or "/" in word or _exists(Path(word)):
        return word
    small = word.lower()
    aliased = (name for name, model in models.items() if small in model.aliases)
    return small if small in models else next(aliased, word)


def _exists(path: Path) -> bool:
    """False too where a word is too long for the name of a file."""
    try:
        return path.exists()
    except OSError:
        return False


def _near(word: str, models: Mapping[str, Model]) -> str | None:
    """Find the name closest to `word`; a model that medley makes needs half of its name."""
    tables = {alias: name for name, model in models.items() for alias in model.aliases}
    tables |= {
        name: name
        for name, model in models.items()
        if not model.made or (name.startswith(word) and 2 * len(word) > len(name))
    }
    longer = min((name for name in tables if name.startswith(word)), key=len, default=None)
    made = [name for name, model in models.items() if model.made]
    if longer is None and (like := difflib.get_close_matches(word, made, n=1, cutoff=_LEAST_LIKE)):
        return like[0]
    begins = {name[: len(word) + 1]: name for name in sorted(tables, key=len, reverse=True)}
    like = difflib.get_close_matches(word, tables, n=1) or difflib.get_close_matches(word, begins, n=1)
    found = longer or next((begins.get(each, each) for each in like), None)
    return found and tables[found]


def require_only_on_hub(target: str) -> None:
    """Raise a Problem where a file or folder here has a repository's name.

    transformers takes ./ORG/NAME before the hub's ORG/NAME, with its code, whatever --revision says (seen
    with vLLM 0.32.0). An engine starts in the user's folder.
    """
    if os.path.lexists(target):
        folder = shlex.quote(f"./{target}")
        raise Problem(
            f"{target} is a repository of the hub, and a name in this folder",
            cause=f"the engine would load {Path(target).absolute()} in its place, with any code in it",
            fix=f"cd ~  # and type it again\nmedley serve {folder}  # for the folder itself",
        )


def ready(found: Weights) -> None:
    """Make the model, or see that the hub has it, before anything slow begins.

    One of a package is built with an engine's Python: `environment.packaged_model`.
    """
    if found.model and found.model.made:
        demo.make(found.model.made, Path(found.target))
    elif not found.local:
        require_only_on_hub(found.target)
        hub.require(found.target)
    else:
        require_weights(found)


def require_weights(found: Weights) -> None:
    """Raise a Problem for a folder without weights, or one in a repository's place; fetch nothing."""
    if not found.local:
        require_only_on_hub(found.target)
    if found.local and not found.is_built and not has_weights(Path(found.target)):
        raise Problem(
            f"{found.target} holds no weights",
            cause="it has config.json, which is enough for a plan, and no *.safetensors",
            fix=f"medley plan {shlex.quote(found.target)}  # or put the weights next to it",
        )
