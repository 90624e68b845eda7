"""The index of decisions has every variable that a launch sets, and where it comes from."""

import subprocess
import sys
from fnmatch import fnmatchcase

import pytest

from medley.planner.placement import PlacementOptions
from medley.schema import EngineName
from tests.planner.imagined import launch_steps, site
from tools import decisions
from tools.architecture import ROOT


@pytest.mark.parametrize(
    ("model", "kinds", "engine"),
    [
        ("qwen3-8b", "spark:2", "vllm"),
        ("qwen3-8b", "thor", "sglang"),
        ("gpt-oss-120b", "spark:2,thor:1", "vllm"),
        ("demo", "cpu", "vllm"),
        ("demo", "cpu:2", "sglang"),
        ("qwen3-8b", "rtx", "vllm"),
    ],
)
def test_every_variable_of_a_launch_is_in_the_index(model: str, kinds: str, engine: EngineName) -> None:
    placement = PlacementOptions(engine=engine)
    steps = launch_steps(model, site(kinds, engine=engine), placement)
    names = {name for step in steps for name in step.started_process.command.env}
    known = [decision.name.replace("…", "*") for decision in decisions.variables()]
    assert {name for name in names if not any(fnmatchcase(name, pattern) for pattern in known)} <= {"PATH"}


def test_what_nix_alone_sets_is_named() -> None:
    places = {decision.name: decision for decision in decisions.variables()}
    assert places["TRITON_PTXAS_PATH"].value == "only with Nix"
    assert places["TORCH_CUDA_ARCH_LIST"].place == "nix/tables.nix"


def test_defaults_and_limits_have_their_places() -> None:
    rows = {
        (decision.name, decision.place.partition(":")[0]): decision.value for decision in decisions.defaults()
    }
    assert rows["--port", "cli/serve.py"] == "`ports.API_PORT`"
    limit = next(decision for decision in decisions.limits() if decision.name == "MAX_ANSWER_BYTES")
    assert limit.value.startswith("`64 << 20`. The limit of a whole answer")
    assert limit.place == "network/http_client.py"


def test_a_word_selects_rows() -> None:
    assert "GLOO_SOCKET_IFNAME" in decisions.tables("gloo")
    assert "--port" not in decisions.tables("gloo")


def test_choices_have_their_modules() -> None:
    rows = {decision.name: decision for decision in decisions.choices()}
    assert rows["choose_launcher"].place == "engine/launcher.py"
    assert rows["choose_launcher"].value.startswith("Return the launcher and the reason")


def test_without_a_row_the_tool_names_the_next_search() -> None:
    words = (sys.executable, "-m", "tools.decisions", "no-such-word")
    finished = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (finished.returncode, finished.stdout) == (1, "")
    assert "'no-such-word'" in finished.stderr
    assert "tools.architecture modules" in finished.stderr


def test_each_variable_has_the_reason_of_its_own_call() -> None:
    """A function that sets `reason` for several variables in turn gave all of them its last text."""
    index = next(decision for decision in decisions.variables() if decision.name == "NCCL_IB_GID_INDEX")
    assert "GID" in index.value


def test_limits_in_units_and_in_tuples_are_listed() -> None:
    names = {decision.name for decision in decisions.limits()}
    assert names >= {"SUBNET_AWARE_NCCL", "FAST_MBIT"}
