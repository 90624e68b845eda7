"""The prediction in the terms that a benchmark measures."""

from pathlib import Path

import pytest

from medley.host.kind import load_answers
from medley.measurement.bench.context import (
    build_planner_load,
    convert_prediction,
    describe_conditions,
    predict_figures,
    redact_table,
)
from medley.measurement.bench.load import BenchLoad
from medley.planner import Device, HostLink, Layout, Stage, list_devices
from medley.planner.devices import DeviceSpeed, LinkSpeed, add_measurements
from medley.planner.prediction import Prediction, predict_speed
from medley.serving.server_description import Description
from tests.planner.layouts import QWEN_72B, spark

LOAD = BenchLoad((1, 4), input_tokens=1000, output_tokens=100)
PREDICTION = Prediction(0.5, 200.0, 50.0, 150.0, 260.0, "the wire", (0.02,), 4000.0)
"""Four streams of 50 tokens a second, and 4000 tokens of prompts."""


def test_the_time_of_the_prompts_is_counted() -> None:
    """Four prompts are read in a second, and four answers written in two."""
    figures = convert_prediction(PREDICTION, LOAD, 4)
    assert figures.output_tokens_per_s == pytest.approx(400 / 3)
    assert (figures.low, figures.high) == pytest.approx((100.0, 400 / 3 * 1.3))
    assert figures.tpot_ms == pytest.approx(20)
    assert figures.bound == "the wire"


def test_the_first_token_is_known_of_one_stream_alone() -> None:
    assert convert_prediction(PREDICTION, LOAD, 1).ttft_ms == 500
    assert convert_prediction(PREDICTION, LOAD, 4).ttft_ms is None


def test_half_an_answer_stands_behind_a_stream_on_average() -> None:
    load = build_planner_load(LOAD, 4)
    assert (load.concurrency, load.prompt_tokens, load.context_tokens) == (4, 1000, 1050)


def test_more_streams_are_more_tokens_and_never_as_many_as_without_prompts() -> None:
    layout = Layout((Stage((spark(),), QWEN_72B.layers),))
    rates = [predict_figures(QWEN_72B, layout, LOAD, many).output_tokens_per_s for many in (1, 4, 16)]
    assert rates == sorted(rates)
    assert rates[2] < predict_speed(QWEN_72B, layout, build_planner_load(LOAD, 16)).tokens_per_s


HOSTS = Path(__file__).parents[2] / "host" / "recorded"
LINK = HostLink(200_000, 2.0, rdma=True)


def layout() -> Layout:
    stages = tuple(
        Stage((Device(f"{name} (192.168.177.1{nth})", 0, "spark", 1 << 36, 273.0, 125.0),), 18)
        for nth, name in enumerate(("ann-spark", "bob-spark"), 1)
    )
    return Layout(stages, LINK)


def describe_server() -> Description:
    argv = ("/home/ann/env/bin/vllm", "serve", "/home/ann/models/m", "--port", "8000")
    return Description("vllm", "m", "/home/ann/models/m", argv, {"PATH": "/x"}, {}, layout())


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path))


def test_names_homes_and_hardware_addresses_are_gone_wherever_they_stand() -> None:
    transcripts = {
        "ann-spark (192.168.177.11)": load_answers(str(HOSTS / "spark-pair-a.txt")),
        "bob-spark (192.168.177.12)": load_answers(str(HOSTS / "spark-pair-b.txt")),
    }
    conditions = describe_conditions("vllm", Path("/home/ann/env/bin"), transcripts, describe_server())
    text = str(conditions)
    assert "ann" not in text.replace("annot", "")
    assert "bob" not in text
    assert conditions["plan"]["layout"].count("host-") == 2
    assert [host["name"] for host in conditions["hosts"]] == ["host-2", "host-3"]  # the first is this one
    assert conditions["plan"]["argv"][0] == "/home/user/env/bin/vllm"
    assert "PATH" not in conditions["plan"]["env"]
    assert "GB10" in conditions["hosts"][0]["facts"]


def test_two_hosts_with_the_same_facts_are_told_apart_and_one_is_known_again() -> None:
    transcript = load_answers(str(HOSTS / "spark.txt"))
    (first,) = describe_conditions("vllm", Path("/x/bin"), {"spark-1": transcript}, None)["hosts"]
    (second,) = describe_conditions("vllm", Path("/x/bin"), {"spark-2": transcript}, None)["hosts"]
    (first_again,) = describe_conditions("vllm", Path("/x/bin"), {"spark-1": transcript}, None)["hosts"]
    assert first["same"] == first_again["same"] != second["same"]


def test_what_was_measured_of_these_hosts_comes_along() -> None:
    first, second = (device.host for device in list_devices(layout()))
    speed = DeviceSpeed(first, 0, "GB10", 1, 230.0, 5.0, 60.0, "bfloat16", 20, "2026-11-22T10:00:00", "2.13")
    add_measurements(
        [speed],
        [
            LinkSpeed(first, second, "nccl", 90_000.0, 12.0, "x"),
            LinkSpeed(first, "other", "nccl", 1.0, 1.0, "x"),
        ],
    )
    measured = describe_conditions("vllm", Path("/x/bin"), {first: {}, second: {}}, describe_server())[
        "measured"
    ]
    assert [row["gb_s"] for row in measured["speeds"]] == [230.0]
    assert [row["mbit"] for row in measured["wires"]] == [90_000.0]
    assert "ann" not in str(measured)


def test_another_servers_plan_is_not_known() -> None:
    conditions = describe_conditions("sglang", Path("/x/bin"), {}, None)
    assert conditions["plan"] is None
    assert conditions["engine"]["name"] == "sglang"


def test_all_else_stays() -> None:
    table = {"a": [1, None, {"b": "vllm 0.32.0"}], "c": True}
    assert redact_table(table, ["host"]) == table
