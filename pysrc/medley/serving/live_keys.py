"""Give changed API keys to running servers.

Each server's own loop compares medley's keys with those of its edge. `medley key` reads the accepted keys
from each edge, because only Caddy's own configuration shows whether a change has arrived.
"""

import errno
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from medley import credentials, process
from medley.cluster.remote import Server
from medley.errors import Problem, describe_error
from medley.serving import server_records
from medley.serving.edge import list_accepted_keys
from medley.serving.edge_process import EdgeProcess, request_control
from medley.unusable_file import UnusableFile

KEY_CHANGE_LIMIT_S = 5
_ASK_LIMIT_S = 2
_HOST_ERRORS = {errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE, errno.ETIMEDOUT}
"""Errors of a disk or of the whole host, which pass; any other error is the file's own."""


@dataclass
class LiveKeys:
    """Updates the keys of a running edge after each change of medley's keys."""

    edge: EdgeProcess
    source: Path | None
    """Their file or folder, as `credentials.choose_keys` returned it; those of a file do not change."""
    print_line: Callable[[str], None]
    _reported_texts: set[str] = field(default_factory=set)
    """The texts that were printed before."""

    def check(self) -> None:
        """Apply a change of the keys; call it often. Ignore a file without a key."""
        if self.source != credentials.find_key_folder():
            return
        try:
            keys = credentials.read_keys(self.source, self._get_old_key)
        except (OSError, UnusableFile) as error:  # such as too many open files
            cause = error.cause if isinstance(error, UnusableFile) else describe_error(error)
            self._say_once(f"the API keys cannot be listed, and stay as they were: {cause}")
            return
        if keys != self.edge.settings.keys:
            self.edge.replace_settings(self.edge.settings.replace(keys=keys))
            if self.edge.refusal_cause:  # the edge printed it
                return
            names = ", ".join(keys)
            self.print_line(
                f"requests need one of the keys {names}" if keys else "there are no keys: it refuses all"
            )

    def _get_old_key(self, name: str, problem: Problem) -> str | None:
        """Return the key that this name had, if the host failed to read its file; None to leave it out."""
        error = problem.__cause__
        if isinstance(error, OSError) and error.errno in _HOST_ERRORS:
            self._say_once(f"the key {name} cannot be read, and stays as it was: {problem.cause}")
            return (self.edge.settings.keys or {}).get(name)
        self._say_once(f"the key {name} is left out: {problem}")
        return None

    def _say_once(self, text: str) -> None:
        if text not in self._reported_texts:
            self._reported_texts.add(text)
            self.print_line(text)


def request_accepted_keys(server: Server) -> frozenset[str] | None:
    """Return the keys that a server's edge lets in; None where no edge runs. Raises httpx.HTTPError."""
    path = "/config/apps/http/servers/edge/routes"
    try:
        return list_accepted_keys(
            request_control(server.control_socket, "GET", path, limit_s=_ASK_LIMIT_S).json()
        )
    except httpx.ConnectError:
        return None


def list_accepted_keys_by_server() -> list[tuple[Server, frozenset[str]]]:
    """Return the running servers with the keys that each lets in; without those that do not answer."""
    accepted = []
    for server in server_records.list_servers():
        with suppress(httpx.HTTPError):
            accepted.append((server, request_accepted_keys(server) or frozenset()))
    return accepted


def list_servers_with_own_keys() -> list[Server]:
    """Return the running servers that take medley's own keys."""
    return [
        server for server in server_records.list_servers() if server.key == str(credentials.find_key_folder())
    ]


def wait_for_key(key: str) -> list[Server]:
    """Wait until the running servers let a new key in; return those that do not."""
    return _wait_until_current(
        lambda: [
            server
            for server in list_servers_with_own_keys()
            if not _is_current(server, key, is_accepted=True)
        ]
    )


def wait_for_revocation(key: str) -> list[Server]:
    """Wait until no running server lets a key in; return those that still do."""
    return _wait_until_current(
        lambda: [
            server
            for server in server_records.list_servers()
            if not _is_current(server, key, is_accepted=False)
        ]
    )


def _wait_until_current(list_outdated: Callable[[], list[Server]]) -> list[Server]:
    outdated: list[Server] = []

    def is_done() -> bool:
        outdated[:] = list_outdated()
        return not outdated

    process.wait_until(is_done, KEY_CHANGE_LIMIT_S)
    return outdated


def _is_current(server: Server, key: str, *, is_accepted: bool) -> bool:
    """Return whether the edge accepts the key as `is_accepted` has it; True without an edge."""
    try:
        accepted = request_accepted_keys(server)
    except httpx.HTTPError:
        return False
    return accepted is None or (key in accepted) == is_accepted
