"""Asks a Ray cluster's head what it keeps; run by an engine environment's Python, prints one JSON object.

    python cluster.py read HOST:PORT            the note of medley's head, and the nodes that are alive
    python cluster.py note HOST:PORT JSON       keep a note there, for hosts that want to join to compare with
    python cluster.py ranks HOST:PORT           where vLLM's ranks are

It speaks to the head's own store, so that nothing of ours needs to listen.
"""

import json
import sys
from typing import Any

from ray._private.state import GlobalState
from ray._raylet import GcsClient, GcsClientOptions

KEY = b"medley"
LIMIT_S = 8


def main(verb: str, address: str, *rest: str) -> dict[str, Any]:
    try:
        client = GcsClient(address=address)
        if verb == "note":
            client.internal_kv_put(KEY, rest[0].encode(), overwrite=True, namespace=KEY, timeout=LIMIT_S)
        if verb == "ranks":
            return {"ranks": ranks(address)}
        note = client.internal_kv_get(KEY, KEY, LIMIT_S)
        return {"note": json.loads(note) if note else None, "nodes": nodes(client)}
    except Exception as error:  # noqa: BLE001 - whatever it is, our side turns it into a Problem
        return {"error": type(error).__name__, "said": str(error)[:400]}


def nodes(client: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - Ray's own client has no types
    found = client.get_all_node_info(timeout=LIMIT_S).values()
    return [
        {
            "id": node.node_id.hex(),
            "address": node.node_manager_address,
            "name": node.node_manager_hostname,
            "alive": node.state == 0,
            "head": "node:__internal_head__" in node.resources_total,
            "slots": int(node.resources_total.get("GPU", 0)),
        }
        for node in found
    ]


def ranks(address: str) -> list[dict[str, Any]]:
    """Every actor of vLLM's that lives, by the name that tells its rank: vllm_Worker_ID_TP0_PP1."""
    state = GlobalState()
    options = GcsClientOptions.create(address, None, allow_cluster_id_nil=True, fetch_cluster_id_if_nil=False)
    state._initialize_global_state(options)  # noqa: SLF001 - what `ray list actors` does, less its dashboard
    found = state.actor_table(None).values()
    return [
        {"name": actor["Name"], "address": actor["Address"]["IPAddress"]}
        for actor in found
        if actor["Name"].startswith("vllm_Worker_") and actor["State"] == "ALIVE"
    ]


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
