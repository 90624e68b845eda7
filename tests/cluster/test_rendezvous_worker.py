"""The order of a host, as it is there."""

import json
from pathlib import Path

from medley.cluster import rendezvous_worker
from medley.command import AnnotatedCommand, Flag, Variable


def test_files_of_the_head_are_found_where_they_are_here(tmp_path: Path) -> None:
    reasoned = AnnotatedCommand(
        ("/head/bin/python", "/head/state/replicas.py", "/head/state/plan.json", "--"),
        (),
        (Variable("MEDLEY_PLAN", "/head/state/plan.json", "its plan"),),
        ("/home/ann/answers.py", "--limit", "5"),
    )
    files = {
        "/head/state/replicas.py": "print(1)",
        "/head/state/plan.json": "{}",
        "/home/ann/answers.py": "print(2)",
        "/home/ann/..": "print(3)",
    }
    sent = json.loads(json.dumps({**rendezvous_worker.build_command_table(reasoned), "files": files}))
    order = rendezvous_worker.localize_command_table(sent, tmp_path / "runs", {})
    command = rendezvous_worker.parse_command_table(order, Path("/own/bin"), ()).command
    python, replicas, plan, dashes, script, *words = command.argv
    assert (python, dashes, words) == ("/own/bin/python", "--", ["--limit", "5"])
    assert [Path(each).read_text() for each in (replicas, plan, script)] == ["print(1)", "{}", "print(2)"]
    assert command.env["MEDLEY_PLAN"] == plan
    assert Path(script).name == "answers.py"
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) == 4
    assert all(path.resolve().is_relative_to(tmp_path / "runs") for path in written)


def test_an_order_without_files_stays_as_it_is(tmp_path: Path) -> None:
    sent = {"words": ["/b/vllm"], "flags": [], "variables": [], "extra": [], "files": {}}
    assert rendezvous_worker.localize_command_table(sent, tmp_path, {}) == sent


def test_the_heads_cache_is_this_hosts_own(tmp_path: Path) -> None:
    reasoned = AnnotatedCommand(
        ("/head/bin/vllm",),
        (Flag(("--chat-template",), "/head/cache/needs/x/c.jinja", "x"), Flag(("-x",), None, "x")),
        (Variable("A", "/head/cache/needs/x", "x"), Variable("B", "/head/cache/models/x", "x")),
    )
    sent = json.loads(json.dumps({**rendezvous_worker.build_command_table(reasoned), "files": {}}))
    order = rendezvous_worker.localize_command_table(sent, tmp_path, {"/head/cache/needs/": "/own/needs/"})
    here = rendezvous_worker.parse_command_table(order, Path("/own/bin"), ())
    assert [each.value for each in here.flags] == ["/own/needs/x/c.jinja", None]
    assert [each.value for each in here.variables] == ["/own/needs/x", "/head/cache/models/x"]
