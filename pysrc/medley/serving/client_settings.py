"""Write a client's settings for a running server, from the templates of `clients.toml`."""

import json
import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from medley import config, json_shape, storage, user
from medley.command import quote_path
from medley.credentials import API_KEY_VARIABLE, NONE
from medley.errors import Problem, describe_error
from medley.network import http_client
from medley.network.tcp import is_loopback
from medley.values import Value

FileFormat = Literal["text", "json"]
_ASSUMED_CONTEXT_TOKENS = 8192
"""The context of a server that reports none."""
# An answer has a quarter of the context; agents with a large context request at most 32,000 tokens.
_OUTPUT_DIVISOR, _MAX_OUTPUT_TOKENS = 4, 32_000
_TRUST_VARIABLES = ("CURL_CA_BUNDLE", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
_PLAIN_NAME_PATTERN = re.compile(r"[\w./][\w ./:@+()-]*")
"""A name that no client changes: no brace, dollar, backtick, comma, quote, newline or equals sign."""
_TEMPLATE_MARK_PATTERN = re.compile(r"@([A-Z_]+)@")


class ServerConnection(Value):
    """The address, model and key of the server that a client will use."""

    url: str
    """The base URL, which ends in /v1."""
    model: str
    context_limit_tokens: int | None = None
    """The longest sequence, in tokens."""
    tokenizer: str | None = None
    """The folder or repository of the model."""
    key_file: Path | None = None
    has_key: bool = False
    """Whether requests need a key; without a file it is in MEDLEY_API_KEY."""
    authority: Path | None = None
    """The certificate that the client must trust, for a server with TLS of medley's own authority."""

    @property
    def is_key_exposed(self) -> bool:
        """Whether a request sends the key over a network without encryption."""
        server_url = http_client.parse_url(self.url)
        return self.has_key and server_url.scheme != "https" and not is_loopback(server_url.host)

    @property
    def context_tokens(self) -> int:
        return self.context_limit_tokens or _ASSUMED_CONTEXT_TOKENS

    @property
    def output_tokens(self) -> int:
        """The longest answer to ask for: a quarter of the context, 32,000 tokens at most."""
        return min(self.context_tokens // _OUTPUT_DIVISOR, _MAX_OUTPUT_TOKENS)

    @property
    def key_command(self) -> str:
        """A command that prints the key; settings never hold the key itself."""
        if self.key_file:
            return f"cat {quote_path(self.key_file)}"
        return f"printenv {API_KEY_VARIABLE}" if self.has_key else f"echo {NONE}"

    def build_template_values(self) -> Mapping[str, str]:
        """Return the value of each mark of a template, before it is quoted."""
        return {
            "URL": self.url,
            "ROOT": self.url.removesuffix("/v1"),
            "MODEL": self.model,
            "CONTEXT": str(self.context_tokens),
            "OUTPUT": str(self.output_tokens),
            "KEY_COMMAND": self.key_command,
            "TOKENIZER": self.tokenizer or self.model,
        }


class SettingsFile(Value):
    """A file of a client's settings."""

    path: str
    """The path, below the home (`~`) or the current folder."""
    text: str
    format: FileFormat = "text"
    is_shared: bool = False
    """Whether the file may also hold settings of the user, so that a text file must not be replaced."""


class Client(Value):
    """A client program of the API: its settings files, and the command that starts it."""

    name: str
    title: str
    source: str
    """The page that documents its settings."""
    tested: str
    """The version that was tested, with the result; empty: not tested."""
    command: str
    """The shell command that starts it."""
    files: tuple[SettingsFile, ...] = ()
    needs_tools: bool = False
    min_context_tokens: int = 0
    """Tokens that its own instructions and tools take before it works."""

    def fill_templates(self, server: ServerConnection) -> "Client":
        """Return the client with this server's values in its templates; refuse an unsafe name."""
        self._require_plain_names(server)
        files = tuple(
            file.replace(text=_fill_template(file.text, server, _escape_for_quotes)) for file in self.files
        )
        is_python = "python -" in self.command
        run = _fill_template(self.command, server, _escape_for_quotes if is_python else _quote_shell_word)
        if server.authority:
            run = f"{_format_trust_command(server.authority)}\n{run}"
        return Client(self.name, self.title, self.source, self.tested, run, files)

    def _require_plain_names(self, server: ServerConnection) -> None:
        """Raise a Problem for a name that the client could expand.

        A server chooses the names. opencode replaces {file:PATH} and {env:NAME} in its settings, Continue
        replaces ${{ secrets.NAME }}, and GuideLLM takes a comma for the next of its options.
        """
        text = "".join((self.command, *(file.text for file in self.files)))
        for mark, title in (("MODEL", "model"), ("TOKENIZER", "tokenizer")):
            name = server.build_template_values()[mark]
            if f"@{mark}@" in text and not _PLAIN_NAME_PATTERN.fullmatch(name):
                raise Problem(
                    f"{self.title} cannot take {name!r} as a {title}",
                    cause=f"the server at {server.url} chose this name, and clients expand signs in it",
                    fix="serve it under a plain name: medley serve MODEL --served-model-name NAME",
                )

    def list_gaps(self, server: ServerConnection, *, has_tools: bool | None) -> list[str]:
        """Return a sentence per gap of the server; `has_tools`: whether its model calls tools, if known."""
        gaps = []
        if self.needs_tools and has_tools is False:
            gaps.append(f"{self.title} needs a model that calls tools, and {server.model} calls none")
        if server.context_limit_tokens and server.context_limit_tokens < self.min_context_tokens:
            fix = f"medley serve MODEL --context {self.min_context_tokens}"
            gaps.append(
                f"{self.title} needs a context of about {self.min_context_tokens:,} tokens, and this "
                f"server's is {server.context_limit_tokens:,}: {fix}"
            )
        return gaps


def _format_trust_command(authority: Path) -> str:
    """Return the command that makes curl, Python and Node trust this certificate too."""
    file = quote_path(authority)
    return "export " + " ".join(f"{name}={file}" for name in _TRUST_VARIABLES)


def read_clients() -> dict[str, Client]:
    """Return the clients of `clients.toml` by name."""
    tables = config.read_module_table(__file__, "clients.toml")
    return {name: _build_client(name, table) for name, table in tables.items()}


def find_client(name: str) -> Client:
    """Return a client; raise a Problem for an unknown name."""
    known_clients = read_clients()
    if name in known_clients:
        return known_clients[name]
    raise Problem(
        f"there are no settings for {name!r}",
        cause=f"medley knows {', '.join(known_clients)}",
        fix="medley connect openai  # any other client of OpenAI's API takes the same address, key and model",
    )


def merge_tables(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table with another's values, table by table."""
    table = dict(old)
    for key, value in new.items():
        old_value = table.get(key)
        table[key] = (
            merge_tables(old_value, value)
            if isinstance(old_value, dict) and isinstance(value, dict)
            else value
        )
    return table


def describe_replaced_keys(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Return a line with the old value of each key that the new table changes: `model: "a"`."""
    lines = []
    for key, value in new.items():
        old_value = old.get(key)
        if isinstance(old_value, dict) and isinstance(value, dict):
            lines += describe_replaced_keys(old_value, value, f"{prefix}{key}.")
        elif key in old and old_value != value:
            lines.append(f"{prefix}{key}: {json.dumps(old_value)}")
    return lines


def describe_replaced_settings(file: SettingsFile, path: Path) -> list[str]:
    """Return a line for each of the user's values that writing the file replaces."""
    if file.format != "json" or not path.exists():
        return []
    old = json_shape.parse_object(path.read_bytes())
    return describe_replaced_keys(old, json.loads(file.text)) if old else []


def build_text(file: SettingsFile, path: Path) -> str:
    """Return the file's new text: JSON is merged into the user's, a text replaces medley's own."""
    if not path.exists():
        return file.text
    if file.format != "json":
        if file.is_shared and path.read_text(encoding="utf-8", errors="replace") != file.text:
            raise _not_written_problem(path, "it has other settings, which medley would replace")
        return file.text
    try:
        old = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _not_written_problem(path, describe_error(error)) from error
    if not isinstance(old, dict):
        raise _not_written_problem(path, "it is not a table")
    merged = merge_tables(old, json.loads(file.text))
    if merged == old:
        return path.read_text(encoding="utf-8")
    return json.dumps(merged, indent=2, ensure_ascii=False) + "\n"


def write_settings(file: SettingsFile, path: Path) -> Path | None:
    """Write a client's file; return the backup of the one before, if it differed."""
    text = build_text(file, path)
    try:
        old_text = path.read_text(encoding="utf-8") if path.exists() else None
        if old_text == text:
            return None
        # The file may hold the key of another provider.
        mode = 0o600 if old_text is None else path.stat().st_mode & 0o777
        backup = None
        if old_text is not None:
            backup = _choose_backup_path(path)
            _write_with_mode(backup, old_text, mode)
        _write_with_mode(path, text, mode)
    except (OSError, UnicodeDecodeError) as error:
        raise Problem(
            f"{path} cannot be written",
            cause=describe_error(error),
            fix="print the settings instead: leave --write out",
        ) from error
    return backup


def _write_with_mode(path: Path, text: str, mode: int) -> None:
    """Write a file that is never open to more users than its mode allows."""
    storage.write_text(path, text, secret=True)
    path.chmod(mode)


def resolve_settings_path(file: SettingsFile, folder: Path) -> Path:
    """Return the path of a settings file: below the home, or below this folder."""
    path = user.expand_home(file.path)
    return path if path.is_absolute() else folder / path


def _choose_backup_path(path: Path) -> Path:
    """Return a name for a backup that no file has."""
    number = 1
    while (backup := path.with_name(f"{path.name}.{number}.bak")).exists():
        number += 1
    return backup


def _build_client(name: str, table: Mapping[str, Any]) -> Client:
    files = tuple(
        SettingsFile(
            entry["path"], entry["text"].lstrip("\n"), entry.get("format", "text"), entry.get("shared", False)
        )
        for entry in table.get("files", ())
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


def _fill_template(text: str, server: ServerConnection, quote: Callable[[str], str]) -> str:
    words = server.build_template_values()
    body = {"model": server.model, "messages": [{"role": "user", "content": "Hello"}]}
    reference = (
        f"${API_KEY_VARIABLE}" if server.has_key and not server.key_file else f"$({server.key_command})"
    )
    shell = f'"{reference}"' if server.has_key else NONE
    raw = {
        "PIPE_KEY": http_client.format_bearer_pipe(reference) if server.has_key else "",
        "PIPED_KEY": "-H @- " if server.has_key else "",
        "EXPORT_KEY": f"export {API_KEY_VARIABLE}={shell}"
        if server.key_file or not server.has_key
        else f"# {API_KEY_VARIABLE} is set",
        "CHAT": shlex.quote(json.dumps(body)),
    }
    return _TEMPLATE_MARK_PATTERN.sub(
        lambda mark: raw[mark[1]] if mark[1] in raw else quote(words[mark[1]]), text
    )


def _quote_shell_word(word: str) -> str:
    """Quote a word on one line, also for a comment, which a model's name with a newline would end."""
    if word.isprintable():
        return shlex.quote(word)
    plain = (
        letter if letter.isprintable() and letter not in "'\\" else f"\\U{ord(letter):08x}" for letter in word
    )
    return f"$'{''.join(plain)}'"


def _escape_for_quotes(word: str) -> str:
    """Return a word as it stands between the double quotes of JSON, TOML, YAML and Python."""
    return json.dumps(word, ensure_ascii=False)[1:-1]


def _not_written_problem(path: Path, cause: str) -> Problem:
    return Problem(
        f"medley does not write {path}",
        cause=cause,
        fix="print the settings, and add them by hand: leave --write out",
    )
