"""`medley connect`: settings of a client for the running server."""

import json
from pathlib import Path
from typing import Any

from medley import storage
from medley.cli import Verb, flag, group
from medley.cli.output import format_table, print_line, print_message
from medley.cli.served import RunningServer, ServerChoice
from medley.credentials import API_KEY_VARIABLE
from medley.engine.server_spec import Tls
from medley.errors import Problem
from medley.serving import client_settings, server_address, server_description
from medley.serving.chat_parsers import TOOL_FLAG
from medley.serving.client_settings import Client, ServerConnection


class ConnectVerb(Verb):
    USAGE = "    {progname} [OPTIONS] [CLIENT]\n"
    choice: ServerChoice = group(ServerChoice)
    write: bool = flag("--write", "write the files that the client reads, with a backup of each one changed")
    dry_run: bool = flag("--dry-run", "print what --write would write", requires=["--write"])
    as_json: bool = flag("--json", "one JSON object: address, model, limits, files and commands")

    def main(self, *clients: str) -> int:
        if not clients:
            _print_clients(as_json=self.as_json)
            return 0
        client, *other_clients = clients
        if other_clients:
            fix = f"medley connect {client}"
            raise Problem(
                f"{other_clients[0]!r} is one word too many", cause="connect takes one client", fix=fix
            )
        known_client = client_settings.find_client(client)
        if self.write and not known_client.files:
            raise Problem(
                f"{known_client.title} has no file to write",
                cause="its settings are typed",
                fix=f"medley connect {client}",
            )
        server = self.choice.find(f"connect {client}")
        target = _build_target(server, self.choice.key_file)
        for gap in known_client.list_gaps(target, has_tools=_has_tool_parser(server)):
            print_message(gap)
        if target.is_key_exposed:
            risk = f"{known_client.title} will send the key unencrypted to {target.url}"
            print_message(f"{risk}: medley serve MODEL --tls")
        filled_client = known_client.fill_templates(target)
        if self.write:
            self._write_files(filled_client)
        if self.as_json:
            print(json.dumps(_build_table(filled_client, target)))
        elif not self.write or self.dry_run:
            _print_settings(filled_client)
        else:
            print_line(filled_client.command)
        return 0

    def _write_files(self, client: Client) -> None:
        for file in client.files:
            path = client_settings.resolve_settings_path(file, Path.cwd())
            if self.dry_run:
                client_settings.build_text(file, path)
                print_message(f"would write {path}")
                continue
            replaced_values = client_settings.describe_replaced_settings(file, path)
            backup = client_settings.write_settings(file, path)
            print_message(f"wrote {path}" + (f"; the file before it is {backup.name}" if backup else ""))
            if replaced_values:
                print_message(f"it replaced {', '.join(replaced_values)}")


def _build_target(server: RunningServer, key_file: str | None) -> ServerConnection:
    """Return the connection of a client to the server, with the file of the key instead of the key."""
    address = server.address
    file = server_address.find_client_key_file(address, key_file)
    has_key = bool(address.key or (address.record and address.record.key))
    authority = Tls().authority if address.record and address.url.startswith("https:") else None
    return ServerConnection(
        address.url,
        server.model,
        server.context,
        server.root,
        file if has_key else None,
        has_key=has_key,
        authority=authority if authority and storage.exists(authority) else None,
    )


def _has_tool_parser(server: RunningServer) -> bool | None:
    """Return whether the server has a parser of tool calls; None if this host did not start it."""
    record = server.address.record
    description = server_description.read_description(record.port) if record else None
    return any(word.partition("=")[0] == TOOL_FLAG for word in description.argv) if description else None


def _print_clients(*, as_json: bool) -> None:
    clients = client_settings.read_clients()
    if as_json:
        print(
            json.dumps(
                [
                    {"name": client.name, "title": client.title, "tried": client.tested}
                    for client in clients.values()
                ]
            )
        )
        return
    rows = [
        (name, client.title, client.files[0].path if client.files else "-")
        for name, client in clients.items()
    ]
    print("\n".join(format_table(("CLIENT", "NAME", "WRITES"), rows)))


def _print_settings(client: Client) -> None:
    for file in client.files:
        print_line(f"# {file.path}\n{file.text}")
    print_line(client.command)


def _build_table(client: Client, target: ServerConnection) -> dict[str, Any]:
    if target.key_file:
        key: dict[str, str] | None = {"file": str(target.key_file)}
    else:
        key = {"variable": API_KEY_VARIABLE} if target.has_key else None
    return {
        "client": client.name,
        "url": target.url,
        "model": target.model,
        "context": target.context_limit_tokens,
        "output": target.output_tokens,
        "key": key,
        "files": [{"path": file.path, "text": file.text} for file in client.files],
        "run": client.command,
        "source": client.source,
        "tried": client.tested,
    }
