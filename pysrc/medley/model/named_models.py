"""Check the other models that an engine's command names: a draft, a tokenizer, another revision."""

import json
import shlex
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from medley import user
from medley.command import quote_word
from medley.errors import Problem
from medley.model import hub
from medley.model.remote_code import (
    CODE_KEY_PATTERN,
    Code,
    read_folder_code,
    read_hub_code,
    read_verifier,
)
from medley.model.resolve import is_repository, require_only_on_hub
from medley.model.trust import Trust
from medley.values import Value

# The flags that name a model, each with the flag of its revision.
_MODEL_FLAGS = {
    "--speculative-draft-model-path": "--speculative-draft-model-revision",
    "--speculative-draft-model": "--speculative-draft-model-revision",
    "--tokenizer": "--tokenizer-revision",
    "--tokenizer-path": None,
    "--hf-config-path": None,
}
_CONFIG_FLAGS = ("--speculative-config", "-sc")
"""The flag of vLLM whose JSON describes a draft, and its short name."""
# The flags that set a key of that JSON.
_KEY_FLAGS = {"--spec-model": "model", "--spec-method": "method"}
_METHODS_WITHOUT_MODEL = {"ngram", "[ngram]", "ngram_gpu", "suffix", "extract_hidden_states", "custom_class"}
"""The methods with which vLLM 0.32.0 loads no model; by the others it loads the target if none is named."""
_NO_VALUES = {"", "None"}
"""The texts that vLLM's flags read as no value."""
_REVISION_FLAGS = ("--revision", "--code-revision", "--tokenizer-revision")
_FLAGS = (
    *(*_KEY_FLAGS, *_MODEL_FLAGS, *_CONFIG_FLAGS, *_REVISION_FLAGS, "--speculative-draft-model-revision"),
)
_MIN_FLAG_CHARS = 5
"""The length of the shortest prefix of these flags that argparse accepts."""
_SHORT_PREFIXES = ("-s",)
"""The prefixes of short names that it accepts."""


class _Setting(NamedTuple):
    """A flag of the above with its value, or one key of it."""

    flag: str
    key: str
    value: str
    config: str = ""
    """The text that differs between two tables of one flag, of which the engine reads only the last."""


class NamedModel(Value):
    """A model that a flag names."""

    flag: str
    name: str
    """A folder, or ORG/NAME."""
    revisions: frozenset[str] = frozenset()
    """All revisions of it and of its code in the command."""


def list_named_models(words: Sequence[str], target: str) -> Iterator[NamedModel]:
    """Yield the models that a command loads besides its own, in either spelling of each flag.

    `target` is the command's own model; it is among them if its draft is loaded from it again.
    """
    settings = list(_list_settings(words))
    for setting in settings:
        if setting.flag in _MODEL_FLAGS:
            revisions = (other.value for other in settings if other.flag == _MODEL_FLAGS[setting.flag])
            yield NamedModel(setting.flag, setting.value, frozenset(revisions))
    yield from _list_drafts(settings, target)


def _list_drafts(settings: Sequence[_Setting], target: str) -> Iterator[NamedModel]:
    """Yield the drafts of each of vLLM's configurations, because only one of several is read.

    It is the target, where none is named and the method needs one.
    """
    shared = [setting for setting in settings if setting.flag in _KEY_FLAGS]
    config_settings = [setting for setting in settings if setting.flag in _CONFIG_FLAGS]
    for config in dict.fromkeys(setting.config for setting in config_settings or shared):
        entries = [*(setting for setting in config_settings if setting.config == config), *shared]
        models = [(entry.flag, entry.value) for entry in entries if entry.key == "model"]
        methods = {entry.value for entry in entries if entry.key == "method"}
        if not models and not (methods and methods <= _METHODS_WITHOUT_MODEL):
            models = [(entries[0].flag, target)]
        revisions = frozenset(entry.value for entry in entries if entry.key in {"revision", "code_revision"})
        for flag, name in models:
            yield NamedModel(flag, target if name in _NO_VALUES else name, revisions)


def require_no_folders(words: Sequence[str], target: str) -> None:
    """Raise a Problem for a repository in the command that an engine here would take from a folder."""
    for model in list_named_models(words, target):
        if is_repository(model.name):
            require_only_on_hub(model.name)


def require_named_models(
    words: Sequence[str], target: str, code: Code | None, trust: Trust, *, is_start: bool
) -> None:
    """Raise a Problem for a model in the command that has a folder's name here, or whose code was not shown.

    `code` is that of the model itself, which the user trusts: the engine then runs the code of every model.
    Without it the engine runs none. `is_start` asks the hub.
    """
    require_no_folders(words, target)
    models = list(list_named_models(words, target))
    if code is None:
        for model in models if not trust.is_refused else ():
            _require_no_code(model, target, is_start=is_start)
        return
    _require_no_verifier(target, code)
    for flag, word in pairwise(("", *words)):
        if CODE_KEY_PATTERN.search(word.encode()):
            raise _build_unchecked_problem(f"{flag} {word[:200]}", "it names code that was not shown")
        if _takes_next_word(flag) and next(_list_settings((word,)), None):
            raise _build_unchecked_problem(
                f"{flag} {word[:200]}", "vLLM reads the second as the first one's value"
            )
    has_tokenizer = any(_MODEL_FLAGS.get(model.flag) == "--tokenizer-revision" for model in models)
    for flag, _, value, _ in _list_settings(words):
        is_of_model = flag in _REVISION_FLAGS and not (has_tokenizer and flag == "--tokenizer-revision")
        if is_of_model and code.commit and value != code.commit:
            raise _build_unchecked_problem(
                f"{flag} {value}", f"the code that you trust is of commit {code.commit}"
            )
    for model in models:
        _require_shown_code(model, target, code, trust, is_start=is_start)


def _require_no_code(model: NamedModel, target: str, *, is_start: bool) -> None:
    """Raise a Problem for another model with code, which the engine would not run."""
    folder = user.expand_home(model.name)
    if model.name == target or (folder.is_dir() and folder.resolve() == Path(target)):
        return
    if folder.is_dir():
        code = read_folder_code(folder.resolve())
    elif is_start and is_repository(model.name):
        code = read_hub_code(model.name, next(iter(model.revisions)) if len(model.revisions) == 1 else None)
    else:
        return
    if code:
        raise Problem(
            f"{model.name} of {model.flag} has extra model code, which is not trusted",
            cause=_list_files(code),
            fix="without that code, if the engine knows this model by itself: "
            f"medley serve {shlex.quote(target)} --no-remote-code",
        )


def _list_files(code: Code) -> str:
    """Return the code's description, and its files in the form of sha256sum."""
    return "\n".join(
        (code.description, *(f"{sha256}  {name}" for name, sha256 in sorted(code.files.items())))
    )


def _require_no_verifier(target: str, code: Code) -> None:
    """Raise a Problem for a draft that names its verifier, which vLLM serves in its place at no commit."""
    verifier = read_verifier(code)
    if verifier is None:
        return
    revision = {"revision": code.commit} if code.commit else {}
    draft = json.dumps({"model": target, **revision, "num_speculative_tokens": 3})
    raise Problem(
        f"{target} is a draft for {verifier[:200]!r}, and cannot go with --trust-remote-code",
        cause=f"its speculators_config names no commit of {verifier[:200]!r}; vLLM would serve that model "
        "and run whatever code it has now",
        fix=f"medley serve {quote_word(verifier)} -- --speculative-config {quote_word(draft)}\n"
        "or without its code, if the engine knows this model by itself: --no-remote-code",
    )


def _require_shown_code(model: NamedModel, target: str, code: Code, trust: Trust, *, is_start: bool) -> None:
    folder = user.expand_home(model.name)
    if folder.is_dir():
        named_code = None if folder.resolve() == Path(target) else read_folder_code(folder.resolve())
    elif model.name == target and model.revisions == {code.commit}:
        named_code = None
    else:
        commit = next(iter(model.revisions), "")
        if len(model.revisions) != 1 or not hub.COMMIT_PATTERN.fullmatch(commit):
            raise Problem(
                f"{model.flag} {model.name} names no commit, and cannot go with --trust-remote-code",
                cause="the engine would run whatever code that repository has now",
                fix="name the 40 digits of its commit next to it: "
                f"{_show_revision(model, (model.name == target and code.commit) or 'COMMIT')}",
            )
        named_code = read_hub_code(model.name, commit) if is_start else None
    if named_code and named_code.fingerprint not in trust.draft_pins:
        raise Problem(
            f"{model.name} of {model.flag} has extra model code, which is not trusted",
            cause=_list_files(named_code),
            fix=f"read it, and to run it too: medley serve {shlex.quote(target)} --trust-remote-code "
            f"--draft-code {named_code.fingerprint}",
        )


def _show_revision(model: NamedModel, commit: str) -> str:
    if flag := _MODEL_FLAGS.get(model.flag):
        return f"{flag} {commit}"
    config = json.dumps({"model": model.name, "revision": commit})
    return f"--speculative-config {quote_word(config)}"


def _build_unchecked_problem(words: str, cause: str) -> Problem:
    return Problem(
        f"{words} cannot go with --trust-remote-code",
        cause=f"{cause}; the engine would run other code than what is pinned",
        fix="take it out of the model's table in models/, or name the commit: --code-revision COMMIT",
    )


def _list_settings(words: Sequence[str]) -> Iterator[_Setting]:
    """Yield each of these flags with a key and its value: --flag VALUE, --flag=VALUE, --flag.key VALUE."""
    for number, (word, next_word) in enumerate(pairwise((*words, ""))):
        name, equals, value = word.partition("=")
        first, _, key = name.partition(".")
        flag = _find_flag(first)
        if flag is None:
            continue
        text = value if equals else next_word
        table = _parse_table(text) if flag in _CONFIG_FLAGS and not key else None
        if table is not None:
            yield _Setting(flag, "", "", str(number))
            for entry_key, entry in table.items():
                yield _Setting(flag, entry_key.replace("-", "_"), str(entry), str(number))
        elif key:
            # vLLM makes one table of all keys after the same spelling of a flag.
            config = first.replace("_", "-")
            yield _Setting(flag, key.replace("-", "_").rstrip("+"), _parse_text(text), config)
        else:
            yield _Setting(flag, _KEY_FLAGS.get(flag, ""), text)


def _takes_next_word(word: str) -> bool:
    """Return whether vLLM takes the next word as this one's value, even if it begins as a flag."""
    return word.startswith("-") and "." in word and "=" not in word


def _find_flag(word: str) -> str | None:
    """Return the whole flag for a word that may use _ or be a prefix, as argparse reads it."""
    name = word.replace("_", "-") if word.startswith("--") else word
    if name in _FLAGS:
        return name
    is_prefix = len(name) >= _MIN_FLAG_CHARS if name.startswith("--") else name in _SHORT_PREFIXES
    return next((flag for flag in _FLAGS if is_prefix and flag.startswith(name)), None)


def _parse_text(text: str) -> str:
    """Return the value of --flag.key as vLLM reads it: JSON where it parses."""
    try:
        return str(json.loads(text))
    except (ValueError, RecursionError):
        return text


def _parse_table(text: str) -> dict[str, object] | None:
    try:
        table = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return table if isinstance(table, dict) else None
