"""Run extra model code only if the user trusts it, pinned by commit or, for a folder, by SHA-256."""

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from medley import config, json_shape, storage
from medley.command import quote_word
from medley.errors import Problem
from medley.model import hub
from medley.model.remote_code import (
    Code,
    compute_fingerprints,
    list_code_modules,
    read_folder_code,
    read_hub_code,
    read_model_configs,
)
from medley.model.resolve import Weights
from medley.schema import RemoteCode
from medley.values import Value

_FINGERPRINT_PATTERN = re.compile(r"[0-9a-f]{12,64}")
_TRUST_FLAG = "--trust-remote-code"
# Flags with which an engine would read code from elsewhere, or another commit of it; see named_models.py.
_OTHER_SOURCE_FLAGS = (
    *("--revision", "--code-revision", "--tokenizer-revision", "--tokenizer", "--tokenizer-path", "--model"),
    *("--model-path", "--hf-config-path", "--hf-overrides", "--json-model-override-args", "--config"),
)
_MIN_FLAG_CHARS = 5
"""The length of the shortest prefix of these flags that argparse accepts."""


@dataclass(frozen=True)
class Trust:
    """The user's options on a model's own code."""

    is_given: bool = False
    """Whether the user gave --trust-remote-code."""
    pin: str | None = None
    """The commit, or the beginning of a folder's fingerprint."""
    is_refused: bool = False
    """Whether the user gave --no-remote-code."""
    draft_pins: tuple[str, ...] = ()
    """The fingerprints of the code of other models in the command that the user trusts."""


class CodePin(Value):
    """The code that the user trusted; its fields are keys of remote-code.json."""

    commit: str | None
    files: dict[str, str]
    """The SHA-256 of each file by path."""
    when: str
    """The day, as 2026-11-24."""


def require_trusted_code(weights: Weights, trust: Trust, *, is_start: bool) -> Code | None:
    """Return the pinned code to run; None if the model has none. Raise a Problem if it is not trusted.

    `is_start`: whether a server is about to start; then the hub is asked, and the pin is kept.
    """
    table_code = weights.model.remote_code if weights.model else None
    if trust.is_refused or weights.is_built:
        return None
    if not trust.is_given:
        if not _is_code_needless(weights):
            _require_no_code(weights, is_start=is_start)
        return None
    pinned = read_pin(weights.target)
    _require_exact_pin(trust.pin, local=weights.is_local)
    code = _read_code(
        weights, trust.pin or (pinned and pinned.commit) or (table_code.commit if table_code else None)
    )
    if code is not None:
        require_pinned(code, trust.pin, pinned, table_code)
        if is_start:
            keep_pin(code)
    return code


def list_warnings(weights: Weights, trust: Trust) -> Iterator[str]:
    """Yield the warning of a plan that serve is going to refuse."""
    table_code = weights.model.remote_code if weights.model else None
    if trust.is_given or trust.is_refused or _is_code_needless(weights):
        return
    modules = _list_known_modules(weights)
    if modules or table_code:
        names = f" ({', '.join(modules)})" if modules else ""
        yield f"this model has code of its own{names}, and serve runs it only with {_TRUST_FLAG}"


def _is_code_needless(weights: Weights) -> bool:
    """Return whether a table of medley's own says that engines do without this repository's code.

    A table of the user's own does not count: it may come from somebody else, as the repository does.
    """
    table_code = weights.model.remote_code if weights.model else None
    return (
        table_code is not None
        and not table_code.needed
        and any(
            table.repository == weights.target and table.remote_code == table_code
            for table in config.load_shipped_models().values()
        )
    )


def refuse_engine_flags(trust: Trust, engine_words: tuple[str, ...]) -> None:
    """Raise a Problem for flags of the engine that would run code which is not pinned."""
    for word in (engine_word for engine_word in engine_words if engine_word.startswith("-")):
        name = re.split(r"[=.]", word, maxsplit=1)[0].replace("_", "-")
        if (name.startswith("--tr") and _TRUST_FLAG.startswith(name)) or _is_trusting_config(
            name, word, engine_words
        ):
            raise Problem(
                f"{word} after -- would run whatever code the model has now",
                cause="medley runs it only where its commit or its hash is pinned, and shown in the plan",
                fix=f"say it before the --: medley serve MODEL {_TRUST_FLAG}",
            )
        is_prefix = len(name) >= _MIN_FLAG_CHARS and any(
            flag.startswith(name) for flag in _OTHER_SOURCE_FLAGS
        )
        if trust.is_given and (is_prefix or name in _OTHER_SOURCE_FLAGS):
            raise Problem(
                f"{word} cannot go with {_TRUST_FLAG}",
                cause="the engine would read code from elsewhere, or of another commit, than what is pinned",
                fix="leave it out; name the commit before the --: --code-revision COMMIT",
            )


def _is_trusting_config(name: str, word: str, engine_words: tuple[str, ...]) -> bool:
    """Return whether a word names a file of flags with --trust-remote-code in it."""
    if name != "--config":
        return False
    _, separator, value = word.partition("=")
    path = Path(value if separator else next(iter(engine_words[engine_words.index(word) + 1 :]), ""))
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    return "trust-remote-code" in text.replace("_", "-")


def _require_exact_pin(pin: str | None, *, local: bool) -> None:
    pattern, form = hub.COMMIT_PATTERN, "the whole commit, 40 digits: a branch or a tag can be moved"
    if local:
        pattern, form = _FINGERPRINT_PATTERN, "for a folder at least 12 digits of its code's SHA-256"
    if pin is not None and not pattern.fullmatch(pin):
        raise Problem(
            f"--code-revision {pin} pins nothing",
            cause=f"it is {form}",
            fix="leave it out: what is there now is pinned, and shown",
        )


def _require_no_code(weights: Weights, *, is_start: bool) -> None:
    def is_known() -> bool:
        return bool((weights.model and weights.model.remote_code) or _list_known_modules(weights))

    if not (is_start or weights.is_local):
        if is_known():
            raise _build_refusal_problem(weights, "which files it has is seen when it is served", "")
        return
    try:
        code = _read_code(weights, None)
    except Problem as problem:
        if weights.is_local or not is_known():
            raise
        raise _build_refusal_problem(weights, f"{problem.what}: {problem.cause}", "") from problem
    if code is not None:
        # The form of sha256sum.
        listing = (f"{sha256}  {name}" for name, sha256 in sorted(code.files.items()))
        raise _build_refusal_problem(
            weights, "\n".join((code.description, *listing)), f" --code-revision {quote_word(code.pin)}"
        )


def _build_refusal_problem(weights: Weights, cause: str, pin_words: str) -> Problem:
    word = weights.name if weights.model else weights.target
    serve = f"medley serve {shlex.quote(word)}"
    return Problem(
        f"{word} has extra model code, which is not trusted",
        cause=cause,
        fix=f"read it, and to run it: {serve} {_TRUST_FLAG}{pin_words}\n"
        f"or without it, if the engine knows this model by itself: {serve} --no-remote-code",
    )


def require_pinned(
    code: Code, wanted_pin: str | None, pinned: CodePin | None, table_code: RemoteCode | None
) -> None:
    """Raise a Problem unless the code is the one asked for or pinned, with the files in the table.

    `wanted_pin` is a commit or a fingerprint.
    """
    for name, sha256 in (table_code.files if table_code else {}).items():
        if code.files.get(name) != sha256:
            raise Problem(
                f"{name} of {code.where} is not the file that the model's table knows",
                cause=f"the table has SHA-256 {sha256}, and it is {code.files.get(name) or 'missing'}",
                fix="trust it when you know why, with a table of your own for that commit: "
                "docs/reference/tables.md",
            )
    fix = f"read what it is now, and to trust that: {_TRUST_FLAG} --code-revision {quote_word(code.pin)}"
    if wanted_pin and not code.pin.startswith(wanted_pin):
        raise Problem(
            f"the code of {code.where} is not the one that you named",
            cause=f"--code-revision says {wanted_pin}; it is {code.pin}",
            fix=fix,
        )
    if pinned is None or pinned.files == code.files:
        return
    # A commit that the user names may have other files than the pinned one; the pinned commit itself may not.
    if not wanted_pin or (code.commit is not None and code.commit == pinned.commit):
        names = sorted({*pinned.files, *code.files})
        changed = ", ".join(name for name in names if pinned.files.get(name) != code.files.get(name))
        raise Problem(
            f"the code of {code.where} has changed since you trusted it",
            cause=f"on {pinned.when} its SHA-256 was {storage.hash_checksums(pinned.files)}, "
            f"now it is {code.fingerprint}; what differs: {changed}",
            fix=fix,
        )


def read_pin(where: str) -> CodePin | None:
    return _read_pins().get(where)


def find_pinned_folder(target: str) -> Path | None:
    """Return the folder of a model whose code is the one that the user trusts; None for all other models."""
    pin = read_pin(target)
    if pin is None:
        return None
    snapshots = hub.find_repository_folder(target) / "snapshots"
    folder = snapshots / pin.commit if pin.commit else Path(target)
    return folder if compute_fingerprints(folder) == pin.files else None


def keep_pin(code: Code) -> None:
    with storage.lock_file(_find_pins_file().with_suffix(".lock"), on_wait=lambda: None):
        today = datetime.now(UTC).date().isoformat()
        pins = {**_read_pins(), code.where: CodePin(code.commit, dict(code.files), today)}
        storage.write_text(
            _find_pins_file(), json.dumps({where: pin.to_table() for where, pin in pins.items()}, indent=1)
        )


def _read_pins() -> dict[str, CodePin]:
    content = storage.read_bytes(_find_pins_file())
    if content is None:
        return {}
    table = json_shape.parse_object(content)
    if table is None or not json_shape.has_type(table, dict[str, CodePin]):
        raise Problem(
            "the note of the code that you trusted is not whole",
            cause=f"{_find_pins_file()} is torn, as by a power cut or by hand",
            fix=f"mv {_find_pins_file()} {_find_pins_file()}.torn  # then trust each model's code again",
        )
    return {where: CodePin(**pin) for where, pin in table.items()}


def _find_pins_file() -> Path:
    return storage.find_state_folder() / "remote-code.json"


def _read_code(weights: Weights, commit: str | None) -> Code | None:
    return (
        read_folder_code(Path(weights.target)) if weights.is_local else read_hub_code(weights.target, commit)
    )


def _list_known_modules(weights: Weights) -> tuple[str, ...]:
    """List the Python files that its configs on this host name."""
    folders = [Path(weights.target)] if weights.is_local else hub.list_snapshots(weights.target)[:1]
    return tuple(
        name for folder in folders for name in list_code_modules(read_model_configs(folder), weights.target)
    )
