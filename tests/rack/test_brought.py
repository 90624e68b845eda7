"""What a model needs beside its weights, brought over a real cluster to the cache of each of its hosts."""

import hashlib
import shutil
import sys

import pytest

from medley.command import Command
from tests.rack.cluster import cluster, typed
from tests.rack.conftest import Up
from tests.rack.host import Host, shared_cache

pytestmark = pytest.mark.rack

CACHE = "/tmp/home/cache"
CONTENT = b"a few tokens\n" * 100_000
HASH = hashlib.sha256(CONTENT).hexdigest()
BRING = f"""
from pathlib import Path
from medley.cli.progress import PlainProgress
from medley.cluster import membership, model_files
from medley.errors import Problem
from medley.model.extra_files import ModelExtras, list_extra_paths
from medley.model.remote_code import read_folder_code
from medley.schema import ExtraFile

need = ExtraFile(kind="tiktoken", what="a test", name="x.tiktoken", sha256="{HASH}", url="http://127.0.0.1:9/x")
files = tuple(list_extra_paths((need,)))
((_, path),) = files
path.parent.mkdir(parents=True, exist_ok=True)
path.write_bytes(b"a few tokens\\n" * 100_000)
code = read_folder_code(Path("/tmp/home/model"))
print("at", path)
try:
    model_files.copy_extra_files(membership.find_membership(), ModelExtras(code, files), PlainProgress())
except Problem as problem:
    print(problem)
"""


def own_cache(verb: str, *words: str) -> Command:
    """On a host of its own a cache is its own too; the engine environments are this machine's."""
    return typed(verb, *words).add_variables({"MEDLEY_CACHE": CACHE})


def bring(head: Host) -> list[str]:
    finished = head.run(Command((sys.executable, "-c", BRING), {"MEDLEY_CACHE": CACHE}))
    assert finished.status == 0, finished.lines
    return list(finished.lines)


def test_a_file_arrives_on_every_host_and_a_spoiled_one_is_replaced(rack: Up) -> None:
    hosts = rack(2).hosts
    head, worker = hosts
    for host in hosts:
        host.path(CACHE).mkdir(parents=True)
        host.path(f"{CACHE}/envs").symlink_to(shared_cache() / "envs")
        model = host.path("/tmp/home/model")
        model.mkdir()
        (model / "config.json").write_text('{"auto_map": {"AutoConfig": "configuration_x.X"}}')
        (model / "configuration_x.py").write_text("1\n")
    cluster(hosts, by=own_cache)

    said = bring(head)
    (path,) = (line.removeprefix("at ") for line in said if line.startswith("at "))
    assert path.startswith(f"{CACHE}/needs/")
    there = worker.path(path)
    assert hashlib.sha256(there.read_bytes()).hexdigest() == HASH
    assert any(line.startswith(f"{worker.name} (") and line.endswith(f"{path} copied") for line in said), said

    assert not any(line.endswith("copied") for line in bring(head)), "it is there already"
    there.write_bytes(CONTENT[:-1])
    assert any(line.endswith("copied") for line in bring(head))
    assert hashlib.sha256(there.read_bytes()).hexdigest() == HASH
    assert [each.name for each in there.parent.iterdir()] == ["x.tiktoken"]

    shutil.rmtree(there.parent)
    there.parent.touch()
    assert any(f"could not be copied to {worker.name}" in line for line in bring(head))
    there.parent.unlink()

    (worker.path("/tmp/home/model") / "configuration_x.py").write_text("2\n")
    differs = f"differs between {worker.name} ({worker.address})"
    assert any(differs in line for line in bring(head))
