"""docs/tutorials/two-sparks.md: every command prints what the page shows."""

import os

import pytest

from tests.rack.rack import Rack
from tests.waiting import becomes_true
from tools.tutorials.pages import Step, difference, steps
from tools.tutorials.two_sparks import BY_HAND, PAGE, sparks, typed

pytestmark = pytest.mark.rack

AGAIN = "\n\nshow all output: python -m tools.tutorials two-sparks"
STATUS_LIMIT_S = 90


@pytest.mark.slow
def test_every_command_prints_what_the_page_shows() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: it makes namespaces and mounts")
    followed = list(steps(PAGE.read_text()))
    assert set(BY_HAND) < {step.command for step in followed}
    with sparks(f"pytest-{os.getpid()}-tutorial") as rack:
        for step in followed:
            found = _difference(rack, step)
            assert found is None, f"{step.host}$ {step.command}\n{found}{AGAIN}"


def _difference(rack: Rack, step: Step) -> str | None:
    """Look again at what takes its time to be as shown."""
    found: list[str | None] = []

    def agrees() -> bool:
        found.append(difference(step.shown, typed(rack, step)))
        return found[-1] is None

    becomes_true(agrees, STATUS_LIMIT_S if step.command == "medley status" else 0)
    return found[-1]
