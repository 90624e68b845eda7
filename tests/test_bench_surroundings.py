"""What is kept beside the figures says nothing of whose hosts they are."""

from pathlib import Path

import pytest

from medley.bench.surroundings import anonymous, surroundings
from medley.described import Description
from medley.layout.shapes import Device, Layout, Link, Stage
from medley.layout.words import devices
from medley.measured import Speed, Wire, keep
from medley.recognised import answers

HOSTS = Path(__file__).parent / "hosts"
LINK = Link(200_000, 2.0, rdma=True)


def layout() -> Layout:
    stages = tuple(
        Stage((Device(f"{name} (192.168.177.1{nth})", 0, "spark", 1 << 36, 273.0, 125.0),), 18)
        for nth, name in enumerate(("ann-spark", "bob-spark"), 1)
    )
    return Layout(stages, LINK)


def described() -> Description:
    argv = ("/home/ann/env/bin/vllm", "serve", "/home/ann/models/m", "--port", "8000")
    return Description("vllm", "m", "/home/ann/models/m", argv, {"PATH": "/x"}, {}, layout())


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path))


def test_names_homes_and_hardware_addresses_are_gone_wherever_they_stand() -> None:
    told = {
        "ann-spark (192.168.177.11)": answers(str(HOSTS / "spark-pair-a.txt")),
        "bob-spark (192.168.177.12)": answers(str(HOSTS / "spark-pair-b.txt")),
    }
    found = surroundings("vllm", Path("/home/ann/env/bin"), told, described())
    text = str(found)
    assert "ann" not in text.replace("annot", "")
    assert "bob" not in text
    assert found["plan"]["layout"].count("host-") == 2
    assert [each["name"] for each in found["hosts"]] == ["host-2", "host-3"]  # the first is this one
    assert found["plan"]["argv"][0] == "/home/user/env/bin/vllm"
    assert "PATH" not in found["plan"]["env"]
    assert "GB10" in found["hosts"][0]["facts"]


def test_two_hosts_with_the_same_facts_are_told_apart_and_one_is_known_again() -> None:
    said = answers(str(HOSTS / "spark.txt"))
    (one,) = surroundings("vllm", Path("/x/bin"), {"spark-1": said}, None)["hosts"]
    (two,) = surroundings("vllm", Path("/x/bin"), {"spark-2": said}, None)["hosts"]
    (again,) = surroundings("vllm", Path("/x/bin"), {"spark-1": said}, None)["hosts"]
    assert one["same"] == again["same"] != two["same"]


def test_what_was_measured_of_these_hosts_comes_along() -> None:
    first, second = (device.host for device in devices(layout()))
    speed = Speed(first, 0, "GB10", 1, 230.0, 5.0, 60.0, "bfloat16", 20, "2026-11-22T10:00:00", "2.13")
    keep(
        [speed],
        [Wire(first, second, "nccl", 90_000.0, 12.0, "x"), Wire(first, "other", "nccl", 1.0, 1.0, "x")],
    )
    found = surroundings("vllm", Path("/x/bin"), {first: {}, second: {}}, described())["measured"]
    assert [each["gb_s"] for each in found["speeds"]] == [230.0]
    assert [each["mbit"] for each in found["wires"]] == [90_000.0]
    assert "ann" not in str(found)


def test_another_servers_plan_is_not_known() -> None:
    found = surroundings("sglang", Path("/x/bin"), {}, None)
    assert found["plan"] is None
    assert found["engine"]["name"] == "sglang"


def test_all_else_stays() -> None:
    table = {"a": [1, None, {"b": "vllm 0.32.0"}], "c": True}
    assert anonymous(table, ["host"]) == table
