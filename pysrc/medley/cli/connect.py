"""`medley connect`: settings of a client for the running server."""

import json
from pathlib import Path
from typing import Any

from medley import serving, storage
from medley.cli import Verb, flag, group
from medley.cli.output import format_table, print_line, say
from medley.cli.served import RunningServer, ServerChoice
from medley.credentials import API_KEY_VARIABLE
from medley.engine import Tls
from medley.errors import Problem
from medley.serving import client_settings, server_address
from medley.serving.chat_parsers import TOOL_FLAG
from medley.serving.client_settings import Client, Target


class ConnectVerb(Verb):
    USAGE = "    {progname} [OPTIONS] [CLIENT]\n"
    choice: ServerChoice = group(ServerChoice)
    write: bool = flag("--write", "write the files that the client reads, with a backup of each one changed")
    dry_run: bool = flag("--dry-run", "print what --write would write", requires=["--write"])
    as_json: bool = flag("--json", "one JSON object: address, model, limits, files and commands")

    def main(self, *clients: str) -> int:
        if not clients:
            _list(as_json=self.as_json)
            return 0
        client, *more = clients
        if more:
            fix = f"medley connect {client}"
            raise Problem(f"{more[0]!r} is one word too many", cause="connect takes one client", fix=fix)
        known = client_settings.find_client(client)
        if self.write and not known.files:
            raise Problem(
                f"{known.title} has no file to write",
                cause="its settings are typed",
                fix=f"medley connect {client}",
            )
        found = self.choice.find(f"connect {client}")
        target = _target(found, self.choice.key_file)
        for lack in known.list_gaps(target, has_tools=_tools(found)):
            say(lack)
        if target.is_key_exposed:
            say(f"{known.title} will send the key unencrypted to {target.url}: medley serve MODEL --tls")
        filled = known.fill(target)
        if self.write:
            self._write(filled)
        if self.as_json:
            print(json.dumps(_table(filled, target)))
        elif not self.write or self.dry_run:
            _show(filled)
        else:
            print_line(filled.run)
        return 0

    def _write(self, client: Client) -> None:
        for file in client.files:
            path = client_settings.find_path(file, Path.cwd())
            if self.dry_run:
                client_settings.build_text(file, path)
                say(f"would write {path}")
                continue
            lost = client_settings.list_replaced_values(file, path)
            backup = client_settings.write_settings(file, path)
            say(f"wrote {path}" + (f"; the file before it is {backup.name}" if backup else ""))
            if lost:
                say(f"it replaced {', '.join(lost)}")


def _target(found: RunningServer, key_file: str | None) -> Target:
    """Return the server as a client is to use it, with the key by reference."""
    at = found.address
    file = server_address.client_key_file(at, key_file)
    has_key = bool(at.key or (at.record and at.record.key))
    authority = Tls().authority if at.record and at.url.startswith("https:") else None
    return Target(
        at.url,
        found.model,
        found.context,
        found.root,
        file if has_key else None,
        has_key=has_key,
        authority=authority if authority and storage.exists(authority) else None,
    )


def _tools(found: RunningServer) -> bool | None:
    """Whether the server was started with a parser of tool calls; None where this host did not start it."""
    record = found.address.record
    told = serving.read_description(record.port) if record else None
    return any(word.partition("=")[0] == TOOL_FLAG for word in told.argv) if told else None


def _list(*, as_json: bool) -> None:
    known = client_settings.read_clients()
    if as_json:
        print(
            json.dumps(
                [{"name": each.name, "title": each.title, "tried": each.tested} for each in known.values()]
            )
        )
        return
    rows = [(name, each.title, each.files[0].path if each.files else "-") for name, each in known.items()]
    print("\n".join(format_table(("CLIENT", "NAME", "WRITES"), rows)))


def _show(client: Client) -> None:
    for file in client.files:
        print_line(f"# {file.path}\n{file.text}")
    print_line(client.run)


def _table(client: Client, target: Target) -> dict[str, Any]:
    if target.key_file:
        key: dict[str, str] | None = {"file": str(target.key_file)}
    else:
        key = {"variable": API_KEY_VARIABLE} if target.has_key else None
    return {
        "client": client.name,
        "url": target.url,
        "model": target.model,
        "context": target.context,
        "output": target.output_tokens,
        "key": key,
        "files": [{"path": each.path, "text": each.text} for each in client.files],
        "run": client.run,
        "source": client.source,
        "tried": client.tested,
    }
