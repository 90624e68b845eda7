"""Run extra model code only if the user trusts it, pinned by commit or, for a folder, by SHA-256."""

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from medley import json_shape, storage
from medley.errors import Problem
from medley.model import hub
from medley.model.remote_code import Code, code_modules, folder_code, hub_code, model_configs
from medley.model.resolve import Weights
from medley.schema import RemoteCode

_COMMIT = re.compile(r"[0-9a-f]{40}")
_FINGERPRINT = re.compile(r"[0-9a-f]{12,64}")
_SWITCH = "--trust-remote-code"
# What an engine would read code from, or another commit of it, behind our back.
_OTHERS = (
    *("--revision", "--code-revision", "--tokenizer-revision", "--tokenizer", "--tokenizer-path", "--model"),
    *("--model-path", "--hf-config-path", "--hf-overrides", "--json-model-override-args", "--config"),
    *("--speculative-config", "-sc", "--speculative-draft-model-path", "--speculative-draft-model"),
)
_SHORTEST = 5
"""Shortest prefix of these flags that argparse accepts."""


@dataclass(frozen=True)
class Trust:
    given: bool = False
    pin: str | None = None
    """The commit, or the beginning of a folder's fingerprint."""
    refused: bool = False


@dataclass(frozen=True)
class CodePin:
    commit: str | None
    files: dict[str, str]
    when: str


def trusted(found: Weights, trust: Trust, *, starts: bool) -> Code | None:
    """Return the pinned code to run, or None; a Problem if it is not trusted. `starts` asks the hub."""
    listed = found.model.remote_code if found.model else None
    if trust.refused or found.is_built:
        return None
    if not trust.given:
        if listed is None or listed.needed:
            _require_no_code(found, starts=starts)
        return None
    pinned = read_pin(found.target)
    _require_exact(trust.pin, local=found.local)
    code = _code(found, trust.pin or (pinned and pinned.commit) or (listed.commit if listed else None))
    if code is not None:
        require_pinned(code, trust.pin, pinned, listed)
        if starts:
            keep_pin(code)
    return code


def warning(found: Weights, trust: Trust) -> Iterator[str]:
    """Warn in a plan that serve is going to refuse."""
    listed = found.model.remote_code if found.model else None
    if trust.given or trust.refused or (listed and not listed.needed):
        return
    known = _known_modules(found)
    if known or listed:
        names = f" ({', '.join(known)})" if known else ""
        yield f"this model has code of its own{names}, and serve runs it only with {_SWITCH}"


def require_through_us(trust: Trust, extra: tuple[str, ...]) -> None:
    """Refuse flags of the engine that would let code run that nobody has pinned."""
    for word in (each for each in extra if each.startswith("-")):
        name = re.split(r"[=.]", word, maxsplit=1)[0].replace("_", "-")
        if (name.startswith("--tr") and _SWITCH.startswith(name)) or _trusting(name, word, extra):
            raise Problem(
                f"{word} after -- would run whatever code the model has now",
                cause="medley runs it only where its commit or its hash is pinned, and shown in the plan",
                fix=f"say it before the --: medley serve MODEL {_SWITCH}",
            )
        begins = len(name) >= _SHORTEST and any(each.startswith(name) for each in _OTHERS)
        if trust.given and (begins or name in _OTHERS):
            raise Problem(
                f"{word} cannot go with {_SWITCH}",
                cause="the engine would read code from elsewhere, or of another commit, than what is pinned",
                fix="leave it out; name the commit before the --: --code-revision COMMIT",
            )


def _trusting(name: str, word: str, extra: tuple[str, ...]) -> bool:
    """Check for a file of flags with --trust-remote-code in it."""
    if name != "--config":
        return False
    _, given, value = word.partition("=")
    path = Path(value if given else next(iter(extra[extra.index(word) + 1 :]), ""))
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    return "trust-remote-code" in text.replace("_", "-")


def _require_exact(given: str | None, *, local: bool) -> None:
    right, what = (
        (_FINGERPRINT, "for a folder at least 12 digits of its code's SHA-256")
        if local
        else (_COMMIT, "the whole commit, 40 digits: a branch or a tag can be moved")
    )
    if given is not None and not right.fullmatch(given):
        raise Problem(
            f"--code-revision {given} pins nothing",
            cause=f"it is {what}",
            fix="leave it out: what is there now is pinned, and shown",
        )


def _require_no_code(found: Weights, *, starts: bool) -> None:
    def is_known() -> bool:
        return bool((found.model and found.model.remote_code) or _known_modules(found))

    if not (starts or found.local):
        if is_known():
            raise _refusal(found, "which files it has is seen when it is served", "")
        return
    try:
        code = _code(found, None)
    except Problem as problem:
        if found.local or not is_known():
            raise
        raise _refusal(found, f"{problem.what}: {problem.cause}", "") from problem
    if code is not None:
        listing = (f"{each}  {name}" for name, each in sorted(code.files.items()))  # as sha256sum prints them
        raise _refusal(found, "\n".join((code.named, *listing)), f" --code-revision {code.pin}")


def _refusal(found: Weights, cause: str, pinned: str) -> Problem:
    typed = found.name if found.model else found.target
    return Problem(
        f"{typed} has extra model code, which is not trusted",
        cause=cause,
        fix=f"read it, and to run it: medley serve {typed} {_SWITCH}{pinned}\n"
        f"or without it, if the engine knows this model by itself: medley serve {typed} --no-remote-code",
    )


def require_pinned(code: Code, asked: str | None, pinned: CodePin | None, listed: RemoteCode | None) -> None:
    """Require the code asked for (commit or fingerprint) or pinned, and the files in the table."""
    for name, known in (listed.files if listed else {}).items():
        if code.files.get(name) != known:
            raise Problem(
                f"{name} of {code.where} is not the file that the model's table knows",
                cause=f"the table has SHA-256 {known}, and it is {code.files.get(name) or 'missing'}",
                fix="trust it when you know why, with a table of your own for that commit: "
                "docs/reference/tables.md",
            )
    look = f"read what it is now, and to trust that: {_SWITCH} --code-revision {code.pin}"
    if asked and not code.pin.startswith(asked):
        raise Problem(
            f"the code of {code.where} is not the one that you named",
            cause=f"--code-revision says {asked}; it is {code.pin}",
            fix=look,
        )
    if pinned is None or pinned.files == code.files:
        return
    # Another commit that was asked for is another code; one and the same commit is not.
    if not asked or (code.commit is not None and code.commit == pinned.commit):
        every = sorted({*pinned.files, *code.files})
        differ = ", ".join(name for name in every if pinned.files.get(name) != code.files.get(name))
        raise Problem(
            f"the code of {code.where} has changed since you trusted it",
            cause=f"on {pinned.when} its SHA-256 was {storage.hash_all(pinned.files)}, "
            f"now it is {code.fingerprint}; what differs: {differ}",
            fix=look,
        )


def read_pin(where: str) -> CodePin | None:
    return _pins().get(where)


def keep_pin(code: Code) -> None:
    with storage.lock(_file().with_suffix(".lock"), waits=lambda: None):
        today = datetime.now(UTC).date().isoformat()
        pins = {**_pins(), code.where: CodePin(code.commit, dict(code.files), today)}
        storage.write(_file(), json.dumps({where: asdict(pin) for where, pin in pins.items()}, indent=1))


def _pins() -> dict[str, CodePin]:
    content = storage.read_bytes(_file())
    if content is None:
        return {}
    found = json_shape.table(content)
    if found is None or not json_shape.fits(found, dict[str, CodePin]):
        raise Problem(
            "the note of the code that you trusted is not whole",
            cause=f"{_file()} is torn, as by a power cut or by hand",
            fix=f"mv {_file()} {_file()}.torn  # then trust each model's code again",
        )
    return {where: CodePin(**pin) for where, pin in found.items()}


def _file() -> Path:
    return storage.state() / "remote-code.json"


def _code(found: Weights, commit: str | None) -> Code | None:
    return folder_code(Path(found.target)) if found.local else hub_code(found.target, commit)


def _known_modules(found: Weights) -> tuple[str, ...]:
    """List the Python files that its configs on this host name."""
    folders = [Path(found.target)] if found.local else hub.snapshots(found.target)[:1]
    return tuple(name for each in folders for name in code_modules(model_configs(each), found.target))
