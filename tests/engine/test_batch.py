"""A thousand requests to a real vLLM, of which twenty are wrong, through two runs that are killed."""

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.waiting import wait_for

pytestmark = pytest.mark.engine

LINES, WRONG = 1000, 20
LIMIT_S = 400


def wrong(number: int) -> str:
    kinds = (
        "{cut off",
        json.dumps({"custom_id": "1", "url": "/v1/completions", "body": {"prompt": "again"}}),
        json.dumps({"custom_id": f"empty-{number}", "url": "/v1/chat/completions", "body": {}}),
        json.dumps({"custom_id": f"far-{number}", "url": "/v1/audio", "body": {"prompt": "x"}}),
    )
    return kinds[number % len(kinds)]


def line(number: int) -> str:
    if number % (LINES // WRONG) == 0:
        return wrong(number // (LINES // WRONG))
    body = {"prompt": f"Hello {number}", "max_tokens": 4, "temperature": 0}
    return json.dumps({"custom_id": str(number), "url": "/v1/completions", "body": body})


def count(path: Path) -> int:
    return len(path.read_bytes().splitlines()) if path.exists() else 0


@pytest.mark.slow  # CI has it without an engine, in test_batch_sending and test_batch_book
def test_each_line_is_answered_once_through_two_kills(tmp_path: Path) -> None:
    source, answers = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("\n".join(line(number) for number in range(1, LINES + 1)))
    words = ("batch", "demo", str(source), str(answers), "--at-once", "4")
    for stop_at in (100, 300):
        before = count(answers)
        with subprocess.Popen((sys.executable, "-m", "medley", *words), stderr=subprocess.DEVNULL) as run:
            wait_for(
                f"{stop_at} more lines are answered",
                partial(answered_or_ended, answers, before + stop_at, run),
                LIMIT_S,
                state=partial(count, answers),
            )
            assert run.poll() is None
            run.send_signal(signal.SIGKILL)
        assert before + stop_at <= count(answers) < LINES - WRONG
        wait_for(
            "its engine ends too",
            lambda: not mentioning(str(answers)),
            60,
            state=lambda: mentioning(str(answers)),
        )
    # As a run that was cut off in the middle of a line leaves it.
    with answers.open("ab") as file:
        file.write(b'{"id": "batch_req_9", "custom_id": "9')
    last = subprocess.run(
        (sys.executable, "-m", "medley", *words, "--json"),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=True,
    )
    said = json.loads(last.stdout)
    assert (said["answered"], said["refused"], said["wrong"]) == (LINES - WRONG, 0, WRONG)
    found = [json.loads(each) for each in answers.read_text().splitlines()]
    ids = [each["custom_id"] for each in found]
    assert len(ids) == len(set(ids)) == LINES - WRONG
    assert all(each["response"]["body"]["usage"]["completion_tokens"] for each in found)
    errors = [json.loads(each) for each in Path(said["errors"]).read_text().splitlines()]
    assert [each["line"] for each in errors] == list(range(50, LINES + 1, 50))


def answered_or_ended(answers: Path, lines: int, run: "subprocess.Popen[bytes]") -> bool:
    return count(answers) >= lines or run.poll() is not None


def mentioning(text: str) -> list[int]:
    """Processes whose command line has this text, or whose parent was one of them: a killed run's engine."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (
                text in (process / "cmdline").read_text().replace("\0", " ")
                and int(process.name) != os.getpid()
            ):
                found.append(int(process.name))
        except OSError:
            continue
    return found
