import shlex
from pathlib import Path

import pytest

from medley import config
from medley.engine.launch import Launch, LaunchOrder, build_launch, plan_nodes
from medley.engine.server_spec import ServerSpec
from medley.environment.tools import Tools
from medley.model.resolve import Weights
from medley.planner import list_hosts
from medley.planner.candidates import ForcedSizes
from medley.planner.placement import PlacementOptions, place_model
from medley.planner.plan import NodeProcess, Plan, plan_engine
from medley.schema import EngineName, Model
from tests.planner.imagined import MODELS, shape, site

HOSTS = config.load_hosts()


def one(*extra: str, tools: Tools | None = None) -> Launch:
    order = LaunchOrder(
        Weights("demo", "/models/demo", config.load_models()["demo"]),
        ServerSpec("/models/demo", "demo", "127.0.0.1", 8000),
        engine_flags=extra,
    )
    return build_launch(
        order,
        Plan(gpus=(1,), why=("GPU 1",)),
        HOSTS["rtx"],
        tools=tools or Tools(Path("/env/bin")),
        environ={"PATH": "/usr/bin"},
    )


def test_the_command_has_what_the_reasons_name() -> None:
    found = one("--max-model-len", "99")
    text = shlex.split(str(found.command))
    for name, reason in found.list_reasons():
        assert reason
        assert name == "plan" or all(word in text for word in name.split()), name
    assert found.command.argv[-2:] == ("--max-model-len", "99")


def test_a_shells_own_python_settings_are_kept_from_the_engine() -> None:
    assert str(one().command).startswith("env -u PYTHONPATH -u PYTHONHOME CUDA_DEVICE_ORDER=PCI_BUS_ID ")
    ours = one().command.build_environment({"PYTHONPATH": "/x", "PYTHONHOME": "/x"})
    assert ours["PYTHONPATH"].endswith("/payload/stacks")
    assert "PYTHONHOME" not in ours


@pytest.mark.parametrize("folder", [Path("/run/8000"), None], ids=["on a socket", "as a plan prints it"])
def test_a_key_of_the_users_shell_is_not_the_engines(folder: Path | None) -> None:
    """vLLM would ask medley for it, at its own socket."""
    order = LaunchOrder(
        Weights("demo", "/models/demo", None), ServerSpec("/models/demo", "demo", socket_folder=folder)
    )
    environ = {"PATH": "/usr/bin", "VLLM_API_KEY": "sk-of-the-user"}
    found = build_launch(order, Plan(), HOSTS["rtx"], tools=Tools(Path("/env/bin")), environ=environ)
    assert ("VLLM_API_KEY" in found.command.build_environment(environ)) == (folder is None)


def test_the_toolkit_is_merged_and_ours_wins() -> None:
    env = one(
        tools=Tools(Path("/env/bin"), {"CUDA_HOME": "/c", "CUDA_VISIBLE_DEVICES": "9"}, ("/c/bin",))
    ).command.env
    assert (env["CUDA_HOME"], env["PATH"]) == ("/c", "/env/bin:/c/bin:/usr/bin")
    assert env["CUDA_VISIBLE_DEVICES"] == "1"


def test_the_model_s_variables_give_way_to_ours_and_to_the_user_s() -> None:
    env: dict[EngineName, dict[str, str]] = {
        "vllm": {"VLLM_MLA_DISABLE": "1", "VLLM_BATCH_INVARIANT": "1", "CUDA_VISIBLE_DEVICES": "7"},
        "sglang": {"SGLANG_LOG_MS": "1"},
    }
    model = Model(title="x", repository="a/b", env=env)
    order = LaunchOrder(Weights("x", "a/b", model), ServerSpec("a/b", "x"))
    found = build_launch(
        order, Plan(gpus=(1,)), HOSTS["rtx"], environ={"PATH": "/usr/bin", "VLLM_BATCH_INVARIANT": "2"}
    )
    set_ = found.command.env
    assert (set_["VLLM_MLA_DISABLE"], set_["VLLM_BATCH_INVARIANT"], set_["CUDA_VISIBLE_DEVICES"]) == (
        "1",
        "2",
        "1",
    )
    assert "SGLANG_LOG_MS" not in set_
    assert ("VLLM_MLA_DISABLE=1", "set in its table in models/") in found.list_reasons()


def test_without_a_toolkit_only_the_environments_programs_are_added() -> None:
    assert one().command.env["PATH"] == "/env/bin:/usr/bin"


def told(spec: str, sizes: ForcedSizes, model: str = "qwen3-32b") -> dict[str, Plan]:
    on = site(spec)
    choice = place_model(shape(model), on, PlacementOptions(sizes=sizes, concurrency=4))
    used = list_hosts(choice.layout)
    addresses = {host: f"10.0.0.{nth + 1}" for nth, host in enumerate(used)}
    one = plan_engine(choice, on.facts, MODELS[model], launcher="mp")
    return plan_nodes(one, choice.layout, addresses, 24_020)


def test_a_stage_on_each_host() -> None:
    first, second = told("spark:2", ForcedSizes(1, 2, 1)).values()
    assert first.node_process == NodeProcess(2, 0, "10.0.0.1", 24_020, "10.0.0.1")
    assert second.node_process == NodeProcess(2, 1, "10.0.0.1", 24_020, "10.0.0.2")
    assert first.layer_partition == second.layer_partition
    assert (first.gpus, second.gpus) == ((0,), (0,))
    assert first.stages == second.stages == 2


def test_replicas_are_counted_on() -> None:
    first, second = told("spark:2", ForcedSizes(1, 1, 2), "qwen3-8b").values()
    assert (first.replicas, first.replicas_here, first.replicas_before) == (2, 1, 0)
    assert (second.replicas, second.replicas_here, second.replicas_before) == (2, 1, 1)
