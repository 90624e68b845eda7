"""Find what MODEL names: a table, a folder or a hub repository."""

import difflib
import hashlib
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from medley import user
from medley.command import quote_path, replace_word
from medley.errors import Problem
from medley.model import demo, hub
from medley.model.checkpoint import has_weights
from medley.schema import Model
from medley.values import Value

_SAME_SHAPES = {"deepseek-r1": ("deepseek-v3", "deepseek-ai/DeepSeek-R1")}
"""Models without a table, by name: the table of the same shape, and their repositories."""
_HUB_PAGE_PATTERN = re.compile(
    r"(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/([\w-][\w.-]*/[\w-][\w.-]*)(?:[/?#].*)?"
)
_MIN_SIMILARITY = 0.85
"""The least similarity, as difflib counts it, of a word to the name of a model that medley makes."""
_PACKAGE_FORMAT_NUMBER = 1
"""A number that is raised when the same package is written into other files."""
_REPOSITORY_PATTERN = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")


class Weights(Value):
    """A model that the user named: where its weights are, and its table."""

    name: str
    """The name under which it is served."""
    target: str
    """A folder's path, or ORG/NAME."""
    model: Model | None
    word: str = ""
    """The user's word for it: a name in other case, an alias, a folder or ORG/NAME."""

    @property
    def is_local(self) -> bool:
        return Path(self.target).is_absolute()

    @property
    def is_built(self) -> bool:
        """Whether medley writes the folder; else it is the user's, or a repository of the hub."""
        return self.model is not None and self.model.is_built

    @property
    def notice(self) -> str | None:
        """The line that says that a folder was taken for a word that may also name a repository."""
        if not self.is_local or not _REPOSITORY_PATTERN.fullmatch(self.word):
            return None
        return f"{self.word} is the folder {self.target} here, not the hub's repository of that name"


def resolve_weights(
    word: str, models: Mapping[str, Model], cache: Path, command_words: Sequence[str] = ()
) -> Weights:
    """Find the model, folder or ORG/NAME that `word` names; a fix repeats `command_words`, corrected."""
    user_word, word = word, _find_table_name(word, models)
    command_words = tuple(command_words) or ("medley", "serve", user_word)
    _refuse_known_name_of_folder(user_word, word, models, command_words)
    if model := models.get(word):
        target = model.repository or str(cache / "models" / f"{word}-{_compute_digest(model)}")
        return Weights(word, target, model, user_word)
    folder = user.expand_home(word)
    if _exists(folder) and folder.is_dir():
        folder = folder.resolve()
        if not (folder / "config.json").is_file():
            raise Problem(
                f"{folder} holds no model",
                cause="it has no config.json, which every model of the hub has",
                fix=f"ls {quote_path(folder)}  # name the folder that holds config.json",
            )
        return Weights(folder.name, str(folder), None, user_word)
    if _REPOSITORY_PATTERN.fullmatch(word):
        tables = (table for table in models.values() if table.repository == word)
        return Weights(word, word, next(tables, None), user_word)
    if page := _HUB_PAGE_PATTERN.fullmatch(word):
        raise Problem(
            f"{word} is a page of the hub",
            cause="a model is named by its repository, ORG/NAME",
            fix=shlex.join(replace_word(command_words, word, page[1])),
        )
    if word.lower().endswith(".gguf"):
        raise Problem(
            f"{word} is a GGUF file, which medley does not serve",
            cause="it is in llama.cpp's format, and the engines load config.json and *.safetensors",
            fix="medley models  # or name the repository whose weights are safetensors: ORG/NAME",
        )
    fix = "name the folder that holds config.json and the weights"
    if _exists(folder):
        cause = f"{folder.absolute()} holds no config.json"
        raise Problem(f"{word} is a file, and a model is a folder", cause=cause, fix=fix)
    if word.startswith((".", "~", "/")):
        cause = f"{folder.absolute()} does not exist"
        raise Problem(f"there is no folder {word}", cause=cause, fix=fix)
    raise _build_unknown_model_problem(word, models, command_words)


def _compute_digest(model: Model) -> str:
    """Return the hash of a built model's table, because a changed table is another model."""
    if model.package:
        text = f"{_PACKAGE_FORMAT_NUMBER} {model.package.to_json()}"
        return hashlib.sha256(text.encode()).hexdigest()[:8]
    return demo.compute_digest(model.made) if model.made else ""


def _build_unknown_model_problem(
    word: str, models: Mapping[str, Model], command_words: tuple[str, ...]
) -> Problem:
    """Return a Problem whose cause has the nearest names, and whose fix is the nearest typed."""
    what, lower_word = f"there is no model {word!r}", word.lower()
    for name, (known_name, repository) in _SAME_SHAPES.items():
        if lower_word == name and known_name in models:
            fix = shlex.join(
                replace_word(command_words, word, known_name if command_words[1] == "plan" else repository)
            )
            return Problem(
                what, cause=f"it has the shape of {known_name}, whose plan holds for it too", fix=fix
            )
    nearest_name = _find_nearest_name(lower_word, models)
    similar = [
        name for name in difflib.get_close_matches(lower_word, models, cutoff=0.5) if not models[name].made
    ]
    nearest_names = ", ".join(dict.fromkeys((nearest_name, *similar))) if nearest_name else ""
    return Problem(
        what,
        cause=f"it is not a folder, not ORG/NAME of the hub, and not one of {len(models)} known models"
        + (f"; the nearest: {nearest_names}" if nearest_names else ""),
        fix=shlex.join(replace_word(command_words, word, nearest_name)) if nearest_name else "medley models",
    )


def require_repository(word: str) -> None:
    """Raise a Problem for a word that is not ORG/NAME."""
    if not _REPOSITORY_PATTERN.fullmatch(word):
        if word.startswith((".", "~", "/")) or _exists(Path(word)):
            folder = f"medley plan {shlex.quote(word)}"
            raise Problem(f"{word} is a folder", cause="a folder on disk needs no table", fix=folder)
        raise Problem(
            f"{word!r} is not a repository of the hub",
            cause="it has the form ORG/NAME",
            fix="medley models add Qwen/Qwen3-14B",
        )


def _find_table_name(word: str, models: Mapping[str, Model]) -> str:
    """Return the name of the table for `word`, which may be in other case or an alias; else `word`."""
    if word in models or "/" in word:
        return word
    lower_word = word.lower()
    alias_names = (name for name, model in models.items() if lower_word in model.aliases)
    return lower_word if lower_word in models else next(alias_names, word)


def _refuse_known_name_of_folder(
    user_word: str, word: str, models: Mapping[str, Model], command_words: tuple[str, ...]
) -> None:
    """Raise a Problem for a word that names a known model, and a folder of another model here.

    A name exactly as in the table is the known model: the folder is not looked at.
    """
    folder = Path(user_word)
    if not (_exists(folder) and (folder / "config.json").is_file()):
        return  # before all tables are read
    by_repository = (name for name, model in models.items() if model.repository == user_word)
    if known_name := word if word != user_word else next(by_repository, None):
        choices = (f"./{user_word}", known_name)
        commands = [shlex.join(replace_word(command_words, user_word, choice)) for choice in choices]
        raise Problem(
            f"{user_word} is a known model, and a folder here",
            cause=f"{folder.absolute()} holds a model, and {user_word} is also {known_name} of models/",
            fix=f"{commands[0]}  # for the folder\n{commands[1]}  # for the known model",
        )


def _exists(path: Path) -> bool:
    """Return whether a path exists; False if it is too long for the name of a file."""
    try:
        return path.exists()
    except OSError:
        return False


def _find_nearest_name(word: str, models: Mapping[str, Model]) -> str | None:
    """Return the name closest to `word`; a model that medley makes needs half of its name."""
    names = {alias: name for name, model in models.items() for alias in model.aliases}
    names |= {
        name: name
        for name, model in models.items()
        if not model.made or (name.startswith(word) and 2 * len(word) > len(name))
    }
    completion = min((name for name in names if name.startswith(word)), key=len, default=None)
    demo_names = [name for name, model in models.items() if model.made]
    if completion is None and (
        similar := difflib.get_close_matches(word, demo_names, n=1, cutoff=_MIN_SIMILARITY)
    ):
        return similar[0]
    prefixes = {name[: len(word) + 1]: name for name in sorted(names, key=len, reverse=True)}
    similar = difflib.get_close_matches(word, names, n=1) or difflib.get_close_matches(word, prefixes, n=1)
    nearest = completion or next((prefixes.get(prefix, prefix) for prefix in similar), None)
    return nearest and names[nearest]


def is_repository(word: str) -> bool:
    """Return whether a word has the form ORG/NAME."""
    return _REPOSITORY_PATTERN.fullmatch(word) is not None


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


def prepare_weights(weights: Weights) -> None:
    """Make the model, or check that the hub has it, before anything slow begins.

    A model of a package is built with an engine's Python: `environment.packaged_model`.
    """
    if weights.model and weights.model.made:
        demo.make_model(weights.model.made, Path(weights.target))
    elif not weights.is_local:
        require_only_on_hub(weights.target)
        hub.require_model(weights.target)
    else:
        require_weights(weights)


def require_weights(weights: Weights) -> None:
    """Raise a Problem for a folder without weights, or one in a repository's place; fetch nothing."""
    if not weights.is_local:
        require_only_on_hub(weights.target)
    if weights.is_local and not weights.is_built and not has_weights(Path(weights.target)):
        raise Problem(
            f"{weights.target} holds no weights",
            cause="it has config.json, which is enough for a plan, and no *.safetensors",
            fix=f"medley plan {shlex.quote(weights.target)}  # or put the weights next to it",
        )
