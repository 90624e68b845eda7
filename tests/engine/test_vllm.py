from pathlib import Path

import pytest

from medley import config
from medley.command import AnnotatedCommand
from medley.engine import vllm
from medley.engine.server_spec import ServerSpec
from medley.engine.shared_flags import drop_overridden_flags
from medley.host_schema import HostTable
from medley.planner.plan import NodeProcess, Plan
from medley.schema import Model

SERVING = ServerSpec(target="/m", name="demo", address="127.0.0.1", port=8000)
CPU, SPARK = config.load_hosts()["cpu"], config.load_hosts()["spark"]


def words(plan: Plan, *theirs: str, model: Model | None = None) -> str:
    flags = tuple(drop_overridden_flags(vllm.list_flags(SERVING, plan, CPU, model), theirs))
    return " ".join(
        AnnotatedCommand(vllm.build_argv(Path("/env/bin"), SERVING, plan), flags, (), theirs).command.argv
    )


BASE = "/env/bin/vllm serve /m --served-model-name demo --host 127.0.0.1 --port 8000"


@pytest.mark.parametrize(
    ("plan", "theirs", "line"),
    [
        pytest.param(Plan(), (), BASE, id="nothing special"),
        pytest.param(Plan(tensor_parallel=2), (), f"{BASE} --tensor-parallel-size 2", id="two GPUs"),
        pytest.param(
            Plan(tensor_parallel=2), ("-tp", "4"), f"{BASE} -tp 4", id="theirs wins, by its short name"
        ),
        pytest.param(Plan(kv_cache_bytes=7), (), f"{BASE} --kv-cache-memory-bytes 7", id="KV cache"),
        pytest.param(Plan(memory_utilization=0.4), (), f"{BASE} --gpu-memory-utilization 0.40", id="a share"),
        pytest.param(
            Plan(memory_utilization=0.4),
            ("--gpu-memory-utilization=0.5",),
            f"{BASE} --gpu-memory-utilization=0.5",
            id="theirs wins, with =",
        ),
        pytest.param(
            Plan(launcher="ray", stages=2, is_eager=True),
            (),
            f"{BASE} --distributed-executor-backend ray --pipeline-parallel-size 2"
            " -cc.mode 2 -cc.backend eager",
            id="a pipeline over hosts",
        ),
        pytest.param(
            Plan(launcher="ray", tensor_parallel=2, is_eager=True),
            (),
            f"{BASE} --tensor-parallel-size 2 --distributed-executor-backend ray --enforce-eager",
            id="tensor parallel over hosts",
        ),
        pytest.param(Plan(is_eager=True), (), f"{BASE} --enforce-eager", id="eager"),
        pytest.param(
            Plan(sequences=64, batch_tokens=4096, longest_context=40_960),
            (),
            f"{BASE} --max-num-seqs 64 --max-num-batched-tokens 4096 --max-model-len auto",
            id="what the memory counts on, and the longest that fits",
        ),
        pytest.param(
            Plan(sequences=64, batch_tokens=4096, context=8192),
            ("--max-num-seqs", "8"),
            f"{BASE} --max-num-batched-tokens 4096 --max-model-len 8192 --max-num-seqs 8",
            id="a context as asked, and theirs wins",
        ),
        pytest.param(
            Plan(tensor_parallel=2, expert_parallel=True),
            (),
            f"{BASE} --tensor-parallel-size 2 --enable-expert-parallel",
            id="whole experts",
        ),
        pytest.param(Plan(), ("--max-model-len", "9"), f"{BASE} --max-model-len 9", id="theirs come last"),
    ],
)
def test_command(plan: Plan, theirs: tuple[str, ...], line: str) -> None:
    assert words(plan, *theirs) == line


def test_a_models_own_flags_give_way_to_the_users() -> None:
    model = Model(
        title="x",
        repository="a/b",
        args={"vllm": ("--async-scheduling", "--block-size", "32", "--enforce-eager")},
    )
    assert words(Plan(), model=model) == f"{BASE} --async-scheduling --block-size 32 --enforce-eager"
    assert (
        words(Plan(), "--block-size", "64", model=model)
        == f"{BASE} --async-scheduling --enforce-eager --block-size 64"
    )


@pytest.mark.parametrize(
    ("plan", "line"),
    [
        pytest.param(
            Plan(launcher="mp", stages=2, node_process=NodeProcess(2, 0, "10.0.0.1", 24011)),
            "--host 127.0.0.1 --port 8000 --pipeline-parallel-size 2 --distributed-executor-backend mp"
            " --nnodes 2 --node-rank 0 --master-addr 10.0.0.1 --master-port 24011",
            id="the first of two processes",
        ),
        pytest.param(
            Plan(launcher="mp", tensor_parallel=2, node_process=NodeProcess(2, 1, "10.0.0.1", 24011)),
            "--headless --tensor-parallel-size 2 --distributed-executor-backend mp"
            " --nnodes 2 --node-rank 1 --master-addr 10.0.0.1 --master-port 24011",
            id="the second has no API",
        ),
        pytest.param(
            Plan(
                launcher="mp",
                replicas=3,
                replicas_before=1,
                node_process=NodeProcess(2, 1, "10.0.0.1", 24011),
            ),
            "--headless --data-parallel-size 3 --data-parallel-size-local 1 --data-parallel-address 10.0.0.1"
            " --data-parallel-rpc-port 24011 --data-parallel-start-rank 1",
            id="replicas on each host",
        ),
        pytest.param(
            Plan(launcher="ray", replicas=2),
            "--host 127.0.0.1 --port 8000 --data-parallel-size 2 --data-parallel-backend ray"
            " --data-parallel-size-local 1 --api-server-count 1",
            id="replicas over Ray",
        ),
        pytest.param(Plan(kv_type="fp8"), "--host 127.0.0.1 --port 8000 --kv-cache-dtype fp8", id="8 bits"),
    ],
)
def test_over_hosts(plan: Plan, line: str) -> None:
    assert words(plan) == f"/env/bin/vllm serve /m --served-model-name demo {line}"


def test_stages_have_the_layers_that_the_plan_cut() -> None:
    found = {
        each.name: each.value for each in vllm.list_variables(SERVING, Plan(layer_partition="9,3"), SPARK)
    }
    assert found["VLLM_PP_LAYER_PARTITION"] == "9,3"


@pytest.mark.parametrize(
    ("plan", "host", "is_set"),
    [
        pytest.param(Plan(is_eager=True), CPU, True, id="eager on a CPU"),
        pytest.param(Plan(is_eager=True, stages=2), CPU, True, id="stages on CPUs"),
        pytest.param(Plan(), CPU, False, id="compiled"),
        pytest.param(Plan(is_eager=True), SPARK, False, id="a GPU"),
    ],
)
def test_code_that_is_not_compiled_is_not_traced(plan: Plan, host: HostTable, is_set: bool) -> None:  # noqa: FBT001
    found = {each.name: each.value for each in vllm.list_variables(SERVING, plan, host)}
    assert found.get("TORCHDYNAMO_DISABLE") == ("1" if is_set else None)


def test_every_flag_has_its_reason() -> None:
    plan = Plan(tensor_parallel=2, kv_cache_bytes=1, memory_utilization=0.5, is_eager=True)
    assert all(flag.why for flag in vllm.list_flags(SERVING.replace(port=1), plan, SPARK, None))


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        pytest.param(["INFO all is well"], None, id="none"),
        pytest.param(
            ["vllm serve: error: unrecognized arguments: --swap-space 0"],
            "vllm serve: error: unrecognized arguments: --swap-space 0",
            id="usage",
        ),
        pytest.param(
            [
                "(EngineCore pid=7) ERROR 11-21 08:01:33 [core.py:1109] ValueError: No available memory",
                "(APIServer pid=5) RuntimeError: Engine core initialization failed. See root cause above.",
            ],
            "ValueError: No available memory",
            id="the root, not what its parent says",
        ),
        pytest.param(
            ["RuntimeError: Engine core initialization failed. See root cause above."],
            "RuntimeError: Engine core initialization failed. See root cause above.",
            id="nothing better",
        ),
        pytest.param(
            ["(Worker pid=9) torch.OutOfMemoryError: CUDA out of memory.", "INFO shutting down"],
            "torch.OutOfMemoryError: CUDA out of memory.",
            id="a dotted name",
        ),
    ],
)
def test_last_error(lines: list[str], error: str | None) -> None:
    assert vllm.find_last_error(lines) == error


@pytest.mark.parametrize(
    ("line", "lost"),
    [
        pytest.param("ERROR RayWorkerProc rank=[1] died unexpectedly", True, id="a rank that died"),
        pytest.param(
            "INFO [ray_utils.py:467] Waiting for creating a placement group of specs for 30 seconds. specs=[",
            True,
            id="a host that went away before its rank was placed",
        ),
        pytest.param(
            "INFO [ray_utils.py:467] Waiting for creating a placement group of specs for 10 seconds. specs=[",
            False,
            id="Ray takes its time",
        ),
        pytest.param("WARNING EngineCore died", False, id="any other death ends the process too"),
    ],
)
def test_whether_a_line_says_that_it_is_lost(line: str, *, lost: bool) -> None:
    assert vllm.is_fatal(line) is lost
