"""Logs as people paste them: quoted, framed, in Docker's JSON, without colors' escapes or indentation."""

import json
import re
from collections.abc import Callable

import pytest

from tests.explain.test_explain import FAILURES, names, of

FORMS: dict[str, Callable[[str], str]] = {
    "quotation": lambda line: f"> {line}",
    "frame": lambda line: f"│ {line:150} │",
    "caret": lambda line: re.sub(r"^(\(\S+ pid=\d+\))", r"^[[1;36m\1^[[0;0m", line) + "^M",
    "margin": lambda line: f"    {line}",
    "docker-json": lambda line: json.dumps({"log": f"{line}\n", "stream": "stderr"}),
    "escape-lost": lambda line: re.sub(r"^(\(\S+ pid=\d+\))", r"[1;36m\1[0;0m", line),
    "mpirun": lambda line: f"[1,0]<stderr>:{line}",
    "compose": lambda line: f"vllm-1  | {line}",
    "journal": lambda line: f"Aug 19 18:34:30 host vllm[8707]: {line}",
    "kubernetes": lambda line: f"2026-08-21T15:04:45.450656877Z {line}",
}
START = "(EngineCore pid=9) INFO 11-22 08:01:33 [model.py:733] Resolved architecture: Qwen3ForCausalLM\n"


@pytest.mark.parametrize("form", FORMS)
def test_a_pasted_log_shows_the_same_failure(form: str) -> None:
    wrong = []
    for name, failure in list(FAILURES.items())[::4]:
        pasted = "\n".join(FORMS[form](line) for line in (START + failure.examples[0]).splitlines() if line)
        if names(of(START + failure.examples[0]))[:1] != names(of(pasted))[:1]:
            wrong.append(name)
    assert not wrong


def test_a_traceback_that_lost_its_indentation_has_its_error() -> None:
    frames = 'File "/opt/vllm/v1/worker/gpu_worker.py", line 9, in run\nself.go(1)\n'
    (found,) = of(f"Traceback (most recent call last):\n{frames}{frames}some.pkg.OddThing: odd\n").problems
    assert found.match.line.text == "some.pkg.OddThing: odd"
    assert "gpu_worker.py, run" in found.problem().cause
