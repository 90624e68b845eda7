"""Trust is what a user says of a model's own code: it is refused, or run as it is pinned."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from medley import hub_code, pin, remote_code
from medley.problem import Problem
from medley.remote_code import Code
from medley.weights import Weights

_SWITCH = "--trust-remote-code"
# What an engine would read code from, or another commit of it, behind our back.
_OTHERS = (
    *("--revision", "--code-revision", "--tokenizer-revision", "--tokenizer", "--tokenizer-path", "--model"),
    *("--model-path", "--hf-config-path", "--hf-overrides", "--json-model-override-args", "--config"),
    *("--speculative-config", "-sc", "--speculative-draft-model-path", "--speculative-draft-model"),
)
_SHORTEST = 5
_COMMIT = re.compile(r"[0-9a-f]{40}")
_FINGERPRINT = re.compile(r"[0-9a-f]{12,64}")


@dataclass(frozen=True)
class Trust:
    given: bool = False
    """The user says so."""
    pin: str | None = None
    """The commit, or the beginning of a folder's fingerprint."""
    refused: bool = False
    """The engine is to do without."""


def require_through_us(trust: Trust, extra: tuple[str, ...]) -> None:
    """A Problem where the engine's own flags would let code run that nobody has pinned."""
    names = {_name(word): word for word in extra if word.startswith("-")}
    for name, word in names.items():
        if (name.startswith("--tr") and _SWITCH.startswith(name)) or _trusting(name, word, extra):
            raise Problem(
                f"{word} after -- would run whatever code the model has now",
                cause="medley runs it only where its commit or its hash is pinned, and shown in the plan",
                fix=f"say it before the --: medley serve MODEL {_SWITCH}",
            )
        if trust.given and _begins(name):
            raise Problem(
                f"{word} cannot go with {_SWITCH}",
                cause="the engine would read code from elsewhere, or of another commit, than what is pinned",
                fix="leave it out; the commit is said before the --: --code-revision COMMIT",
            )


def _trusting(name: str, word: str, extra: tuple[str, ...]) -> bool:
    """Whether it is a file of flags that has the flag."""
    if name != "--config":
        return False
    _, given, value = word.partition("=")
    after = extra[extra.index(word) + 1 :]
    path = Path(value if given else next(iter(after), ""))
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    return "trust-remote-code" in text.replace("_", "-")


def _begins(name: str) -> bool:
    """As argparse, which takes the beginning of a name."""
    return any(name == each or (len(name) >= _SHORTEST and each.startswith(name)) for each in _OTHERS)


def _name(word: str) -> str:
    return re.split(r"[=.]", word, maxsplit=1)[0].replace("_", "-")


def trusted(found: Weights, trust: Trust, *, starts: bool) -> Code | None:
    """The code that an engine is to run, as it is pinned; None where there is none, or is to be none.

    A Problem where nobody trusts it, or where it is not what was trusted. Where an engine `starts`
    the hub is asked whether there is code, and the first use of it is noted.
    """
    listed = found.model.remote_code if found.model else None
    if trust.refused or (found.model and found.model.made):
        return None
    if not trust.given:
        if listed is None or listed.needed:
            _require_none(found, starts=starts)
        return None
    pinned = pin.read(found.target)
    _require_pin(found, trust.pin)
    commit = trust.pin or (pinned and pinned.commit) or (listed and listed.commit)
    code = _code(found, None if found.local else commit or None)
    if code is not None:
        pin.require(code, trust.pin, pinned, listed)
        if starts:
            pin.keep(code)
    return code


def warning(found: Weights, trust: Trust) -> Iterator[str]:
    """What a plan says that asks nobody: serve is going to refuse."""
    listed = found.model.remote_code if found.model else None
    if trust.given or trust.refused or (listed and not listed.needed):
        return
    known = _modules(found)
    if known or listed:
        names = f" ({', '.join(known)})" if known else ""
        yield f"this model has code of its own{names}, and serve runs it only with {_SWITCH}"


def _modules(found: Weights) -> tuple[str, ...]:
    """As far as this host knows."""
    if not found.local:
        return hub_code.in_cache(found.target) or ()
    folder = Path(found.target)
    return remote_code.modules(remote_code.configs(folder), found.target) if folder.is_dir() else ()


def _code(found: Weights, commit: str | None) -> Code | None:
    return remote_code.of_folder(Path(found.target)) if found.local else hub_code.code(found.target, commit)


def _require_none(found: Weights, *, starts: bool) -> None:
    if not (starts or found.local):
        if _wanted(found):
            raise _refusal(found, "which files it has is seen when it is served", "")
        return
    try:
        code = _code(found, None)
    except Problem as problem:
        if found.local or not _wanted(found):
            raise
        raise _refusal(found, f"{problem.what}: {problem.cause}", "") from problem
    if code is not None:
        raise _refusal(found, "\n".join((code.named, *code.lines())), f" --code-revision {code.pin}")


def _wanted(found: Weights) -> bool:
    """Whether it is known here, without asking anybody, that it has code."""
    return bool((found.model and found.model.remote_code) or _modules(found))


def _refusal(found: Weights, cause: str, pinned: str) -> Problem:
    typed = found.name if found.model else found.target
    return Problem(
        f"{typed} has code of its own, and nobody said that it may run",
        cause=cause,
        fix=f"read it, and to run it: medley serve {typed} {_SWITCH}{pinned}\n"
        f"or without it, if the engine knows this model by itself: medley serve {typed} --no-remote-code",
    )


def _require_pin(found: Weights, given: str | None) -> None:
    right, what = (
        (_FINGERPRINT, "for a folder at least 12 digits of its code's SHA-256")
        if found.local
        else (_COMMIT, "the whole commit, 40 digits: a branch or a tag can be moved")
    )
    if given is not None and not right.fullmatch(given):
        raise Problem(
            f"--code-revision {given} pins nothing",
            cause=f"it is {what}",
            fix="leave it out: what is there now is pinned, and shown",
        )
