"""A worker that is cut off says so in seconds."""

import time
from pathlib import Path

from medley.cluster.membership import Membership
from medley.network.free_port import find_free_port
from tests.problems import raises_problem

WITHIN_S = 10


def test_a_worker_whose_head_is_away_names_the_head(tmp_path: Path) -> None:
    """Without Ray's client, which tries for half a minute and then is not done."""
    head = f"127.0.0.1:{find_free_port()}"
    worker = Membership("worker", head, "127.0.0.1", "lo", str(tmp_path), str(tmp_path / "token"))
    began = time.monotonic()
    with raises_problem(head, cause="refused", fix="ping -c 3 127.0.0.1"):
        worker.ask("read")
    assert time.monotonic() - began < WITHIN_S
