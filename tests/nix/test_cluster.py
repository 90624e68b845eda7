"""A cluster of hosts that have nothing but Nix and the flake: `nix run .#ray-head` and its like on each.

It is also where CI sees that a real vLLM over Ray reports a dead rank, which the small engine imitates.
"""

import os
import sys
from typing import TYPE_CHECKING

import pytest

from medley.command import Command
from tests.rack.cluster import cluster, medley, served
from tests.rack.rack import up
from tests.rack.spec import Spec

if TYPE_CHECKING:
    from tests.nix.conftest import Tree

pytestmark = pytest.mark.rack

BEGINS = "cuju qaqu"
"""As the demo begins its answer, wherever its layers are; how it goes on differs between processors."""
ASK = """
import json, urllib.request
body = {"model": "demo", "prompt": "Hello", "max_tokens": 16, "temperature": 0}
request = urllib.request.Request("http://127.0.0.1:8000/v1/completions", json.dumps(body).encode(),
                                 {"Content-Type": "application/json"})
print(json.load(urllib.request.urlopen(request, timeout=120))["choices"][0]["text"])
"""


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_some_hosts_through_the_apps(tree: "Tree", count: int) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: it makes namespaces and mounts")

    def app(verb: str, *words: str) -> Command:
        return Command(("nix", "run", f"path:{tree.folder}#{verb}", "--", *words), tree.variables)

    spec = Spec(count, share=(str(tree.folder.parent),), name=f"pytest-{os.getpid()}-nix")
    with up(spec) as rack:
        head, *_ = rack.hosts
        cluster(rack.hosts, by=app)
        run = served(head, "--hosts", str(count), "--pp", str(count), by=app)
        assert sorted(run.places.values()) == sorted(host.address for host in rack.hosts)
        assert head.says(sys.executable, "-c", ASK).lstrip().startswith(BEGINS)
        *_, worker = rack.hosts
        worker.says("pkill", "-KILL", "-f", "RayWorkerProc")
        finished = run.process.wait(60)
        assert finished is not None, run.lines[-40:]
        assert finished.status not in {0, 130}
        lost = f"medley: {worker.name} ({worker.address}), rank {count - 1}, is lost"
        assert any(line.startswith(lost) for line in run.lines), run.lines[-40:]
        for host in rack.hosts:
            assert medley(host, "ray-stop", by=app).status == 0
            assert "raylet" not in host.says("ps", "-eo", "comm")
