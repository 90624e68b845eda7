"""Find the address of a server: the socket of one on this host, else the URL with its key."""

import os
from pathlib import Path

from medley import credentials
from medley.cluster.remote import Server
from medley.credentials import API_KEY_VARIABLE
from medley.errors import Problem
from medley.network import http_client
from medley.network.tcp import is_loopback
from medley.serving import api, server_records
from medley.values import Value

URL_VARIABLE = "MEDLEY_URL"


class ServerAddress(Value):
    """The address of a server, with the key that it needs."""

    url: str
    """The URL that clients use."""
    local_url: str
    """The URL that medley uses: that of its socket, if this user runs it on this host."""
    key: str | None = None
    record: Server | None = None
    """Its record, if this host runs it."""


def build_local_address(server: Server) -> ServerAddress:
    """Return the address of a server of this host, whose socket needs no key."""
    return ServerAddress(server.url, server.local_url, None, server)


def find_address(url: str, key_file: str | None, *, is_insecure: bool) -> ServerAddress:
    """Return the address and key of the server at a base URL; refuse to send a key unencrypted."""
    parsed_url = http_client.parse_url(url)
    record = (
        server_records.find_server(parsed_url.port)
        if parsed_url.port and http_client.is_this_host(parsed_url.host)
        else None
    )
    if record:
        return ServerAddress(url, record.local_url, None, record)
    is_local = is_loopback(parsed_url.host)
    source = key_file or API_KEY_VARIABLE
    if key_file:
        key: str | None = credentials.read_api_key(file := credentials.require_key(key_file))
        credentials.remember_secret(file)
    else:
        key = _read_environment_key(url, is_local=is_local)
    if key and parsed_url.scheme != "https" and not (is_local or is_insecure):
        raise Problem(
            f"the API key would travel to {parsed_url.host} unencrypted",
            cause=f"{url} is not https, so anyone on the network between could read the key of {source}",
            fix=f"serve there with --tls, then: --url {parsed_url.copy_with(scheme='https')}; or, "
            "on a network that you trust: --insecure",
        )
    return ServerAddress(url, url, key)


def _read_environment_key(url: str, *, is_local: bool) -> str | None:
    """Return the key of MEDLEY_API_KEY where it belongs to this URL.

    It belongs to the server that MEDLEY_URL names, else to any server of another host. On a loopback address
    any user of this host can listen.
    """
    key, named_url = os.environ.get(API_KEY_VARIABLE), os.environ.get(URL_VARIABLE)
    if not key:
        return None
    is_for_url = api.complete_url(named_url) == url if named_url else not is_local
    return key if is_for_url else None


def find_client_key_file(address: ServerAddress, key_file: str | None) -> Path | None:
    """Return the file of the key that another client of the server needs; None without a key."""
    if key_file:
        return credentials.require_key(key_file)
    if address.record:
        return credentials.choose_client_key_file(Path(address.record.key)) if address.record.key else None
    return None
