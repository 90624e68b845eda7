"""Serve with SGLang over a Ray cluster, each rank on the host that the plan has for it.

    python sglang_ray.py MODEL FLAGS…       as `sglang serve` takes them

`sglang serve --use-ray` lets Ray choose the hosts, waits for ever where it has none, leaves the actors the
environment of `ray start`, and stays up with a dead rank (SGLang 0.5.23). Here, from the environment:

    MEDLEY_RANKS        addresses of the ranks, in order: 10.0.0.1,10.0.0.2
    MEDLEY_NOT_CARRIED  a JSON list of variables that stay on this host; the actors get all others
"""

import json
import os
import re
import sys
import threading
import time
from pathlib import Path
from typing import Any

import engine_server
import ray
from ray._private.state import state
from sglang.srt.ray import engine

PLACED_LIMIT_S = 60
LOOK_EVERY_S = 2
_PLACE = re.compile(r"_pp(\d+)_tp(\d+)")


def main(words: list[str]) -> None:
    from sglang.launch_server import run_server
    from sglang.srt.plugins import load_plugins
    from sglang.srt.server_args import prepare_server_args
    from sglang.srt.utils import kill_process_tree

    engine_server.install()
    engine_server.install_for_sglang()
    load_plugins()
    options = prepare_server_args(["--model-path", *words])
    stays = set(json.loads(Path(os.environ["MEDLEY_NOT_CARRIED"]).read_text(encoding="utf-8")))
    ray.init(
        address=os.environ["RAY_ADDRESS"],
        _node_ip_address=os.environ["MEDLEY_RANKS"].split(",")[0],
        runtime_env={"env_vars": {name: value for name, value in os.environ.items() if name not in stays}},
    )
    engine.RayEngine = Placed
    try:
        run_server(options)
    finally:
        kill_process_tree(os.getpid(), include_parent=False)


class Placed(engine.RayEngine):  # type: ignore[misc]  # it has no types
    """SGLang's engine, with a bundle for each rank on the host of that rank."""

    @classmethod
    def _launch_scheduler_processes(cls, *args: Any, **_: Any) -> Any:  # noqa: ANN401 - passed on
        started = super()._launch_scheduler_processes(*args, placement_group=placed())
        ids = [actor._actor_id.hex() for actor in started[0].scheduler_actors]  # noqa: SLF001 - no public way
        threading.Thread(target=watch, args=(ids,), daemon=True).start()
        return started


def placed() -> Any:  # noqa: ANN401 - Ray's own
    hosts = os.environ["MEDLEY_RANKS"].split(",")
    group = ray.util.placement_group([{"GPU": 1, f"node:{host}": 0.001} for host in hosts])
    if not group.wait(PLACED_LIMIT_S):
        raise RuntimeError(f"Ray has no slot on each of {', '.join(hosts)} after {PLACED_LIMIT_S} s")
    return group


def watch(actors: list[str]) -> None:
    """Print which rank is gone, in vLLM's words for it, and end: requests would hang."""
    while True:
        time.sleep(LOOK_EVERY_S)
        table = state.actor_table(None)
        for rank, actor in enumerate(actors):
            found = table.get(actor, {})
            if found.get("State") == "DEAD":
                where = _PLACE.search(found.get("Name", ""))
                place = f" (stage {where[1]}, tensor rank {where[2]})" if where else ""
                message = f"SGLang's scheduler rank=[{rank}]{place} died unexpectedly"
                print(message, file=sys.stderr, flush=True)
                return


if __name__ == "__main__":
    main(sys.argv[1:])
