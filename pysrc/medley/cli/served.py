"""Find the server of a verb: the one that the user names, else this host's newest."""

import os
from dataclasses import dataclass
from shlex import quote
from typing import Any

from medley.cli import flag, switch
from medley.cluster import cluster_file, membership
from medley.cluster.fleet import is_this_host
from medley.errors import Problem
from medley.network.ports import API_PORT
from medley.serving import api, server_address, server_records
from medley.serving.server_address import ServerAddress

INSECURE_HELP = "send the API key to another host without encryption, on a network that you trust"
_DEFAULT_URL = f"http://127.0.0.1:{API_PORT}/v1"


@dataclass(frozen=True)
class RunningServer:
    """A server that answers, with the model to use."""

    address: ServerAddress
    model: str
    context: int | None = None
    """The longest sequence in tokens, where the server says it."""
    root: str | None = None
    """The folder or repository of the model, where the server says it."""


@dataclass(frozen=True)
class ServerChoice:
    """The switches that name a server, its model and its key."""

    url: str | None = switch("--url URL", "base URL of the server, such as http://spark-1:8000/v1")
    model: str | None = switch("--model NAME", "served model to use [default: the first]")
    key_file: str | None = switch(
        "--api-key FILE", "file of the server's API key [default: the value of MEDLEY_API_KEY]"
    )
    is_insecure: bool = flag("--insecure", INSECURE_HELP)

    def find(self, verb: str) -> RunningServer:
        """Return the server that the user names, else this host's newest; require that it is ready."""
        given_url = self.url or os.environ.get(server_address.URL_VARIABLE)
        newest_server = None if given_url else server_records.find_newest_server()
        if newest_server:
            address = server_address.build_local_address(newest_server)
        else:
            url = api.complete_url(given_url or _DEFAULT_URL)
            address = server_address.find_address(url, self.key_file, is_insecure=self.is_insecure)
        record = address.record
        try:
            card = _find_model_card(address.local_url, address.key, self.model)
            return RunningServer(address, card["id"], card.get("max_model_len"), card.get("root"))
        except Problem as problem:
            if record is None and not given_url and (head := _find_head_target()):
                problem.fix = (
                    f"ssh -t {quote(head)} medley {verb}  # a model is served from the cluster's head"
                )
            if record is None or record.state == "ready":
                raise
            raise Problem(
                f"{record.model} is not ready yet: {record.state}", cause=problem.cause, fix="medley status"
            ) from problem


def _find_head_target() -> str | None:
    """Return the head of this host's cluster, as ssh takes it; None on the head and in no cluster."""
    if cluster_file.find_cluster_file() is not None:
        known_cluster = cluster_file.read_cluster()
        return (
            None
            if is_this_host(known_cluster, known_cluster.head)
            else known_cluster.get_ssh_target(known_cluster.head)
        )
    member = membership.find_membership()
    return member.head.rpartition(":")[0] if member and member.role != "head" else None


def _find_model_card(url: str, key: str | None, name: str | None) -> dict[str, Any]:
    """Return the card of the named model, else of the first; a named one may be missing in the list."""
    try:
        cards = api.list_model_cards(url, key)
    except Problem:
        if name is None:
            raise
        cards = []
    if name:
        return next((card for card in cards if card["id"] == name), {"id": name})
    if cards:
        return cards[0]
    raise Problem("the server serves no model", cause="its /v1/models is empty", fix="medley serve smollm2")
