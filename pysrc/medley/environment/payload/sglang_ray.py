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

import ray

sys.path.insert(0, str(Path(__file__).parent))  # not there with PYTHONSAFEPATH
import engine_server
from ray._private.state import state
from sglang.srt.ray import engine

PLACEMENT_LIMIT_S = 60
POLL_INTERVAL_S = 2
_STAGE_AND_RANK_PATTERN = re.compile(r"_pp(\d+)_tp(\d+)")


def main(words: list[str]) -> None:
    from sglang.launch_server import run_server
    from sglang.srt.plugins import load_plugins
    from sglang.srt.server_args import prepare_server_args
    from sglang.srt.utils import kill_process_tree

    engine_server.install_api()
    words = [*words, *engine_server.install_for_sglang(words)]
    engine_server.hide_working_folder()
    load_plugins()
    options = prepare_server_args(["--model-path", *words])
    not_carried = set(json.loads(Path(os.environ["MEDLEY_NOT_CARRIED"]).read_text(encoding="utf-8")))
    ray.init(
        address=os.environ["RAY_ADDRESS"],
        _node_ip_address=os.environ["MEDLEY_RANKS"].split(",")[0],
        runtime_env={
            "env_vars": {name: value for name, value in os.environ.items() if name not in not_carried}
        },
    )
    engine.RayEngine = PlacedRayEngine
    try:
        run_server(options)
    finally:
        kill_process_tree(os.getpid(), include_parent=False)


class PlacedRayEngine(engine.RayEngine):  # type: ignore[misc]  # it has no types
    """SGLang's engine, with a bundle for each rank on the host of that rank."""

    @classmethod
    def _launch_scheduler_processes(cls, *args: Any, **_: Any) -> Any:  # noqa: ANN401 - passed on
        started = super()._launch_scheduler_processes(*args, placement_group=create_placement_group())
        ids = [actor._actor_id.hex() for actor in started[0].scheduler_actors]  # noqa: SLF001 - Ray has no public one
        threading.Thread(target=watch_ranks, args=(ids,), daemon=True).start()
        return started


def create_placement_group() -> Any:  # noqa: ANN401 - Ray's own
    hosts = os.environ["MEDLEY_RANKS"].split(",")
    group = ray.util.placement_group([{"GPU": 1, f"node:{host}": 0.001} for host in hosts])
    if not group.wait(PLACEMENT_LIMIT_S):
        raise RuntimeError(f"Ray has no slot on each of {', '.join(hosts)} after {PLACEMENT_LIMIT_S} s")
    return group


def watch_ranks(actor_ids: list[str]) -> None:
    """Print which rank died in vLLM's words, after which medley ends the server: requests would hang."""
    while True:
        time.sleep(POLL_INTERVAL_S)
        table = state.actor_table(None)
        for rank, actor_id in enumerate(actor_ids):
            actor_state = table.get(actor_id, {})
            if actor_state.get("State") == "DEAD":
                match = _STAGE_AND_RANK_PATTERN.search(actor_state.get("Name", ""))
                position = f" (stage {match[1]}, tensor rank {match[2]})" if match else ""
                message = f"SGLang's scheduler rank=[{rank}]{position} died unexpectedly"
                print(message, file=sys.stderr, flush=True)
                return


if __name__ == "__main__":
    main(sys.argv[1:])
