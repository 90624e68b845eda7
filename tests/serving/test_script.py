"""What a script is started with: alone, on the ranks of a torchrun, and beside other replicas."""

import json
from pathlib import Path
from typing import Any

import pytest

from medley import config
from medley.engine.launch import ENGINES, Launch, LaunchOrder
from medley.engine.server_spec import ServerSpec
from medley.environment.tools import Tools
from medley.model.resolve import Weights
from medley.planner.placement import PlacementOptions
from medley.planner.plan import NodeProcess, Plan
from medley.schema import EngineName
from medley.serving.script import PLAN_VARIABLE, Script, read_script_plan

SCRIPT = Script(Path("/home/me/answers.py"), "print(1)\n", ("--limit", "5"))
NODES = NodeProcess(2, 1, "10.0.0.1", 24_020, "10.0.0.2")


@pytest.fixture(autouse=True)
def _state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path))


def launch(plan: Plan, engine: EngineName = "vllm", script: Script = SCRIPT, kind: str = "cuda") -> Launch:
    order = LaunchOrder(
        Weights("ORG/model", "ORG/model", None),
        ServerSpec("ORG/model", "ORG/model"),
        PlacementOptions(engine=engine),
    )
    return script.build_launch(
        order,
        plan,
        config.load_hosts()[kind],
        tools=Tools(Path("/env/bin")),
        environ={"PATH": "/usr/bin"},
    )


def test_it_gets_the_variables_of_the_models_table() -> None:
    model = config.load_models()["qwen3-8b"].replace(env={"vllm": {"VLLM_CONFIGURE_LOGGING": "1"}})
    order = LaunchOrder(Weights("one", "org/one", model), ServerSpec("org/one", "one"))
    assert (
        SCRIPT.build_launch(order, Plan(), config.load_hosts()["cuda"]).command.env["VLLM_CONFIGURE_LOGGING"]
        == "1"
    )


def plans(found: Launch) -> list[dict[str, Any]]:
    return [json.loads(text) for name, text in found.files.items() if name.endswith(".json")]


@pytest.mark.parametrize("engine", ENGINES)
def test_alone_it_is_python_with_a_plan(engine: EngineName, tmp_path: Path) -> None:
    found = launch(Plan(tensor_parallel=2, gpus=(0, 1), why=("all fits",)), engine)
    command = found.command
    assert command.argv == ("/env/bin/python", "/home/me/answers.py", "--limit", "5")
    assert command.env["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert command.env["PATH"] == "/env/bin:/usr/bin"
    (name,) = (each for each in found.files if each.endswith(".json"))
    assert command.env[PLAN_VARIABLE] == name
    assert Path(name).parent == tmp_path / "runs", "a model of the hub has a slash in its name"
    plan = read_script_plan(found)
    size = {"vllm": "tensor_parallel_size", "sglang": "tp_size"}[engine]
    assert plan["arguments"][size] == 2
    assert (plan["engine"], plan["model"], plan["replica"], plan["replicas"]) == (engine, "ORG/model", 0, 1)
    assert ("plan", "all fits") in found.list_reasons()
    assert (f"{size}=2", "number of ranks that share each layer") in found.list_reasons()


def test_the_same_plan_is_the_same_file() -> None:
    first, second = launch(Plan(sequences=4)), launch(Plan(sequences=4, why=("said otherwise",)))
    assert first.files == second.files
    assert first.files != launch(Plan(sequences=5)).files


def test_over_ray_the_class_is_told_so() -> None:
    found = launch(Plan(launcher="ray", stages=2, layer_partition="3,3"))
    assert read_script_plan(found)["arguments"]["distributed_executor_backend"] == "ray"
    assert found.command.env["VLLM_PP_LAYER_PARTITION"] == "3,3"


def test_torchrun_starts_it_for_each_rank_of_this_host() -> None:
    found = launch(Plan(launcher="mp", tensor_parallel=4, gpus=(0, 1), node_process=NODES))
    assert found.command.argv == (
        *("/env/bin/torchrun", "--nnodes", "2", "--node-rank", "1", "--master-addr", "10.0.0.1"),
        *("--master-port", "24020", "--nproc-per-node", "2", "/home/me/answers.py", "--limit", "5"),
    )
    told = read_script_plan(found)["arguments"]
    assert told["distributed_executor_backend"] == "external_launcher"
    assert told["tensor_parallel_size"] == 4
    assert not {"nnodes", "node_rank", "master_addr", "headless"} & set(told)
    assert found.files["/home/me/answers.py"] == "print(1)\n", "it goes to the other hosts"


def test_replicas_are_processes_with_gpus_of_their_own() -> None:
    found = launch(Plan(tensor_parallel=2, replicas=2, gpus=(0, 1, 2, 3)))
    python, program, *words = found.command.argv
    assert (python, Path(program).name) == ("/env/bin/python", "replicas.py")
    assert found.files[program], "it goes to the other hosts too"
    assert words[2:] == ["--", "/home/me/answers.py", "--limit", "5"]
    assert [found.files[name] for name in words[:2]] == [json.dumps(each, indent=1) for each in plans(found)]
    assert [(each["replica"], each["replicas"]) for each in plans(found)] == [(0, 2), (1, 2)]
    shown = [each["variables"]["CUDA_VISIBLE_DEVICES"] for each in plans(found)]
    assert shown == ["0,1", "2,3"]
    assert not [name for name in read_script_plan(found)["arguments"] if "data_parallel" in name]


def test_replicas_on_several_hosts_count_on() -> None:
    plan = Plan(
        launcher="mp", replicas=4, replicas_here=2, replicas_before=2, gpus=(0, 1), node_process=NODES
    )
    assert [each["replica"] for each in plans(launch(plan))] == [2, 3]
    assert all("VLLM_DP_RANK" not in each["variables"] for each in plans(launch(plan)))


def test_those_of_a_model_with_experts_know_of_each_other() -> None:
    plan = Plan(
        launcher="mp", replicas=4, replicas_here=2, replicas_before=2, gpus=(0, 1), node_process=NODES
    )
    first, second = plans(launch(plan, script=SCRIPT.replace(has_experts=True)))
    assert first["variables"] == {
        "VLLM_DP_SIZE": "4",
        "VLLM_DP_RANK": "2",
        "VLLM_DP_RANK_LOCAL": "0",
        "VLLM_DP_MASTER_IP": "10.0.0.1",
        "VLLM_DP_MASTER_PORT": "24020",
    }
    assert second["variables"]["VLLM_DP_RANK"] == "3"
    (here, _) = plans(launch(Plan(replicas=2), script=SCRIPT.replace(has_experts=True, port=7)))
    assert here["variables"]["VLLM_DP_MASTER_IP"] == "127.0.0.1"
    assert here["variables"]["VLLM_DP_MASTER_PORT"] == "7"


def test_sglangs_class_starts_its_own_replicas() -> None:
    found = launch(Plan(replicas=2), "sglang")
    assert read_script_plan(found)["arguments"]["dp_size"] == 2
    assert found.command.argv[0] == "/env/bin/python"
    assert (read_script_plan(found)["replica"], read_script_plan(found)["replicas"]) == (0, 1)
