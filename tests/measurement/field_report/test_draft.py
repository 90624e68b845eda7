"""A draft redacts each part, and is written after each step."""

import json
from pathlib import Path

import pytest

from medley.errors import Problem
from medley.measurement.field_report.draft import Draft, run_verb
from medley.measurement.field_report.models import MeasuredModel, format_model_name
from medley.measurement.field_report.report import PlanRequest
from medley.network.fabric.choice import NetworkOptions
from medley.progress import SILENT
from medley.transcript import Answer
from tests.measurement.field_report.reports import draft
from tests.problems import raises_problem

PLANTED = {
    "hub-token": "hf_abcdefghijklmnopqrstuvwxyz0123",
    "key-of-the-environment": "correct-horse-battery",
    "key-behind-a-flag": "s3cret-of-ann",
    "password-of-a-table": "hunter2hunter2",
    "user-of-ssh": "bobby",
    "host": "bob-spark",
    "its-other-name": "bobs-box",
    "public-address": "8.8.4.4",
    "mac": "4c:bb:47:2d:11:99",
    "serial": "1423622098211",
    "prompt": "tell me of my divorce",
}


@pytest.fixture(autouse=True)
def secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path))
    monkeypatch.setenv("SOME_API_KEY", PLANTED["key-of-the-environment"])


def test_nothing_that_is_planted_is_written() -> None:
    lines: list[str] = []
    draft_report = Draft(lines.append, SILENT)
    text = " ".join(PLANTED[key] for key in ("hub-token", "key-of-the-environment", "host", "public-address"))
    transcript = {
        "env": Answer(f"{text} {PLANTED['mac']}\nSerial Number: {PLANTED['serial']}\n/home/bobby/x\n")
    }
    names = (PLANTED["host"], PLANTED["its-other-name"])
    draft_report.describe(
        {"here": (transcript, "spark"), "bob-spark": (transcript, None)},
        {"bob-spark": names},
        ["bobby"],
        NetworkOptions(),
    )
    draft_report.parts["collective"] = draft_report.redact(
        {
            "argv": [
                "vllm",
                "--api-key",
                PLANTED["key-behind-a-flag"],
                "serve",
                f"--token={PLANTED['hub-token']}",
            ],
            "env": {
                "MY_PASSWORD": PLANTED["password-of-a-table"],
                PLANTED["host"]: PLANTED["its-other-name"],
            },
            "log": [f"INFO request: prompt: '{PLANTED['prompt']}', user=bobby"],
        }
    )
    draft_report.skip(
        "link to bob-spark", Problem("bobs-box", cause=PLANTED["hub-token"], fix="ssh bobby@bob-spark")
    )
    draft_report.save()
    leaked = {name for name, secret in PLANTED.items() if secret in lines[-1]}
    assert leaked == set()
    table = json.loads(lines[-1])
    assert table["collective"]["argv"][2] == "HIDDEN"
    assert table["collective"]["env"] == {"MY_PASSWORD": "HIDDEN", "host-2": "host-2"}
    assert table["skipped"][0]["step"] == "link to host-2"


def test_what_is_equal_stays_equal_over_hosts() -> None:
    draft_report = draft()
    text = json.dumps(draft_report.parts)
    assert "ann" not in text.replace("annot", "").replace("channel", "")
    assert "bob" not in text
    assert draft_report.report_names == {"ann-spark": "host-1", "bob-spark": "host-2"}
    assert set(draft_report.parts["fabric"]["hosts"]) == {"host-1", "host-2"}
    assert draft_report.other_hosts == (("bob-spark", "bob.lan"),)


def test_a_step_that_fails_is_noted_and_the_next_goes_on() -> None:
    lines: list[str] = []
    draft_report = draft(lines)
    with draft_report.step("one"):
        raise Problem("it is broken", cause="why", fix="x")
    with draft_report.step("two"):
        draft_report.parts["doctor"] = {"counts": {}}
    with pytest.raises(KeyboardInterrupt), draft_report.step("three"):
        raise KeyboardInterrupt
    table = json.loads(lines[-1])
    assert [each["step"] for each in table["skipped"]] == ["one"]
    assert "cause: why" in table["skipped"][0]["why"]
    assert table["doctor"] == {"counts": {}}
    assert table["whole"] is False


def test_nothing_is_written_before_a_host_is_known() -> None:
    lines: list[str] = []
    Draft(lines.append, SILENT).save()
    assert lines == []


def test_a_verb_that_fails_says_why() -> None:
    with raises_problem("medley serve ", cause="'no-such-model'", fix="medley serve no-such-model --dry-run"):
        run_verb(("serve", "no-such-model", "--dry-run"), 60, SILENT)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("demo", "demo"),
        ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B"),
        ("/home/ann/my model (2)", "my-model-2"),
        ("./|", "model"),
    ],
)
def test_names_of_models(text: str, name: str) -> None:
    assert format_model_name(text) == name


def test_the_words_that_serve_a_model() -> None:
    assert MeasuredModel("demo", PlanRequest(engine="sglang", hosts=2, spread=True)).build_arguments(81) == (
        *("serve", "demo", "--port", "81", "--hosts", "2", "--dp", "1", "--engine", "sglang"),
    )
    assert MeasuredModel("m").build_arguments(81) == ("serve", "m", "--port", "81")
