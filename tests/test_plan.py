from dataclasses import replace
from pathlib import Path

import pytest

from medley import config, transcript
from medley.facts import Facts, facts
from medley.plan import GIB, Asked, plan
from medley.problem import Problem
from medley.tables import Model

HOSTS = config.hosts()
DEMO = config.models()["demo"]
BIG = Model(title="x", repository="org/big")


def recorded(name: str) -> Facts:
    return facts(transcript.parse((Path(__file__).parent / "hosts" / f"{name}.txt").read_text()))


@pytest.mark.parametrize(
    ("asked", "indexes"),
    [
        pytest.param(None, (0,), id="one of two alike"),
        pytest.param("1", (1,), id="the second"),
        pytest.param("1,0", (1, 0), id="both, in this order"),
        pytest.param("all", (0, 1), id="all"),
    ],
)
def test_gpus(asked: str | None, indexes: tuple[int, ...]) -> None:
    found = plan(BIG, HOSTS["rtx"], recorded("rtx-two"), Asked(asked))
    assert tuple(gpu.index for gpu in found.gpus) == indexes
    assert found.tensor_parallel == len(indexes)
    assert found.memory_utilization is None
    assert found.why


def test_the_gpu_with_the_most_memory_is_taken() -> None:
    found = recorded("rtx-two")
    small = replace(found.gpus[0], memory_bytes=GIB)
    chosen = plan(BIG, HOSTS["rtx"], replace(found, gpus=(small, found.gpus[1])))
    assert [gpu.index for gpu in chosen.gpus] == [1]
    assert "most memory" in chosen.why[0]


@pytest.mark.parametrize(
    ("host", "asked", "what"),
    [
        pytest.param("rtx-two", "2", "there is no GPU '2'", id="no such index"),
        pytest.param("rtx-two", "0,0", "names a GPU twice", id="twice"),
        pytest.param("rtx-two", "first", "there is no GPU 'first'", id="no number"),
        pytest.param("debian-vm", "0", "cannot be had", id="no GPU at all"),
    ],
)
def test_gpus_that_cannot_be(host: str, asked: str, what: str) -> None:
    kind = "cpu" if host == "debian-vm" else "rtx"
    with pytest.raises(Problem) as caught:
        plan(BIG, HOSTS[kind], recorded(host), Asked(asked))
    assert what in caught.value.what


@pytest.mark.parametrize(
    ("available_gib", "share"),
    [
        pytest.param(118, 0.85, id="never above the limit"),
        pytest.param(60, 0.42, id="what is free, less 8 GiB"),
    ],
)
def test_unified_memory_is_shared_with_the_system(available_gib: int, share: float) -> None:
    spark = recorded("spark")
    memory = replace(spark.memory, total_bytes=122 * GIB, available_bytes=available_gib * GIB)
    found = plan(BIG, HOSTS["spark"], replace(spark, memory=memory))
    assert found.memory_utilization == share
    assert f"{available_gib}.0 GiB are available" in found.why[1]


def test_too_little_unified_memory_is_a_problem() -> None:
    spark = recorded("spark")
    memory = replace(spark.memory, available_bytes=7 * GIB)
    with pytest.raises(Problem, match="too little memory"):
        plan(BIG, HOSTS["spark"], replace(spark, memory=memory))


def test_a_cpu_leaves_the_host_its_memory() -> None:
    host = recorded("debian-vm")
    assert plan(DEMO, HOSTS["cpu"], host).kv_cache_bytes == DEMO.kv_cache_bytes
    assert plan(BIG, HOSTS["cpu"], host).kv_cache_bytes == host.memory.available_bytes // 4


def test_a_cpu_without_a_compiler_compiles_nothing() -> None:
    host = recorded("debian-vm")
    bare = replace(host, software=replace(host.software, programs={}))
    with_compiler = replace(host, software=replace(host.software, programs={"g++": "/usr/bin/g++"}))
    assert plan(BIG, HOSTS["cpu"], bare).eager
    assert not plan(BIG, HOSTS["cpu"], with_compiler).eager
    assert plan(DEMO, HOSTS["cpu"], with_compiler).eager
