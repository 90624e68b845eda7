"""Two hosts of unlike speed, and how fast a model is on them with its layers cut one way or another."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from medley.host_schema import ENGINE_TABLES
from medley.model import demo
from medley.schema import DemoSpec
from tests.rack.cluster import cluster, medley, served
from tests.rack.rack import Rack, up
from tests.rack.spec import Spec

# Large enough that its weights take most of a step; Python's part, a tenth of a second on the slow host, hid
# the difference with 16 bits a weight, so they are served in 32.
MADE = DemoSpec(
    layers=12,
    hidden=1024,
    heads=16,
    kv_heads=8,
    head_dim=64,
    intermediate=8192,
    vocabulary=10_240,
    context=1024,
    seed=0,
)
EQUAL = "6,6"
STREAMS, TOKENS = 8, 8
"""Eight, because vLLM keeps requests that came together in one batch: of few, one stage may have none."""
WISHES = ("--pp", "2", "--concurrency", str(STREAMS))
CPUS = 0.3
"""Of the second host, each having one processor of its own."""
FLAGS = ("--dtype=float32", "--kv-cache-memory-bytes=268435456", "-cc.mode=2", "-cc.backend=eager")
ASK = f"""
import json, sys, time, urllib.request
from concurrent.futures import ThreadPoolExecutor

def tokens(number):
    body = {{"model": "uneven", "prompt": f"Tell me {{number}}", "max_tokens": {TOKENS}, "temperature": 0,
            "ignore_eos": True}}
    request = urllib.request.Request("http://127.0.0.1:8000/v1/completions", json.dumps(body).encode(),
                                     {{"Content-Type": "application/json"}})
    return json.load(urllib.request.urlopen(request, timeout=200))["usage"]["completion_tokens"]

def rate():
    begun = time.monotonic()
    with ThreadPoolExecutor({STREAMS}) as pool:
        return sum(pool.map(tokens, range({STREAMS}))) / (time.monotonic() - begun)

rate()
print(json.dumps([rate() for _ in range(int(sys.argv[1]))]))
"""


@dataclass(frozen=True)
class Uneven:
    rack: Rack
    model: str

    def slowed(self, *, slowed: bool) -> None:
        """While a model is loaded the second host may be fast: it takes minutes of its time else."""
        self.rack.hosts[1].limit(CPUS if slowed else None)

    def planned(self) -> str:
        """The layers of each stage, as a plan gives them once the hosts were measured."""
        head, slow = self.rack.hosts
        self.slowed(slowed=True)
        tested = head.run((sys.executable, "-m", "medley", "collective-test", "--sizes", "8,1M"))
        assert tested.status == 1, tested.lines
        assert f"medley: {slow.name} ({slow.address}) is slow, and would hold up the others" in tested.lines
        said = medley(head, "plan", self.model, *WISHES, "--json").lines
        plan = json.loads(next(line for line in said if line.startswith("{")))
        stages = plan["layout"]["stages"]
        hosts = [device["host"] for stage in stages for device in stage["devices"]]
        assert hosts == [f"{each.name} ({each.address})" for each in self.rack.hosts]
        assert all(device["measured"] for stage in stages for device in stage["devices"])
        return ",".join(str(stage["layers"]) for stage in stages)

    @contextmanager
    def serving(self, split: str, *, forced: bool) -> Iterator[None]:
        """With the model cut so: by force, or as `serve` does it by itself."""
        env = {"TORCHDYNAMO_DISABLE": "1"} | (
            {ENGINE_TABLES["vllm"].partition_variable: split} if forced else {}
        )
        words = (*WISHES, "--served-model-name", "uneven", "--", *FLAGS)
        self.slowed(slowed=False)
        run = served(self.rack.hosts[0], *words, model=self.model, env=env)
        try:
            assert any(f"{ENGINE_TABLES['vllm'].partition_variable}={split}" in line for line in run.lines), (
                run.lines
            )
            self.slowed(slowed=True)
            yield
        finally:
            self.slowed(slowed=False)
            run.process.stop()

    def tokens_per_s(self, rounds: int) -> list[float]:
        """Of all streams, in each round."""
        said = self.rack.hosts[0].says(sys.executable, "-c", ASK, str(rounds), limit_s=300)
        return [float(each) for each in json.loads(said)]


@contextmanager
def uneven(folder: Path) -> Iterator[Uneven]:
    """Their cluster, and the model, written to `folder`."""
    demo.write_model(MADE, folder)
    spec = Spec(2, cores={"host1": "0", "host2": "1"}, share=(str(folder),), name=f"uneven-{os.getpid()}")
    with up(spec) as rack:
        cluster(rack.hosts)
        yield Uneven(rack, str(folder))
