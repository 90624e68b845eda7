"""What a verb says when what it started failed: what explain knows, else the program's own last words."""

from pathlib import Path

from medley import explain
from medley.errors import Problem
from medley.explain import explain_engine_end
from medley.process import ProcessResult

OWN = Problem("the engine ended", cause="its last word", fix="read it", status=3)
KNOWN = "RuntimeError: No CUDA GPUs are available\nRuntimeError: Engine core initialization failed.\n"


def test_what_is_known_takes_the_place(tmp_path: Path) -> None:
    log = tmp_path / "serve.log"
    log.write_text(KNOWN)
    found = explain.explain_problem(OWN, log)
    assert (found.what, found.status) == ("the engine ended", 3)
    assert found.cause.startswith("CUDA finds no GPU: No CUDA GPUs are available")
    assert found.fix.splitlines()[0].startswith("check the host: nvidia-smi")
    assert f"less {log}" in found.fix


def test_what_is_unknown_keeps_its_words(tmp_path: Path) -> None:
    log = tmp_path / "serve.log"
    log.write_text("FooError: odd\n")
    found = explain.explain_problem(OWN, log)
    assert (found.cause, found.fix.splitlines()[0]) == ("its last word", f"medley explain {log}")


def test_a_symptom_does_not(tmp_path: Path) -> None:
    log = tmp_path / "serve.log"
    log.write_text("RuntimeError: [x/gloo/transport/tcp/pair.cc:5] Connection closed by peer [10.0.0.2]:1\n")
    assert explain.explain_problem(OWN, log).cause == "its last word"


def test_without_a_log() -> None:
    assert explain.explain_problem(OWN, Path("/nonexistent/log")) is OWN
    assert explain.explain_output(OWN, KNOWN.splitlines()).cause.startswith("CUDA finds no GPU")


def test_an_engine_that_died(tmp_path: Path) -> None:
    log = tmp_path / "serve.log"
    log.write_text(KNOWN)
    lines = tuple(KNOWN.splitlines())
    problem = explain_engine_end(
        ProcessResult(1, lines), ready=False, log=log, last_error=lambda _: "Engine core …"
    )
    assert problem.what == "the engine ended with exit code 1 before it was ready"
    assert problem.cause.startswith("CUDA finds no GPU")
