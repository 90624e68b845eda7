"""SGLang's command line, from a plan."""

from pathlib import Path

import pytest

from medley import config
from medley.command import AnnotatedCommand
from medley.engine import sglang
from medley.engine.launch import serve_on_socket
from medley.engine.server_spec import ServerSpec
from medley.engine.shared_flags import drop_overridden_flags
from medley.host_schema import HostTable
from medley.planner.plan import NodeProcess, Plan
from medley.schema import Model

SERVING = ServerSpec(target="/m", name="demo", address="127.0.0.1", port=8000)
CPU, SPARK = config.load_hosts()["cpu"], config.load_hosts()["spark"]
NODES = NodeProcess(node_count=2, rank=1, address="10.0.0.1", port=24011)
BASE = "/env/bin/sglang serve /m --served-model-name demo --host 127.0.0.1 --port 8000 --enable-metrics"


def words(plan: Plan, *theirs: str, host: HostTable = SPARK, model: Model | None = None) -> str:
    flags = tuple(drop_overridden_flags(sglang.list_flags(SERVING, plan, host, model), theirs))
    return " ".join(
        AnnotatedCommand(sglang.build_argv(Path("/env/bin"), SERVING, plan), flags, (), theirs).command.argv
    )


@pytest.mark.parametrize(
    ("plan", "theirs", "line"),
    [
        pytest.param(Plan(), (), "--sleep-on-idle", id="nothing special"),
        pytest.param(Plan(tensor_parallel=2), (), "--tp-size 2 --sleep-on-idle", id="two GPUs"),
        pytest.param(
            Plan(stages=2, node_process=NODES, launcher="mp"),
            (),
            "--pp-size 2 --nnodes 2 --node-rank 1 --dist-init-addr 10.0.0.1:24011 --sleep-on-idle",
            id="a stage on each host",
        ),
        pytest.param(
            Plan(tensor_parallel=2, expert_parallel=True),
            (),
            "--tp-size 2 --ep-size 2 --sleep-on-idle",
            id="whole experts",
        ),
        pytest.param(
            Plan(
                memory_utilization=0.8, static_share=0.7, kv_cache_tokens=9, sequences=64, batch_tokens=4096
            ),
            (),
            "--mem-fraction-static 0.70 --max-running-requests 64 --chunked-prefill-size 4096"
            " --sleep-on-idle",
            id="a share says it all",
        ),
        pytest.param(
            Plan(static_share=0.7, kv_cache_bytes=99, kv_cache_tokens=9, context=4096, kv_type="fp8"),
            ("--context-length", "8"),
            "--max-total-tokens 9 --mem-fraction-static 0.70 --kv-cache-dtype fp8_e4m3 --sleep-on-idle"
            " --context-length 8",
            id="unlike hosts, 8 bits, and theirs wins",
        ),
        pytest.param(
            Plan(is_eager=True),
            (),
            "--cuda-graph-backend-decode disabled --cuda-graph-backend-prefill disabled --sleep-on-idle",
            id="eager, by the names that are current",
        ),
    ],
)
def test_command(plan: Plan, theirs: tuple[str, ...], line: str) -> None:
    assert words(plan, *theirs) == f"{BASE} {line}"


def test_a_cpu_is_told_its_tokens() -> None:
    told = Plan(kv_cache_bytes=99, kv_cache_tokens=9, is_eager=True)
    assert words(told, host=CPU) == f"{BASE} --device cpu --max-total-tokens 9 --sleep-on-idle"


@pytest.mark.parametrize(
    ("plan", "bound"),
    [
        pytest.param(Plan(threads=8), None, id="one rank: its own choice"),
        pytest.param(Plan(stages=2, threads=8), "0-3|4-7", id="two on one host share it"),
        pytest.param(Plan(tensor_parallel=2, threads=2), "0|1", id="a CPU each"),
        pytest.param(Plan(stages=2, threads=8, hosts=2), "0-7", id="one on each host"),
        pytest.param(Plan(tensor_parallel=4, threads=2), "0|1|0|1", id="more ranks than CPUs"),
    ],
)
def test_the_cpus_of_each_rank(plan: Plan, bound: str | None) -> None:
    found = {each.name: each.value for each in sglang.list_variables(SERVING, plan, CPU)}
    assert found.get("SGLANG_CPU_OMP_THREADS_BIND") == bound
    assert found["SGLANG_USE_CPU_ENGINE"] == "1"


def test_stages_have_the_layers_that_the_plan_cut() -> None:
    found = {
        each.name: each.value for each in sglang.list_variables(SERVING, Plan(layer_partition="9,3"), SPARK)
    }
    assert found == {"SGLANG_PP_LAYER_PARTITION": "9,3"}


def test_every_flag_has_its_reason() -> None:
    plan = Plan(
        tensor_parallel=2, stages=2, node_process=NODES, kv_cache_tokens=1, static_share=0.5, is_eager=True
    )
    for model in config.load_models().values():
        assert all(
            flag.why for host in (CPU, SPARK) for flag in sglang.list_flags(SERVING, plan, host, model)
        )


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        pytest.param(["[2026-11-22 08:01:33] INFO all is well"], None, id="none"),
        pytest.param(
            [
                "[2026-11-22 08:01:33 PP1 TP0] Scheduler hit an exception: Traceback:",
                '  File "scheduler.py", line 9, in run',
                "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
                "[2026-11-22 08:01:34] Received sigquit from a child process.",
            ],
            "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
            id="a rank's own",
        ),
        pytest.param(
            ["sglang serve: error: ambiguous option: --pp could match --pp-size"],
            "sglang serve: error: ambiguous option: --pp could match --pp-size",
            id="usage",
        ),
    ],
)
def test_last_error(lines: list[str], error: str | None) -> None:
    assert sglang.find_last_error(lines) == error


def test_it_listens_on_a_socket_and_gets_no_key() -> None:
    serving = ServerSpec("/m", "demo", key=Path("/k"), socket_folder=Path("/run/8000"))
    assert "--api-key" not in {
        word for flag in sglang.list_flags(serving, Plan(), SPARK, None) for word in flag.build_argv()
    }
    command = AnnotatedCommand(sglang.build_argv(Path("/env/bin"), serving, Plan()), (), ())
    started = serve_on_socket(command, serving, "/env/bin/python")
    assert Path(started.words[1]).name == "engine_server.py"
    assert started.words[2:4] == ("sglang", "serve")
    assert {each.name: each.value for each in started.variables} == {"MEDLEY_SOCKET": "/run/8000/engine.sock"}


def test_hosts_of_media_reach_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEDLEY_MEDIA_HOSTS", "a.example")
    serving = ServerSpec("/m", "demo", socket_folder=Path("/run/8000"))
    command = AnnotatedCommand(sglang.build_argv(Path("/env/bin"), serving, Plan()), (), ())
    started = serve_on_socket(command, serving, "/env/bin/python")
    assert {each.name: each.value for each in started.variables}["MEDLEY_MEDIA_HOSTS"] == "a.example"
