"""What is typed on which host, and that it comes to what was planned."""

import shlex
from itertools import pairwise
from pathlib import Path

import pytest

from medley import config
from medley.cli.plan import list_command_lines
from medley.engine.launch import LaunchOrder
from medley.engine.server_spec import ServerSpec
from medley.environment import engine_source
from medley.host.kind import SiteHost, find_kind
from medley.model.resolve import Weights
from medley.network.fabric.choice import NetworkOptions
from medley.planner.candidates import ForcedSizes
from medley.planner.placement import PlacementOptions, place_model
from medley.planner.site import Site
from medley.schema import EngineName
from medley.serving.engine_sources import add_engine_sources
from medley.serving.typed_commands import LaunchStep, list_steps
from tests.host.recordings import recorded
from tests.network.fabric.groups import RING
from tests.planner.imagined import launch_steps, shape, site
from tests.problems import raises_problem


def of(step: LaunchStep) -> tuple[str, list[str]]:
    return step.host, shlex.split(step.shell_text)


def test_one_host_serves_by_one_command() -> None:
    (one,) = launch_steps("qwen3-8b", site("rtx"))
    assert of(one) == ("rtx-1", ["medley", "serve", "qwen3-8b"])
    assert one.started_process.command.argv[:3] == ("vllm", "serve", "Qwen/Qwen3-8B")
    assert "PATH" not in one.started_process.command.env


def test_a_cluster_is_made_first() -> None:
    head, worker, serve = launch_steps("gpt-oss-120b", site("spark:2"))
    assert of(head) == ("spark-1", ["medley", "ray-head"])
    assert worker.host == "spark-2"
    address = head.started_process.command.env["VLLM_HOST_IP"]
    assert f"medley ray-worker {address} --token-file -" in worker.shell_text
    assert ("--address", f"{address}:24000") in pairs(worker)
    assert of(serve) == ("spark-1", ["medley", "serve", "gpt-oss-120b", "--hosts", "2"])
    assert serve.started_process.command.env["RAY_ADDRESS"] == f"{address}:24000"
    assert ("--tensor-parallel-size", "2") in pairs(serve)


def pairs(step: LaunchStep) -> set[tuple[str, str]]:
    argv = step.started_process.command.argv
    return set(pairwise(argv))


def test_all_hosts_meet_on_one_wire() -> None:
    found = launch_steps(
        "qwen2.5-72b-instruct", site("spark:2,thor:2"), PlacementOptions(sizes=ForcedSizes(1, 4, 1))
    )
    names = {step.started_process.command.env["VLLM_HOST_IP"].rpartition(".")[0] for step in found}
    assert len(found) == 5
    assert len(names) == 1, "all addresses are in one network"
    assert found[-1].started_process.command.env["VLLM_PP_LAYER_PARTITION"].count(",") == 3


@pytest.mark.parametrize(
    ("kinds", "typed_link"),
    [
        pytest.param("spark,rtx", [], id="both have the fast wire"),
        pytest.param("spark,orin-r39", ["--link", "enP7s7"], id="a Spark's fast port leads to no Orin"),
        pytest.param("thor,orin-r39", ["--link", "enP2p1s0"], id="nor do a Thor's lanes"),
    ],
)
def test_a_head_is_told_its_wire_where_it_would_take_another(
    kinds: str, typed_link: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEDLEY_FLAKE", "/flake")  # which has an NCCL for an Orin
    head, worker, serve = launch_steps("qwen3-8b", site(kinds), PlacementOptions(sizes=ForcedSizes(1, 2, 1)))
    assert of(head)[1] == ["medley", "ray-head", *typed_link]
    assert (
        head.started_process.command.env["VLLM_HOST_IP"] == serve.started_process.command.env["VLLM_HOST_IP"]
    )
    assert (
        worker.started_process.command.env["VLLM_HOST_IP"]
        != serve.started_process.command.env["VLLM_HOST_IP"]
    )


def test_a_wire_that_was_asked_for_is_typed_too() -> None:
    """By itself the head would take its fast port again."""
    head, worker, serve = launch_steps(
        "gpt-oss-120b",
        site("spark:2"),
        PlacementOptions(sizes=ForcedSizes(2), network=NetworkOptions("enP7s7")),
    )
    assert of(head)[1] == ["medley", "ray-head", "--link", "enP7s7"]
    addresses = [step.started_process.command.env["VLLM_HOST_IP"] for step in (head, worker, serve)]
    assert [each.rpartition(".")[0] for each in addresses] == ["192.168.1"] * 3


def test_a_folder_is_typed_by_its_path() -> None:
    """Called like a known model, which lies elsewhere."""
    found = Weights("qwen3-8b", "/models/my own/qwen3-8b", None)
    serving = ServerSpec(found.target, "mine", "0.0.0.0")
    order = LaunchOrder(found, serving)
    on, made = site("rtx"), shape("qwen3-8b")
    (one,) = list_steps(order, place_model(made, on, order.placement), on)
    assert of(one)[1] == [
        *("medley", "serve", "/models/my own/qwen3-8b"),
        *("--served-model-name", "mine", "--host", "0.0.0.0"),
    ]


def test_replicas_are_servers_of_their_own() -> None:
    wanted = PlacementOptions(goal="throughput", concurrency=64, context=2048, sizes=ForcedSizes(1, 1, 2))
    found = launch_steps("qwen3-4b-instruct-2507", site("rtx:2"), wanted)
    assert [step.host for step in found] == ["rtx-1", "rtx-2"]
    for step in found:
        assert of(step)[1][3:] == [
            *("--for", "throughput", "--concurrency", "32", "--context", "2048"),
            *("--tp", "1", "--pp", "1"),
        ]
        assert "RAY_ADDRESS" not in step.started_process.command.env


def test_a_cluster_that_runs_is_only_served_over() -> None:
    on = site("cpu:3").replace(
        rank_order=("cpu-1", "cpu-2", "cpu-3"),
        free_slots={"cpu-1": 1, "cpu-2": 1, "cpu-3": 1},
        addresses={f"cpu-{n}": f"10.40.0.{9 + n}" for n in (1, 2, 3)},
    )
    (serve,) = launch_steps("demo", on, PlacementOptions(host_count=2, sizes=ForcedSizes(stages=2)))
    assert of(serve)[1][:5] == ["medley", "serve", "demo", "--hosts", "2"]
    assert serve.started_process.command.env["VLLM_HOST_IP"] == "10.40.0.10"
    (alone,) = launch_steps("demo", on, PlacementOptions(host_count=1))
    assert of(alone)[1] == ["medley", "serve", "demo", "--hosts", "1"]


def test_a_part_of_a_hosts_gpus_is_named() -> None:
    one = site("rtx")
    facts, kind = one.hosts["rtx-1"]
    second = facts.gpus[0].replace(index=1)
    two = Site({"rtx-1": SiteHost(facts.replace(gpus=(*facts.gpus, second)), kind)})
    (alone,) = launch_steps("qwen3-8b", two, PlacementOptions(sizes=ForcedSizes(1, 1, 1)))
    assert of(alone)[1] == ["medley", "serve", "qwen3-8b", "--gpus", "0", "--tp", "1", "--pp", "1"]
    assert alone.started_process.command.env["CUDA_VISIBLE_DEVICES"] == "0"
    found = launch_steps("qwen3-8b", two, PlacementOptions(sizes=ForcedSizes(1, 1, 2)))
    assert [of(step)[1][3:5] for step in found] == [["--gpus", "0"], ["--gpus", "1"]]
    assert [("--port", "8000") in pairs(step) for step in found] == [True, False]
    assert of(found[1])[1][-2:] == ["--port", "8001"]


def test_a_kind_without_an_environment_runs_out_of_its_image() -> None:
    """PyPI has no build for an Orin on L4T r36."""
    head, worker, serve = launch_steps("gpt-oss-120b", site("orin:2"))
    assert of(head)[1] == ["medley", "ray-head", "--image", "default"]
    assert worker.shell_text.endswith("--token-file - --image default")
    assert "--image" not in serve.shell_text, "name the image of the running Ray"
    assert {step.image for step in (head, worker, serve)} == {
        config.load_hosts()["orin"].container.older[0].image
    }
    (alone,) = launch_steps("qwen3-8b", site("orin"))
    assert of(alone)[1] == ["medley", "serve", "qwen3-8b", "--image", "default"]
    there = launch_steps("gpt-oss-120b", site("spark:2"))
    assert [step.image for step in there] == [None] * 3
    assert not any("--image" in step.shell_text for step in there)


def test_no_image_is_started_without_ray() -> None:
    wanted = PlacementOptions(sizes=ForcedSizes(1, 2, 1), launcher="mp", needs_one_server=True)
    request = engine_source.EngineRequest()
    with raises_problem(cause="vLLM in an image only, and images need Ray"):
        launch_steps("gpt-oss-120b", add_engine_sources(site("orin:2"), wanted, request), wanted)
    own = add_engine_sources(site("orin:2"), wanted, request.replace(environment="VENV"))
    assert all(step.shell_text.endswith("--env VENV") for step in launch_steps("gpt-oss-120b", own, wanted))


@pytest.mark.parametrize(
    ("kinds", "length"),
    [
        pytest.param("orin", "40960", id="vLLM 0.12.0 finds no length by itself"),
        pytest.param("orin-r39", "auto", id="that of the lock does"),
    ],
)
def test_an_older_engine_is_told_the_length(kinds: str, length: str) -> None:
    (one,) = launch_steps("qwen3-8b", site(kinds))
    assert ("--max-model-len", length) in pairs(one)


def test_the_plans_reasons_go_with_what_serves() -> None:
    *_, serve = launch_steps("gpt-oss-120b", site("spark:2"))
    assert any(line.startswith("tensor parallel 2 on spark-1, spark-2") for line in serve.why)
    assert any("of each GPU's memory" in line or "KV cache" in line for line in serve.why)


def test_the_engines_own_flags_go_along() -> None:
    (one,) = launch_steps("qwen3-8b", site("rtx"), PlacementOptions(), "--seed", "7 8")
    assert one.shell_text.endswith("-- --seed '7 8'")
    assert one.started_process.command.argv[-2:] == ("--seed", "7 8")


@pytest.mark.parametrize("kinds", ["spark:2", "rtx", "spark:2,thor:2"])
def test_what_is_printed_is_what_is_started(kinds: str) -> None:
    """Lines broken for people are one command to a shell."""
    found = launch_steps("gpt-oss-120b", site(kinds))
    text = "\n".join(list_command_lines(found)) + "\non "
    for step in found:
        block = text.split(f"on {step.host}: {step.shell_text}\n", 1)[1].split("\non ", 1)[0]
        words = shlex.split(block.replace("\\\n", ""))  # as a shell joins lines
        away = ["env", "-u", "PYTHONPATH", "-u", "PYTHONHOME"]
        assert words[: len(away)] == away
        words, env = words[len(away) :], dict(step.started_process.command.env)
        words = [word.replace("$HOME", str(Path.home())) for word in words]
        assert dict(word.split("=", 1) for word in words[: len(env)]) == env
        assert tuple(words[len(env) :]) == step.started_process.command.argv
        assert max(map(len, block.splitlines())) <= 104 or "parser" in block


def test_without_ray_each_host_has_a_process_of_its_own() -> None:
    wanted = PlacementOptions(sizes=ForcedSizes(1, 2, 1), launcher="mp", needs_one_server=True)
    serve, join = launch_steps("qwen3-32b", site("spark:2"), wanted)
    assert of(serve)[1][:7] == ["medley", "serve", "qwen3-32b", "--hosts", "2", "--launcher", "mp"]
    address = serve.started_process.command.env["VLLM_HOST_IP"]
    assert join.host == "spark-2"
    assert f"medley join {address} --token-file -" in join.shell_text
    for rank, step in enumerate((serve, join)):
        assert ("--node-rank", str(rank)) in pairs(step)
        assert ("--master-addr", address) in pairs(step)
        assert "RAY_ADDRESS" not in step.started_process.command.env
    assert "--headless" in join.started_process.command.argv
    assert (
        serve.started_process.command.env["VLLM_PP_LAYER_PARTITION"]
        == join.started_process.command.env["VLLM_PP_LAYER_PARTITION"]
    )


def test_sglang_over_ray_is_started_rank_by_rank() -> None:
    head, worker, serve = launch_steps(
        "qwen3-32b", site("spark:2"), PlacementOptions(sizes=ForcedSizes(2, 1, 1), engine="sglang")
    )
    assert "--engine sglang" in head.shell_text
    assert "--engine sglang" in worker.shell_text
    assert serve.started_process.command.argv[1].endswith("payload/sglang_ray.py")
    ranks = serve.started_process.command.env["MEDLEY_RANKS"].split(",")
    assert ranks == [step.started_process.command.env["SGLANG_HOST_IP"] for step in (head, worker)]


@pytest.mark.parametrize(
    ("engine", "nccl", "ring"),
    [
        pytest.param("sglang", None, True, id="SGLang's lock has an NCCL that asks which cable leads where"),
        pytest.param("vllm", None, True, id="vLLM's too"),
        pytest.param("vllm", (2, 29, 7), False, id="an older one does not"),
    ],
)
def test_a_ring_of_cables_is_used_where_the_nccl_of_the_engine_knows_it(
    engine: EngineName, nccl: tuple[int, ...] | None, ring: object
) -> None:
    hosts = {name: recorded(name) for name in RING}
    on = Site({name: SiteHost(found, find_kind(found)) for name, found in hosts.items()})
    wanted = PlacementOptions(engine=engine, sizes=ForcedSizes(1, 3, 1))
    on = add_engine_sources(on, wanted, engine_source.EngineRequest())
    *_, serve = launch_steps("qwen3-8b", on.replace(nccl_version=nccl) if nccl else on, wanted)
    assert (serve.started_process.command.env.get("NCCL_IB_SUBNET_AWARE_ROUTING") == "1") is ring


@pytest.mark.parametrize("nccl", [(2, 30, 7), (2, 29, 7)])
def test_a_running_cluster_has_the_nccl_of_its_own_environment(nccl: tuple[int, ...]) -> None:
    on = site("spark:2", "spark-1", "spark-2").replace(nccl_version=nccl)
    assert on.complete_options(NetworkOptions(), "vllm").nccl_version == nccl
    assert on.select_hosts(["spark-1"]).complete_options(NetworkOptions(), "sglang").nccl_version == nccl
