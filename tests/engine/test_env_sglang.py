"""SGLang's environment for CPUs, for real: built, proved, its stand-in against a plain loop, a server."""

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from medley import config
from medley.command import Command
from medley.model import demo
from medley.process import Process
from medley.process_identity import list_descendants
from tests.waiting import wait_for

pytestmark = pytest.mark.engine

READY_LIMIT_S = 300
# Nothing is said about where our own code is: the environment has it.
SGLANG = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "SGLANG_USE_CPU_ENGINE": "1"}


def medley(*words: str) -> str:
    finished = subprocess.run(
        [sys.executable, "-m", "medley", *words], capture_output=True, text=True, check=False, timeout=600
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


@pytest.fixture(scope="module")
def programs() -> Path:
    """In the usual cache, so that it is built once for every test that needs it."""
    return Path(medley("env", "build", "sglang-cpu").strip()) / "bin"


def asked(programs: Path, code: str, **variables: str) -> Any:
    """What the environment's Python says to `code`: the last line, as JSON."""
    finished = subprocess.run(
        [programs / "python", "-c", code],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout.splitlines()[-1])


@pytest.mark.usefixtures("programs")
def test_sglang_cpu_is_proved() -> None:
    proof = json.loads(medley("env", "check", "sglang-cpu", "--quick", "--json"))
    versions = {name: package["version"] for name, package in proof["packages"].items()}
    assert (versions["torch"], versions["sglang"]) == ("2.13.0+cpu", "0.5.23")
    assert versions["sgl_kernel"].endswith("+medley.standin")
    assert proof["platform"] == "cpu"
    assert all(proof["devices"][0][kernel]["ok"] for kernel in ("matmul", "silu_and_mul"))


POOL = """
import json, random
import torch
from sgl_kernel import assign_req_to_token_pool_cpu

def plainly(indices, table, starts, ends, slots):
    at = 0
    for row, start, end in zip(indices.tolist(), starts.tolist(), ends.tolist()):
        for column in range(start, end):
            table[row, column] = slots[at]
            at += 1

right, random.seed, kinds = 0, random.seed(7), (torch.int32, torch.int64)
for case in range(200):
    rows, length = random.randint(1, 9), random.randint(1, 20)
    requests = random.randint(0, rows)
    starts = [random.randint(0, length) for _ in range(requests)]
    ends = [random.randint(start, length) for start in starts]
    kind = kinds[case % 2]
    indices = torch.tensor(random.sample(range(rows), requests), dtype=kinds[case // 2 % 2])
    starts, ends = torch.tensor(starts, dtype=kind), torch.tensor(ends, dtype=kind)
    # More slots than are written: SGLang may hand over a list that is too long.
    slots = torch.randint(1, 10_000, (int((ends - starts).sum()) + case % 3,), dtype=torch.int64)
    ours = torch.zeros(rows, length, dtype=torch.int32)
    theirs = ours.clone()
    assign_req_to_token_pool_cpu(indices, ours, starts, ends, slots, length)
    plainly(indices, theirs, starts, ends, slots)
    right += bool((ours == theirs).all())
print(json.dumps(right))
"""


def test_the_pools_table_is_written_as_a_plain_loop_would(programs: Path) -> None:
    assert asked(programs, POOL) == 200


SEEN = """
import json, os
import torch
said = {}
def attempt(name, work):
    try:
        said[name] = str(work())
    except Exception as error:
        said[name] = f"{type(error).__name__}: {error}"
# Nothing but torch is imported so far.
attempt("set_device", lambda: torch.cuda.set_device(0))
import torchvision
boxes = torch.rand(3, 4)
attempt("nms", lambda: torchvision.ops.nms(boxes, torch.rand(3), 0.5))
from sgl_kernel import verify_tree_greedy_cpu
attempt("missing", lambda: verify_tree_greedy_cpu(1, 2))
attempt("no kernel", lambda: __import__("sgl_kernel").no_such_thing)
os.environ["LOCAL_SIZE"] = "2"
torch.ops.sgl_kernel.init_cpu_threads_env("0-2,5")
torch.ops.sgl_kernel.initialize(2, 0)
said["threads"], said["local"] = torch.get_num_threads(), os.environ["LOCAL_SIZE"]
# By this op SGLang would take the CPU for one whose kernels it has.
said["packs"] = hasattr(torch.ops.sgl_kernel, "convert_weight_packed")
print(json.dumps(said))
"""


def test_every_process_with_torch_has_what_sglang_misses(programs: Path) -> None:
    said = asked(programs, SEEN)
    assert said["set_device"] == "None"
    assert said["nms"].startswith("RuntimeError: Couldn't load custom C++ ops")
    assert said["missing"].startswith(
        "NotImplementedError: sgl_kernel.verify_tree_greedy_cpu is not in medley's"
    )
    assert said["no kernel"] == "AttributeError: medley's stand-in for sgl_kernel has no no_such_thing"
    assert (said["threads"], said["local"], said["packs"]) == (4, "0", False)


@pytest.fixture
def served(programs: Path, free_port: int, tmp_path: Path) -> Iterator[str]:
    """The base URL of SGLang itself, with the demo model."""
    made = config.load_models()["demo"].made
    assert made is not None
    folder = demo.make_model(made, tmp_path / "demo")
    lines: list[str] = []
    words = ("serve", str(folder), "--device", "cpu", "--host", "127.0.0.1", "--port", str(free_port))
    bounds = ("--max-total-tokens", "4096", "--sleep-on-idle", "--served-model-name", "demo")
    process = Process(Command((str(programs / "sglang"), *words, *bounds), SGLANG), lines.append)
    url = f"http://127.0.0.1:{free_port}"
    try:
        wait_for(
            "SGLang answers, or ends",
            lambda: healthy(url) or process.poll() is not None,
            READY_LIMIT_S,
            state=lambda: lines[-40:],
        )
        assert process.poll() is None, "\n".join(lines[-40:])
        yield url
    finally:
        family = list_descendants(process.pid)
        process.stop()
        assert [each for each in family if each.is_alive] == []


def healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=30) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def completed(url: str, **more: object) -> str:
    body = {"model": "demo", "prompt": "Hello", "max_tokens": 16, "temperature": 0, **more}
    request = urllib.request.Request(
        f"{url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        return str(json.load(answer)["choices"][0]["text"])


def test_sglang_serves_the_demo_model(served: str) -> None:
    first = completed(served)
    assert len(first.split()) > 4
    assert completed(served) == first
    with pytest.raises(urllib.error.HTTPError) as caught:
        completed(served, max_tokens=1_000_000)
    with caught.value as refused:
        assert refused.code == 400
