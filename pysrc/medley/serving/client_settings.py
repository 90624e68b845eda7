"""Write a client's settings for a running server, from the templates of `clients.toml`."""

import json
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from medley import config, json_shape, storage, user
from medley.credentials import API_KEY_VARIABLE, NONE
from medley.errors import Problem, in_words
from medley.network import http_client
from medley.network.tcp import is_loopback

Format = Literal["text", "json"]
_USUAL_CONTEXT = 8192
# A quarter of the context for an answer, as agents with a large context ask for at most.
_OUTPUT_SHARE, _MOST_OUTPUT = 4, 32_000
_TRUST_VARIABLES = ("CURL_CA_BUNDLE", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
_MARK = re.compile(r"@([A-Z_]+)@")


@dataclass(frozen=True)
class Target:
    """The server that a client is to use."""

    url: str
    """It ends in /v1."""
    model: str
    context: int | None = None
    """The longest sequence, in tokens."""
    tokenizer: str | None = None
    """The folder or repository of the model."""
    key_file: Path | None = None
    has_key: bool = False
    """Whether requests need a key; without a file it is in MEDLEY_API_KEY."""
    authority: Path | None = None
    """The certificate that the client must trust, for a server with TLS of medley's own authority."""

    @property
    def shows_key(self) -> bool:
        """Whether a request takes the key over a network without encryption."""
        where = http_client.parse_url(self.url)
        return self.has_key and where.scheme != "https" and not is_loopback(where.host)

    @property
    def context_tokens(self) -> int:
        return self.context or _USUAL_CONTEXT

    @property
    def output_tokens(self) -> int:
        """The longest answer to ask for: a quarter of the context, 32,000 tokens at most."""
        return min(self.context_tokens // _OUTPUT_SHARE, _MOST_OUTPUT)

    @property
    def key_command(self) -> str:
        """A command that prints the key; settings never hold the key itself."""
        if self.key_file:
            return f"cat {shlex.quote(str(self.key_file))}"
        return f"printenv {API_KEY_VARIABLE}" if self.has_key else f"echo {NONE}"

    def words(self) -> Mapping[str, str]:
        """Return what stands for each mark of a template, before it is quoted."""
        return {
            "URL": self.url,
            "ROOT": self.url.removesuffix("/v1"),
            "MODEL": self.model,
            "CONTEXT": str(self.context_tokens),
            "OUTPUT": str(self.output_tokens),
            "KEY_COMMAND": self.key_command,
            "TOKENIZER": self.tokenizer or self.model,
        }


@dataclass(frozen=True)
class SettingsFile:
    """A file of a client's settings."""

    path: str
    """Below the home or the current folder."""
    text: str
    format: Format = "text"
    is_shared: bool = False
    """Whether it also has settings that are not medley's, which a text would replace."""


@dataclass(frozen=True)
class Client:
    """A client, the files that it reads, and what to type."""

    name: str
    title: str
    source: str
    """Where its settings are documented."""
    tried: str
    """The version that was tried, and what it did; empty: not tried."""
    run: str
    files: tuple[SettingsFile, ...] = ()
    needs_tools: bool = False
    least_context: int = 0
    """Tokens that its own instructions and tools take before it works."""

    def filled(self, target: Target) -> "Client":
        """Return it with the words of this server in its templates."""
        files = tuple(replace(each, text=_filled(each.text, target, _inside_quotes)) for each in self.files)
        is_python = "python -" in self.run
        run = _filled(self.run, target, _inside_quotes if is_python else _shell_word)
        if target.authority:
            run = f"{_trust(target.authority)}\n{run}"
        return Client(self.name, self.title, self.source, self.tried, run, files)

    def lacks(self, target: Target, *, tools: bool | None) -> list[str]:
        """Return what of this server is too little for it; `tools`: whether its model calls any, if known."""
        found = []
        if self.needs_tools and tools is False:
            found.append(f"{self.title} needs a model that calls tools, and {target.model} calls none")
        if target.context and target.context < self.least_context:
            found.append(
                f"{self.title} needs a context of about {self.least_context:,} tokens, and this server's is "
                f"{target.context:,}: medley serve MODEL --context {self.least_context}"
            )
        return found


def _trust(authority: Path) -> str:
    """Return the command by which programs of curl, Python and Node trust this certificate, too."""
    file = shlex.quote(str(authority))
    return "export " + " ".join(f"{name}={file}" for name in _TRUST_VARIABLES)


def clients() -> dict[str, Client]:
    """Return the clients of `clients.toml` by name."""
    tables = config.read_own_table(__file__, "clients.toml")
    return {name: _client(name, table) for name, table in tables.items()}


def named(name: str) -> Client:
    """Return a client; a Problem for an unknown name."""
    known = clients()
    if name in known:
        return known[name]
    raise Problem(
        f"there are no settings for {name!r}",
        cause=f"medley knows {', '.join(known)}",
        fix="medley connect openai  # any other client of OpenAI's API takes the same address, key and model",
    )


def merged(own: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table with another's values, table by table."""
    found = dict(own)
    for key, value in new.items():
        before = found.get(key)
        found[key] = merged(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return found


def replaced(own: Mapping[str, Any], new: Mapping[str, Any], at: str = "") -> list[str]:
    """Return the values of a table that another replaces, each with its place: `model: "a"`."""
    found = []
    for key, value in new.items():
        before = own.get(key)
        if isinstance(before, dict) and isinstance(value, dict):
            found += replaced(before, value, f"{at}{key}.")
        elif key in own and before != value:
            found.append(f"{at}{key}: {json.dumps(before)}")
    return found


def replaced_values(file: SettingsFile, path: Path) -> list[str]:
    """Return the values of the user's file that writing replaces; empty for a file of medley's own."""
    if file.format != "json" or not path.exists():
        return []
    own = json_shape.table(path.read_bytes())
    return replaced(own, json.loads(file.text)) if own else []


def written_text(file: SettingsFile, path: Path) -> str:
    """Return what a file will hold: JSON is merged into the user's, a text replaces medley's own."""
    if not path.exists():
        return file.text
    if file.format != "json":
        if file.is_shared and path.read_text(encoding="utf-8", errors="replace") != file.text:
            raise _not_ours(path, "it has other settings, which medley would replace")
        return file.text
    try:
        own = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _not_ours(path, in_words(error)) from error
    if not isinstance(own, dict):
        raise _not_ours(path, "it is not a table")
    whole = merged(own, json.loads(file.text))
    if whole == own:
        return path.read_text(encoding="utf-8")
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def write(file: SettingsFile, path: Path) -> Path | None:
    """Write a client's file; return the backup of the one before, if it differed."""
    text = written_text(file, path)
    try:
        before = path.read_text(encoding="utf-8") if path.exists() else None
        if before == text:
            return None
        # It may hold the key of another provider.
        is_private = before is not None and not path.stat().st_mode & 0o077
        backup = None
        if before is not None:
            backup = _backup(path)
            storage.write(backup, before, secret=is_private)
        storage.write(path, text, secret=is_private)
    except (OSError, UnicodeDecodeError) as error:
        raise Problem(
            f"{path} cannot be written",
            cause=in_words(error),
            fix="print the settings instead: leave --write out",
        ) from error
    return backup


def place(file: SettingsFile, folder: Path) -> Path:
    """Return where a file goes: below the home, or below this folder."""
    path = user.expand(file.path)
    return path if path.is_absolute() else folder / path


def _backup(path: Path) -> Path:
    """Return a name for a backup that no file has."""
    number = 1
    while (found := path.with_name(f"{path.name}.{number}.bak")).exists():
        number += 1
    return found


def _client(name: str, table: Mapping[str, Any]) -> Client:
    files = tuple(
        SettingsFile(
            each["path"], each["text"].lstrip("\n"), each.get("format", "text"), each.get("shared", False)
        )
        for each in table.get("files", ())
    )
    return Client(
        name,
        table["title"],
        table["source"],
        table["tried"],
        table["run"].strip("\n"),
        files,
        table.get("tools", False),
        table.get("least_context", 0),
    )


def _filled(text: str, target: Target, quote: Callable[[str], str]) -> str:
    words = target.words()
    body = {"model": target.model, "messages": [{"role": "user", "content": "Hello"}]}
    reference = (
        f"${API_KEY_VARIABLE}" if target.has_key and not target.key_file else f"$({target.key_command})"
    )
    shell = f'"{reference}"' if target.has_key else NONE
    raw = {
        "PIPE_KEY": http_client.pipe_bearer(reference) if target.has_key else "",
        "PIPED_KEY": "-H @- " if target.has_key else "",
        "EXPORT_KEY": f"export {API_KEY_VARIABLE}={shell}"
        if target.key_file or not target.has_key
        else f"# {API_KEY_VARIABLE} is set",
        "CHAT": shlex.quote(json.dumps(body)),
    }
    return _MARK.sub(lambda mark: raw[mark[1]] if mark[1] in raw else quote(words[mark[1]]), text)


def _shell_word(word: str) -> str:
    """Quote a word on one line, also for a comment, which a model's name with a newline would end."""
    if word.isprintable():
        return shlex.quote(word)
    plain = (
        letter if letter.isprintable() and letter not in "'\\" else f"\\U{ord(letter):08x}" for letter in word
    )
    return f"$'{''.join(plain)}'"


def _inside_quotes(word: str) -> str:
    """Return a word as it stands between the double quotes of JSON, TOML, YAML and Python."""
    return json.dumps(word, ensure_ascii=False)[1:-1]


def _not_ours(path: Path, cause: str) -> Problem:
    return Problem(
        f"medley does not write {path}",
        cause=cause,
        fix="print the settings, and add them by hand: leave --write out",
    )
