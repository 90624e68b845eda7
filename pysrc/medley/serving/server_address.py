"""Find how to ask a server: one of this host at its socket, another one with the key for its address."""

import os
from dataclasses import dataclass
from pathlib import Path

from medley import credentials, serving
from medley.cluster.remote import Server
from medley.credentials import API_KEY_VARIABLE
from medley.errors import Problem
from medley.network import http_client
from medley.network.tcp import is_loopback
from medley.serving import api

URL_VARIABLE = "MEDLEY_URL"


@dataclass(frozen=True)
class ServerAddress:
    """Where a server is asked, and with which key."""

    url: str
    """As clients name it."""
    local_url: str
    """Where medley asks it: at its socket, if this user runs it on this host."""
    key: str | None = None
    record: Server | None = None
    """Its record, where this host runs it."""


def address_of(server: Server) -> ServerAddress:
    """Return the address of a server of this host, whose socket needs no key."""
    return ServerAddress(server.url, server.local_url, None, server)


def find_address(url: str, key_file: str | None, *, is_insecure: bool) -> ServerAddress:
    """Return how to ask the server at a base URL; a Problem where that would show its key to others."""
    where = http_client.parse_url(url)
    record = serving.find_server(where.port) if where.port and http_client.is_this_host(where.host) else None
    if record:
        return ServerAddress(url, record.local_url, None, record)
    is_local = is_loopback(where.host)
    source = key_file or API_KEY_VARIABLE
    if key_file:
        key: str | None = credentials.read_api_key(file := credentials.require_key(key_file))
        credentials.remember_secret(file)
    else:
        key = _key_of_environment(url, is_local=is_local)
    if key and where.scheme != "https" and not (is_local or is_insecure):
        raise Problem(
            f"the API key would travel to {where.host} unencrypted",
            cause=f"{url} is not https, so anyone on the network between could read the key of {source}",
            fix=f"serve there with --tls, then: --url {where.copy_with(scheme='https')}; or, on a network "
            "that you trust: --insecure",
        )
    return ServerAddress(url, url, key)


def _key_of_environment(url: str, *, is_local: bool) -> str | None:
    """Return the key of MEDLEY_API_KEY where it belongs to this URL.

    It belongs to the server that MEDLEY_URL names, else to any server of another host. On a loopback address
    any user of this host can listen.
    """
    key, named = os.environ.get(API_KEY_VARIABLE), os.environ.get(URL_VARIABLE)
    if not key:
        return None
    belongs = api.complete_url(named) == url if named else not is_local
    return key if belongs else None


def client_key_file(address: ServerAddress, key_file: str | None) -> Path | None:
    """Return a file of the key for another program that asks the server; None without a key."""
    if key_file:
        return credentials.require_key(key_file)
    if address.record:
        return credentials.key_file(Path(address.record.key)) if address.record.key else None
    return None
