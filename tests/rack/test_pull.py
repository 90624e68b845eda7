"""`medley pull` over ssh: a model of random bytes to every host of a cluster, killed, resumed, damaged."""

import json
import os
import shutil
from pathlib import Path

import pytest

from medley.model import hub, hub_download
from tests.model.hub_server import disk_bytes, large_repositories, serving
from tests.rack.conftest import Up
from tests.rack.spec import Spec
from tests.rack.ssh_cluster import LINKS, SshCluster, falls_still, process
from tests.waiting import wait_for

pytestmark = pytest.mark.rack

MODEL = "/tmp/home/models/random"
SIZE = 48 << 20


def model(desk: SshCluster, host: str) -> Path:
    """Two files of weights and what else an engine looks for, on one host."""
    folder = desk.rack[host].path(MODEL)
    folder.mkdir(parents=True)
    for name in ("model-1.safetensors", "model-2.safetensors"):
        (folder / name).write_bytes(os.urandom(SIZE // 2))
    (folder / "config.json").write_text("{}")
    return folder


def test_a_model_to_all_hosts_and_what_happens_to_it(rack: Up) -> None:
    desk = SshCluster.of(rack(Spec(3, LINKS)))
    folder = model(desk, "host2")
    desk.rack.shape("fast", 50)  # the rest takes 6 s, and is under way when the pull is killed
    pulling = desk.begin("pull", MODEL, until="host3: ")
    third = desk.rack["host3"].path(MODEL)
    wait_for(
        "host3 has a quarter of it",
        lambda: sum(each.stat().st_size for each in third.glob("*")) > SIZE // 4,
        60,
        state=lambda: [(each.name, each.stat().st_size) for each in third.glob("*")],
    )
    desk.head.says("kill", "-KILL", str(process(desk.head, "medley pull")))
    pulling.wait(20)
    falls_still(desk.rack["host3"])  # what it began there ends with it
    assert not (third / "config.json").exists(), "no engine takes it for a model yet"

    desk.rack.shape("fast", 2000)
    said = json.loads(desk.done("pull", MODEL, "--json", at="host3")[-1])
    assert said["from"] == "host2"
    assert 0 < said["received_bytes"]["host3"] < SIZE * 3 // 4, "the rest was there already"
    for name in ("host1", "host3"):
        copy = desk.rack[name].path(MODEL)
        for file in folder.iterdir():
            assert (copy / file.name).read_bytes() == file.read_bytes()
    again = desk.done("pull", MODEL)
    assert any("0.05 GB on each host" in line and "0.00 GB sent" in line for line in again), again

    damaged = desk.rack["host1"].path(f"{MODEL}/model-2.safetensors")
    before = damaged.stat()
    with damaged.open("r+b") as bits:
        bits.seek(5 << 20)
        byte = bits.read(1)
        bits.seek(5 << 20)
        bits.write(bytes([byte[0] ^ 1]))
    os.utime(damaged, ns=(before.st_atime_ns, before.st_mtime_ns))  # as a disk does it: nobody wrote
    found = desk.type("pull", MODEL, "--verify")
    assert found.status == 1
    assert any("model-2.safetensors" in line and "piece" in line for line in found.lines), found.lines
    mended = json.loads(desk.done("pull", MODEL, "--json")[-1])
    assert 0 < mended["received_bytes"]["host1"] < SIZE // 4
    assert desk.type("pull", MODEL, "--verify").status == 0
    assert any("no host has" in line for line in desk.type("pull", "/tmp/home/other").lines)


HUB = "/tmp/home/.cache/huggingface/hub"


def test_a_model_of_the_hub_s_shared_blobs(
    rack: Up,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    cache_layout: bool,  # noqa: FBT001
) -> None:
    desk = SshCluster.of(rack(Spec(2, LINKS)))
    one, two = (desk.rack[name].path(HUB) for name in ("host2", "host1"))
    files = large_repositories()
    with serving(files, monkeypatch, tmp_path):
        snapshot = hub_download.download_model("org/both").relative_to(hub.find_cache_folder())
    shutil.copytree(hub.find_cache_folder(), one, symlinks=True)
    for name in ("HF_HOME", "HF_ENDPOINT"):  # the hosts inherit them
        monkeypatch.delenv(name)
    assert (one / "blobs").is_dir() is cache_layout
    said = json.loads(desk.done("pull", "org/both", "--json")[-1])
    sizes = [len(content) for name, content in files.items() if name.startswith("org/both/")]
    assert sum(sizes) <= said["received_bytes"]["host1"] < sum(sizes) + 1000
    for name in ("config.json", "1.safetensors", "2.safetensors"):
        assert (two / snapshot / name).read_bytes() == files[f"org/both/{name}"]
    lines = desk.done("pull", "org/both", "--verify")
    assert any(line.startswith("host1: not compared with the hub: ") for line in lines), lines
    assert "host2: as on host1" in lines
    for host, cache in (("host1", two), ("host2", one)):
        before = disk_bytes(cache)
        removed = json.loads(desk.done("models", "rm", "org/both", "--yes", "--json", at=host)[-1])
        assert removed["bytes"] == before - disk_bytes(cache) >= sum(sizes)
