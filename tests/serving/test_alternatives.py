"""What is said to type instead of what does not fit is really a plan that fits."""

import json
import platform
import re
import shlex
from pathlib import Path

import pytest

from medley import config
from medley.cli.plan import PlanVerb
from medley.engine.launch import LaunchOrder
from medley.engine.server_spec import ServerSpec
from medley.errors import Problem
from medley.model.resolve import Weights
from medley.planner.candidates import ForcedSizes
from medley.planner.placement import PlacementOptions
from medley.planner.site import Site
from medley.serving.alternatives import plan_order
from tests.host.recordings import HOSTS
from tests.planner.imagined import shape, site


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path / "state"))


LONGER = "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1"


def run(*words: str) -> int:
    _, status = PlanVerb.run(["medley plan", *words], exit=False)
    return int(status)


def fixes(*words: str) -> list[str]:
    with pytest.raises(Problem) as caught:
        run(*words)
    return caught.value.fix.splitlines()


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        pytest.param(
            "gpt-oss-120b --hosts spark --context 131072 --concurrency 64",
            [
                "medley plan gpt-oss-120b --hosts spark --concurrency 64 --context 14336",
                "medley plan gpt-oss-120b --hosts spark --context 131072 --concurrency 8",
                "medley plan gpt-oss-120b --hosts spark:4 --context 131072 --concurrency 64",
            ],
            id="less, or more hosts",
        ),
        pytest.param(
            "glm-4.5-air --hosts=spark",
            [
                "medley plan glm-4.5-air-awq-fp16mix --hosts=spark",
                "medley plan glm-4.5-air --hosts spark:2",
            ],
            id="in fewer bits, by its name",
        ),
        pytest.param(
            "qwen3-8b --tp 3 --hosts spark:3",
            ["medley plan qwen3-8b --hosts spark:3", "medley plan qwen3-8b --hosts spark:3 --pp 3"],
            id="it does not divide so",
        ),
        pytest.param(
            "qwen3-8b --hosts spark:2 --dp 3",
            ["medley plan qwen3-8b --hosts spark:2"],
            id="too few hosts for that",
        ),
        pytest.param(
            "deepseek-v4.1-flash --hosts spark:4",
            ["medley plan deepseek-v4.1-flash --hosts spark:8"],
            id="more hosts, where no pipeline can be cut",
        ),
        pytest.param(
            "nemotron-3-super-120b-a12b-nvfp4 --hosts spark:2 --context 2000000",
            [
                "medley plan nemotron-3-super-120b-a12b-nvfp4 --hosts spark:2 --context 1048576",
                f"{LONGER} medley plan nemotron-3-super-120b-a12b-nvfp4 --hosts spark:2 --context 2000000",
            ],
            id="longer than its makers name",
        ),
        pytest.param(
            "qwen3-8b --hosts spark --context 1000000",
            ["medley plan qwen3-8b --hosts spark --context 40960"],
            id="longer than the model can",
        ),
    ],
)
def test_each_command_fits(
    typed: str, expected: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = [line.partition("  #")[0] for line in fixes(*typed.split())]
    assert said == expected
    for line in said:
        if line.startswith(LONGER):
            monkeypatch.setenv(*LONGER.split("="))
        assert run(*shlex.split(line.removeprefix(f"{LONGER} "))[2:], "--json") == 0, line
        assert json.loads(capsys.readouterr().out)["fit"]["short_bytes"] == 0


def test_of_a_recorded_host(capsys: pytest.CaptureFixture[str]) -> None:
    """As many like it as it takes, by what --hosts calls it."""
    file = str(HOSTS / "spark-pair-a.txt")
    *_, last = fixes("qwen2.5-72b-instruct", "--from", file, "--concurrency", "2")
    command, _, why = last.partition("  # ")
    assert command == "medley plan qwen2.5-72b-instruct --hosts spark:2 --concurrency 2"
    assert why == "plan it for 2 hosts like spark-pair-a"
    assert run(*shlex.split(command)[2:]) == 0
    assert " on 2 hosts · tensor parallel 2\n" in capsys.readouterr().out


def test_hosts_that_cannot_share_a_model_are_not_multiplied() -> None:
    """Orins with JetPack 7.2 form no cluster with PyPI's NCCL."""
    spark = "medley plan gpt-oss-120b --hosts spark:1  # plan it for 1 host like a DGX Spark"
    assert spark in fixes("gpt-oss-120b", "--hosts", "orin-r39:2")


def test_hosts_of_another_size_are_not_alike(tmp_path: Path) -> None:
    """The driver names the GPU of an Orin Nano of 8 GB as that of an AGX Orin of 64 GB."""
    text = (HOSTS / "orin-r36.txt").read_text(encoding="utf-8")
    small = tmp_path / "nano.txt"
    text = re.sub(r"MemTotal: +\d+ kB", "MemTotal: 7800000 kB", text)
    small.write_text(re.sub(r"MemAvailable: +\d+ kB", "MemAvailable: 6400000 kB", text), encoding="utf-8")
    found = fixes("qwen3-8b", "--from", str(small))
    assert not any("--hosts orin" in line for line in found)
    assert any("--hosts spark:1" in line for line in found)


def test_only_builds_of_the_same_model_are_named() -> None:
    """glm-5.3-flash-nvfp4 begins as glm-5.3 does, and is another model."""
    found = [line for line in fixes("glm-5.3", "--hosts", "spark:6") if line.startswith("medley plan glm")]
    assert [shlex.split(line)[2] for line in found] == ["glm-5.3-nvfp4", "glm-5.3"]


def test_a_format_is_not_looked_for_whose_build_is_known_and_too_large() -> None:
    """glm-5.3-nvfp4 has 464 GB as it is published; its matrices in 4 bits alone would fit."""
    assert fixes("glm-5.3", "--hosts", "spark:3") == [
        "medley plan glm-5.3 --hosts spark:8  # plan it for 8 hosts like spark-3"
    ]


def test_a_build_that_fits_tightly_says_so() -> None:
    first, *_ = fixes("glm-5.3", "--hosts", "spark:4")
    command, _, how = first.partition("  # ")
    assert command == "medley plan glm-5.3-nvfp4 --hosts spark:4"
    assert how.endswith(" tok/s, less memory free than is safe")


def test_a_model_that_no_pipeline_holds_has_a_plan_on_more_hosts() -> None:
    """vLLM cuts DeepSeek V4.1 into no stages, and its engrams fill the first: eight share each layer."""
    more = "medley plan deepseek-v4.1-flash --hosts spark:8  # plan it for 8 hosts like spark-4"
    assert fixes("deepseek-v4.1-flash", "--hosts", "spark:4") == [more]


def test_a_small_board_is_no_typical_one_of_the_same_name(tmp_path: Path) -> None:
    """An Orin Nano of 8 GB calls its GPU as an AGX Orin of 64 does; no known model is so small."""
    large = config.find_table_files("hosts/typical", ".txt")["orin"].read_text(encoding="utf-8")
    nano = large.replace("64349112 kB", "7802808 kB").replace("61203440 kB", "6291456 kB")
    assert nano != large
    (tmp_path / "nano.txt").write_text(nano)
    said = fixes("qwen3-4b-instruct-2507-fp8", "--from", str(tmp_path / "nano.txt"))
    assert not any("--hosts orin" in line for line in said)
    assert "GiB of weights: no known model is so small" in said[0]


def test_other_models_are_named_where_nothing_else_helps(tmp_path: Path) -> None:
    large = config.find_table_files("hosts/typical", ".txt")["orin"].read_text(encoding="utf-8")
    (tmp_path / "small.txt").write_text(
        large.replace("64349112 kB", "31000000 kB").replace("61203440 kB", "29000000 kB")
    )
    at = ("--from", str(tmp_path / "small.txt"))
    others = [line for line in fixes("gpt-oss-120b", *at) if "another model, which fits" in line]
    assert 1 <= len(others) <= 3
    for line in others:
        assert run(*shlex.split(line.partition("  #")[0])[2:]) == 0, line


def test_a_build_that_fits_has_its_speed() -> None:
    first, *_ = fixes("qwen3.8-27b", "--hosts", "rtx-5090")
    command, _, rate = first.partition("  # ")
    assert command == "medley plan qwen3.8-27b-nvfp4 --hosts rtx-5090"
    assert float(rate.removesuffix(" tok/s")) > 20


def test_what_no_table_has_in_fewer_bits() -> None:
    command, _, why = fixes("qwen3-32b", "--hosts", "rtx-5090")[0].partition("  # ")
    assert command == "medley plan ORG/NAME --hosts rtx-5090"
    assert why == "a repository with nvfp4 weights: about 19.2 GiB, which fits"


@pytest.mark.parametrize("word", ["qwen3-32b", "Qwen3-32B", "QWEN3-32B"])
def test_no_fix_repeats_the_command_that_failed(word: str) -> None:
    for command in (line.partition("  # ")[0] for line in fixes(word, "--hosts", "orin:1")):
        assert command != f"medley plan {word} --hosts orin:1"
        assert command.split()[2] == "ORG/NAME" or command.split()[4] != "orin:1"


def test_a_host_that_plans_alone_is_sent_to_its_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEDLEY_CLUSTER", str(tmp_path / "cluster.toml"))
    (tmp_path / "cluster.toml").write_text(f"[hosts.{platform.node()}]\n[hosts.other]\n")
    order = LaunchOrder(Weights("qwen3-8b", "Qwen/Qwen3-8B", None), ServerSpec("Qwen/Qwen3-8B", "qwen3-8b"))
    order = order.replace(placement=PlacementOptions(sizes=ForcedSizes(stages=2)))
    (host,) = site("spark").hosts.values()
    with pytest.raises(Problem) as caught:
        plan_order(order, shape("qwen3-8b"), Site({platform.node(): host}))
    assert caught.value.fix.splitlines()[0].startswith("medley up  # 1 of the 2 hosts of cluster.toml")


def test_hosts_of_the_cluster_that_are_missing_are_brought_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text("[hosts.spark-1]\n[hosts.spark-2]\n")
    monkeypatch.setenv("MEDLEY_CLUSTER", str(file))
    order = LaunchOrder(Weights("qwen3-8b", "Qwen/Qwen3-8B", None), ServerSpec("Qwen/Qwen3-8B", "qwen3-8b"))
    order = order.replace(
        placement=PlacementOptions(sizes=ForcedSizes(stages=2)),
        user_command=("medley", "serve", "qwen3-8b"),
    )
    with pytest.raises(Problem) as caught:
        plan_order(order, shape("qwen3-8b"), site("spark", "spark-1"))
    first, *_ = caught.value.fix.splitlines()
    assert first == "medley up  # 1 of the 2 hosts of cluster.toml have joined; then run this again"
