"""Both engines by every launcher, over two hosts: the tokens of one, and the loss of a rank told by name."""

import time

import pytest

from tests.rack.conftest import Up
from tests.rack.matrix import CELLS, Cell, Matrix, Running, rows
from tests.rack.tokens import CLEAR_NATS, PROMPTS, TOKENS, asked, recorded

pytestmark = pytest.mark.rack
LOSS_LIMIT_S = 30
# Each engine and launcher once, and what its ranks are called; test_cluster.py has vLLM over Ray.
SOME = (
    (Cell("sglang", "ray", ("--pp", "2"), "5,1"), "SchedulerActor"),
    (Cell("vllm", "mp", ("--pp", "2"), "5,1"), "VLLM::Worker"),
)


def test_some_give_the_tokens_of_one_host_and_name_a_rank_that_is_killed(rack: Up) -> None:
    matrix = Matrix(rack(2))
    for cell, rank in SOME:
        with matrix.running(cell) as run:
            assert asked(matrix.rack.hosts[0]).tokens == recorded(), cell.name
            matrix.rack.hosts[1].says("pkill", "-KILL", "-f", rank)
            named_for_loss(matrix, run)


@pytest.mark.slow
def test_a_host_that_is_cut_off_is_named_and_ends_its_own(rack: Up) -> None:
    matrix = Matrix(rack(2))
    head, worker = matrix.rack.hosts
    with matrix.running(Cell("vllm", "mp", ("--tp", "2"))) as run:
        matrix.rack.cut("lan", worker.name)
        named_for_loss(matrix, run)
        (joined,) = run.workers
        assert joined.wait(LOSS_LIMIT_S) is not None, run.joined[-20:]
        assert any(line.startswith("medley: the head is gone") for line in run.joined), run.joined[-20:]
        assert head.alive


def named_for_loss(matrix: Matrix, run: Running) -> None:
    worker, began = matrix.rack.hosts[1], time.monotonic()
    finished = run.head.wait(LOSS_LIMIT_S)
    assert finished is not None, (time.monotonic() - began, run.lines[-20:])
    assert finished.status not in {0, 130}
    named = f"medley: {worker.name} ({worker.address}), rank 1, is lost"
    assert any(line.startswith(named) for line in run.lines), run.lines[-40:]


@pytest.mark.slow
def test_each_gives_the_tokens_of_its_engine_alone(rack: Up) -> None:
    for row in rows(Matrix(rack(2)), CELLS):
        assert row.answer is not None, (row.cell.name, row.why_not)
        assert [len(each) for each in row.answer.tokens] == [TOKENS] * len(PROMPTS)
        if row.cell.launcher == "solo":
            assert row.answer.tokens == recorded(), row.cell.name
            assert row.answer.margin > CLEAR_NATS, "else rounding could decide, and equal tokens say little"
        assert row.equal != row.cell.spoiled, row.cell.name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cell", "rank"),
    [
        pytest.param(Cell("vllm", "ray", ("--tp", "2")), "RayWorkerProc", id="vllm-ray"),
        pytest.param(Cell("sglang", "ray", ("--tp", "2")), "SchedulerActor", id="sglang-ray"),
        pytest.param(Cell("sglang", "mp", ("--pp", "2")), "sglang::scheduler", id="sglang-mp"),
        pytest.param(Cell("sglang", "mp", ("--tp", "2")), "sglang::scheduler", id="sglang-mp-tensor"),
        pytest.param(Cell("vllm", "mp", ("--dp", "2")), "VLLM::Worker", id="vllm-mp-replicas"),
    ],
)
def test_a_killed_rank_is_named_and_ends_all(rack: Up, cell: Cell, rank: str) -> None:
    matrix = Matrix(rack(2))
    with matrix.running(cell) as run:
        matrix.rack.hosts[1].says("pkill", "-KILL", "-f", rank)
        named_for_loss(matrix, run)
