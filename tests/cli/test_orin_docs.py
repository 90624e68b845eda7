"""docs/how-to/jetson-orin.md shows what is printed, and names what there is."""

import shlex
from pathlib import Path

import pytest

from medley import config
from medley.cli.plan import PlanVerb
from medley.errors import Problem
from tests.planner.imagined import launch_steps, site

TYPED = "gpt-oss-120b --hosts spark:1,orin:1 --tp 1 --pp 2"
TEXT = (Path(__file__).parents[2] / "docs" / "how-to" / "jetson-orin.md").read_text(encoding="utf-8")


def test_the_problem_is_the_one_that_is_printed() -> None:
    with pytest.raises(Problem) as caught:
        PlanVerb.run(["medley plan", *shlex.split(TYPED)], exit=False)
    shown = TEXT.split(f"{TYPED}\n", 1)[1].split("\n\n", 1)[0]
    assert "\n".join(line.removeprefix("    ") for line in shown.splitlines()) == f"medley: {caught.value}"


def test_the_image_is_typed_as_the_plan_prints_it() -> None:
    *parts, serve = launch_steps("gpt-oss-120b", site("orin:2"))
    assert [part.is_ray_start for part in parts] == [True, True]
    for switch, value in (part.source_switch for part in parts):
        assert f'{switch.removeprefix("--")} = "{value}"' in TEXT
    assert f"    {serve.shell_text}\n" in TEXT


def test_the_table_is_what_hosts_say() -> None:
    old, new = config.load_hosts()["orin"], config.load_hosts()["orin-r39"]
    assert dict(new.environments) == {"vllm": "vllm-cuda"}
    assert dict(old.environments) == {}
    assert old.container.holds["vllm"] in TEXT
    assert old.upgrade == "JetPack 7.2"
    assert "docs/how-to/jetson-orin.md" in (old.no_environment or "")
