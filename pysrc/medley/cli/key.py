"""`medley key add|list|revoke`."""

import time
from typing import Any

from medley import credentials
from medley.cli import Verb, VerbGroup, flag, switch
from medley.cli.output import format_table, print_message, print_result
from medley.cluster.remote import Server
from medley.errors import Problem


class KeyVerb(VerbGroup):
    """`medley key`, of which each verb is a class below."""


class KeyAddVerb(Verb):
    USAGE = "    {progname} [OPTIONS] NAME\n"
    file: str | None = switch("--file FILE", "file with the key to add [default: a new key]")
    as_json: bool = flag("--json", "one JSON object: name, file, key, servers")

    def main(self, name: str) -> int:
        from medley.serving import live_keys

        file = credentials.add_key(name, self.file)
        key = credentials.read_api_key(file)
        outdated = live_keys.wait_for_key(key)
        up_to_date = [server for server in live_keys.list_servers_with_own_keys() if server not in outdated]
        printed = None if self.file else key
        servers = [
            *_build_server_tables(up_to_date, current=True),
            *_build_server_tables(outdated, current=False),
        ]
        result = {"name": name, "file": str(file), "key": printed, "servers": servers}
        print_result(result, [printed] if printed else [], as_json=self.as_json)
        print_message(f"{file} has the key; accepted by {_format_servers(up_to_date)}")
        return _report_outdated(outdated, f"does not accept the key {name}")


class KeyListVerb(Verb):
    as_json: bool = flag("--json", "one JSON array: name, file, time and servers of each key")

    def main(self) -> None:
        from medley.serving import live_keys

        accepted = live_keys.list_accepted_keys_by_server()
        key_tables: list[dict[str, Any]] = []
        for name, file in credentials.list_medley_keys().items():
            key, added = credentials.read_api_key(file), time.localtime(file.stat().st_mtime)
            servers = [server for server, keys in accepted if key in keys]
            key_table = {
                "name": name,
                "file": str(file),
                "added": time.strftime("%Y-%m-%dT%H:%M:%S%z", added),
            }
            key_tables.append({**key_table, "servers": _build_server_tables(servers, current=True)})
        rows = [
            (table["name"], table["added"][:16].replace("T", " "), _format_places(table["servers"]))
            for table in key_tables
        ]
        lines = (
            format_table(("NAME", "ADDED", "SERVERS"), rows)
            if rows
            else ["there are no keys: medley key add NAME"]
        )
        print_result(key_tables, lines, as_json=self.as_json)


class KeyRevokeVerb(Verb):
    USAGE = "    {progname} [OPTIONS] NAME\n"
    as_json: bool = flag("--json", "one JSON object: name, servers")

    def main(self, name: str) -> int:
        from medley.serving import live_keys

        key = credentials.revoke_key(name)
        outdated = live_keys.wait_for_revocation(key)
        up_to_date = [server for server in live_keys.list_servers_with_own_keys() if server not in outdated]
        servers = [
            *_build_server_tables(up_to_date, current=True),
            *_build_server_tables(outdated, current=False),
        ]
        line = f"the key {name} is revoked; refused by {_format_servers(up_to_date)}"
        print_result({"name": name, "servers": servers}, [line], as_json=self.as_json)
        return _report_outdated(outdated, f"still accepts the key {name}")


def _build_server_tables(servers: list[Server], *, current: bool) -> list[dict[str, Any]]:
    return [{"model": server.model, "port": server.port, "current": current} for server in servers]


def _format_places(servers: list[dict[str, Any]]) -> str:
    return ", ".join(f"{server['model']}:{server['port']}" for server in servers) or "-"


def _format_servers(servers: list[Server]) -> str:
    return ", ".join(f"{server.model} on port {server.port}" for server in servers) or "no running server"


def _report_outdated(outdated: list[Server], mistake: str) -> int:
    """Name each server that did not take the change; return the exit code."""
    from medley.serving import live_keys

    for server in outdated:
        has_own = server.key != str(credentials.find_key_folder())
        print_message(
            Problem(
                f"{server.model} on port {server.port} {mistake}",
                cause=f"its key is that of --api-key {server.key}"
                if has_own
                else f"it did not take the change within {live_keys.KEY_CHANGE_LIMIT_S} s; "
                f"it is {server.state}",
                fix=f"medley logs  # shows why; or serve it again: medley stop --port {server.port}",
            )
        )
    return 1 if outdated else 0
