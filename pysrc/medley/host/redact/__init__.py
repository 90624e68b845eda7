"""Remove names, addresses, serials and secrets from transcripts and logs.

All that leaves the host goes through here: transcripts, reports, results of a bench. `Redactor` is told what
is secret; `named_values` and `shapes` find what nobody could tell, `identities` numbers what must stay
comparable. Each takes time in proportion to the text.
"""

import os
import platform
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from medley import credentials, storage, user
from medley.host.redact.identities import NOBODYS, Identities
from medley.host.redact.named_values import (
    HIDDEN,
    WORDS,
    has_secret_value,
    hide_named,
    is_placeholder,
    is_secret,
)
from medley.host.redact.shapes import hide_shapes, told_values
from medley.transcript import Answer, Transcript
from medley.unusable_file import skip_unusable_file

HostNames = str | tuple[str, ...]
"""A host's name; several where it has several."""
_KEPT = ("token*", "api-key*", "keys/*", "on-event*", "bench-key*")
"""Secrets in medley's state folder."""
_LONGEST_FILE = 64 << 10
_DOMAIN = (
    rf"(?:(?:\.[a-z0-9][a-z0-9-]{{0,62}}){{1,5}}\.(?!(?:{'|'.join(WORDS['hosts']['file_endings'])})(?![\w-]))"
    r"[a-z]{2,63}(?![\w-]))?"
)
"""The rest of a host's full name, under any domain."""
_ADDRESS_PATTERN = re.compile(r"[^\s\"'`;|&<>()$]*[/:@][^\s\"'`;|&<>()$]+")
"""In the user's command for events: a webhook, a login."""

_PATH_OF_ADDRESS_PATTERN = re.compile(r"^(?:[a-z][a-z0-9+.-]*://)?[\w.@:\[\]-]*[\w\]](?=/)")
_LEAST_PATH = 7
"""Characters of a path with its slash: a shorter one, such as /medley, is also a file's."""
_DISTINCT_PATTERN = re.compile(r"[\d_/-]")
"""In a path that is looked for without its slash: a word alone may stand anywhere."""


def redactor_of_host(
    names: Iterable[HostNames] = (), users: Iterable[str] = (), own: Iterable[str] = ()
) -> "Redactor":
    """Return a redactor with what is secret on this host: its name, its user's, its tokens and keys.

    `names` are of further hosts, `users` of users there, and `own` further names of this host.
    """
    users = {*users, user.read_user_name(), user.find_home().name, os.environ.get("SUDO_USER", "")} - NOBODYS
    return Redactor([(platform.node(), *own), *names], users, list(_secrets_of_host()))


def _secrets_of_host() -> Iterator[str]:
    """Yield what medley and the hub keep here, and variables that are called so: a log may show any."""
    from huggingface_hub import constants  # noqa: PLC0415 - 1 ms, and not needed by `medley --help`

    medley_files = (file for pattern in _KEPT for file in sorted(storage.find_state_folder().glob(pattern)))
    user_files = (*sorted(storage.find_config_folder().glob("on-event*")), *_remembered())
    files = (*medley_files, *user_files, Path(constants.HF_TOKEN_PATH))
    texts = [text for file in files if (text := _text(file)) is not None]
    texts += [value for name, value in os.environ.items() if has_secret_value(name, value)]
    for text in texts:
        yield text
        if commands := _text(Path(text)) if text.startswith("/") else None:
            yield from _addresses(commands)
        yield from _addresses(text) if " " in text else ()


def _addresses(commands: str) -> Iterator[str]:
    """Yield the addresses of a command, and the path of each: a server's log shows it without its host."""
    for word in _ADDRESS_PATTERN.findall(commands):
        if not word.startswith("#!"):
            yield word
            path = _PATH_OF_ADDRESS_PATTERN.sub("", word, count=1)
            if path != word and len(path) > _LEAST_PATH:
                yield path
                yield from (path[1:],) if _DISTINCT_PATTERN.search(path[1:]) else ()


def _remembered() -> list[Path]:
    """Return the user's own files with secrets: of --api-key and of --on-event."""
    with skip_unusable_file():
        return credentials.list_secret_files()
    return []


def _text(file: Path) -> str | None:
    try:
        return (
            file.read_text(encoding="utf-8", errors="replace").strip()
            if file.stat().st_size < _LONGEST_FILE
            else None
        )
    except OSError:
        return None


def _build_word_pattern(word: str, *, is_host: bool) -> str:
    """Return the pattern of a name as a word; of a host also between underscores, and with its domain.

    Only a name with a digit or a hyphen may stand between hyphens: `spark` is none in `dgx-spark`.
    """
    neighbors = r"\w-"
    if is_host:
        is_distinct = any(letter.isalpha() for letter in word) and re.search("[0-9-]", word)
        neighbors = "A-Za-z0-9" if is_distinct else "A-Za-z0-9-"
    domain = _DOMAIN if is_host else ""
    return rf"(?<![{neighbors}]){re.escape(word)}(?![{neighbors}]){domain}"


class Redactor:
    """Remembers what each name and number was replaced by: what is equal stays equal from text to text."""

    def __init__(
        self, names: Iterable[HostNames] = (), users: Iterable[str] = (), secrets: Iterable[str] = ()
    ) -> None:
        """Replace these names of hosts and users, and these secrets, wherever they stand as a word."""
        hosts: dict[str, str] = {}
        for host_names in names:
            names_of_host = (host_names,) if isinstance(host_names, str) else host_names
            known = [name.lower() for name in names_of_host if name]
            new = f"host-{len(set(hosts.values())) + 1}"
            called = next((hosts[name] for name in known if name in hosts), new)
            hosts = {**dict.fromkeys(known, called), **hosts}
        self._words = {**{user.lower(): "user" for user in users if user}, **hosts}
        longest_first = sorted(self._words, key=len, reverse=True)
        patterns = (_build_word_pattern(word, is_host=word in hosts) for word in longest_first)
        self._word = re.compile(f"(?i){'|'.join(patterns)}") if self._words else None
        self._told = told_values(secrets)
        self._identities = Identities()

    def transcript(self, answers: Transcript) -> Transcript:
        return {asked: Answer(self.text(answer.text), answer.status) for asked, answer in answers.items()}

    def text(self, text: str) -> str:
        """Return the text without what this one was told, and without what looks like a secret or a name."""
        text = self._identities.replace(self.hide_secrets(text))
        return self._word.sub(self._rename, text) if self._word else text

    def _rename(self, match: re.Match[str]) -> str:
        """Return the new name of a host or user; of `spark-1.lab.example` the first part is known."""
        word = match[0].lower()
        return self._words[word if word in self._words else max(self._list_beginnings(word), key=len)]

    def _list_beginnings(self, word: str) -> list[str]:
        return [name for name in self._words if word.startswith(f"{name}.")]

    def hide_secrets(self, text: str) -> str:
        """Return the text without secrets, prompts and messages; names and addresses stay."""
        if self._told:
            text = self._told.sub(HIDDEN, text)
        return hide_shapes(hide_named(text))

    def table(self, value: Any, *, hidden: bool = False) -> Any:  # noqa: ANN401 - any JSON
        """Return the same with each of its texts redacted, keys too.

        What stands below a key, or behind a flag, whose name says that it is secret is hidden.
        """
        if isinstance(value, str):
            return HIDDEN if hidden and (value.isdecimal() or not is_placeholder(value)) else self.text(value)
        if isinstance(value, Mapping):
            return {
                self.text(name): self.table(part, hidden=hidden or is_secret(name))
                for name, part in value.items()
            }
        return list(self._items(value, hidden=hidden)) if isinstance(value, list | tuple) else value

    def _items(self, words: Iterable[Any], *, hidden: bool) -> Iterator[Any]:
        """Redact the words of a list; in a command a secret stands behind its flag."""
        behind = False
        for word in words:
            is_flag = isinstance(word, str) and word.startswith("-")
            yield self.table(word, hidden=hidden or (behind and not is_flag))
            behind = is_secret(word) if is_flag else behind
