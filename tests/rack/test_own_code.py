"""A model with code of its own over two hosts, each of which has a copy of that code."""

import json
import shutil
from pathlib import Path

import pytest

from medley import config
from medley.model import demo
from tests.rack.cluster import READY_LIMIT_S, Served, assert_problem, cluster, medley, served, token_of, typed
from tests.rack.conftest import Up
from tests.rack.host import Host
from tests.waiting import wait_for

pytestmark = pytest.mark.rack

MODEL, RAN = "/tmp/home/model", "/tmp/home/ran"
CODE = f"""
from pathlib import Path
from transformers import Qwen3Config

Path("{RAN}").write_text("yes")


class OwnConfig(Qwen3Config):
    model_type = "own_of_this_test"
"""
TRUSTED = ("--trust-remote-code", "--pp", "2", "--tp", "1")


def own(folder: Path, hosts: tuple[Host, ...]) -> None:
    """The demo, of a type that nobody knows but its own code, on each host."""
    made = config.load_models()["demo"].made
    assert made is not None
    demo.write_model(made, folder)
    told = json.loads((folder / "config.json").read_text())
    told |= {"model_type": "own_of_this_test", "auto_map": {"AutoConfig": "configuration_own.OwnConfig"}}
    (folder / "config.json").write_text(json.dumps(told))
    (folder / "configuration_own.py").write_text(CODE)
    for host in hosts:
        shutil.copytree(folder, host.path(MODEL))


def other(host: Host) -> None:
    with (host.path(MODEL) / "configuration_own.py").open("a") as file:
        file.write("# and this\n")


@pytest.mark.slow
def test_over_ray_a_host_with_other_code_is_refused(rack: Up, tmp_path: Path) -> None:
    hosts = rack(2).hosts
    (tmp_path / "made").mkdir()
    own(tmp_path / "made", hosts)
    head, worker = hosts
    cluster(hosts)
    other(worker)
    refused = medley(head, "serve", MODEL, "--hosts", "2", *TRUSTED)
    assert_problem(refused, MODEL, f"{worker.name} ({worker.address})")
    assert not any(host.path(RAN).exists() for host in hosts)
    (worker.path(MODEL) / "configuration_own.py").write_text(CODE)
    run = served(head, "--hosts", "2", *TRUSTED, model=MODEL)
    try:
        assert [address for _, address in sorted(run.places.items())] == [host.address for host in hosts]
        assert head.path(RAN).exists(), "vLLM sends its config class from there to the ranks, by value"
    finally:
        run.process.stop()


@pytest.mark.slow
def test_without_ray_a_host_with_other_code_cannot_join(rack: Up, tmp_path: Path) -> None:
    hosts = rack(2).hosts
    (tmp_path / "made").mkdir()
    own(tmp_path / "made", hosts)
    head, worker = hosts
    other(worker)
    lines: list[str] = []
    words = (MODEL, "--launcher", "mp", "--hosts", "2", "--wait", "200", *TRUSTED)
    run = Served(head, head.start(typed("serve", "-v", *words), lines.append), lines)
    wait_for(
        "serve prints the command to join",
        lambda: any("medley join" in line for line in lines),
        60,
        state=lambda: lines,
    )
    token = token_of(head)
    refused = medley(worker, "join", head.name, stdin=token)
    assert_problem(refused, MODEL, "the head's")
    (worker.path(MODEL) / "configuration_own.py").write_text(CODE)
    worker.path("/tmp/home/brought").write_text(token)
    joined = worker.start(typed("join", head.name, "--token-file", "/tmp/home/brought"))
    try:
        wait_for(
            "the model is ready",
            lambda: any(line.startswith("ready after") for line in lines),
            READY_LIMIT_S,
            state=lambda: lines[-30:],
        )
        assert all(host.path(RAN).exists() for host in hosts)
    finally:
        run.process.stop()
        joined.stop()
