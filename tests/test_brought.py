import json
from pathlib import Path

import pytest

from medley import beside, brought, fingerprint, store
from medley.beside import Beside
from medley.problem import Problem
from medley.reasoned import Flag, Reasoned
from medley.remote_code import Code
from medley.tables import Need
from medley.variables import Variable
from medley.watch import SILENT

HERE, THERE = "a" * 64, "b" * 64
CODE = Code("/m", {"a.py": HERE})
NEED = Need(kind="tiktoken", what="x", name="x.tiktoken", sha256=HERE, url="http://example.org/x")


def test_the_same_code_on_all_hosts_is_well() -> None:
    brought.require_same(CODE, {"one (10.0.0.1)": {"a.py": HERE}, "two (10.0.0.2)": {"a.py": HERE}})


@pytest.mark.parametrize(
    ("files", "said"),
    [
        pytest.param({"a.py": THERE}, f"a.py: SHA-256 {THERE}, trusted is {HERE}", id="another"),
        pytest.param({}, f"a.py: SHA-256 missing, trusted is {HERE}", id="none"),
        pytest.param({"a.py": HERE, "b.py": THERE}, f"b.py: SHA-256 {THERE}, trusted is none", id="one more"),
    ],
)
def test_a_host_with_other_code_is_named(files: dict[str, str], said: str) -> None:
    with pytest.raises(Problem, match="two has other code in /m") as caught:
        brought.require_same(CODE, {"one": {"a.py": HERE}, "two": files})
    assert caught.value.cause == said


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        pytest.param({"path": "/c", "error": "No space left"}, "No space left", id="disk full"),
        pytest.param({"path": "/c", "sha256": THERE}, f"and not {HERE}", id="another file"),
        pytest.param({}, "SHA-256 is None", id="nothing"),
    ],
)
def test_a_file_that_did_not_arrive_is_a_problem(said: dict[str, str], cause: str) -> None:
    with pytest.raises(Problem, match="could not be brought to two") as caught:
        brought.require_there("two", NEED, said)
    assert cause in caught.value.cause


def test_one_that_arrived_is_well() -> None:
    brought.require_there("two", NEED, {"path": "/c", "sha256": HERE, "written": False})


def test_a_host_that_joins_has_it_in_its_own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    content = b"tokens"
    need = NEED.model_copy(update={"sha256": fingerprint.of_bytes(content), "url": "http://127.0.0.1:9/x"})
    monkeypatch.setenv("MEDLEY_CACHE", "/head/cache")
    table = json.loads(json.dumps(Beside(files=beside.files((need,), "vllm", trusted=False)).table()))
    monkeypatch.setenv("MEDLEY_CACHE", str(tmp_path))
    found = beside.from_table(table)
    ((_, path),) = found.files
    assert path.is_relative_to(tmp_path)
    with pytest.raises(Problem, match="cannot be fetched"):
        brought.ready(found, "head", SILENT)
    path.write_bytes(content)
    brought.ready(found, "head", SILENT)
    told = Reasoned(
        ("vllm",),
        (
            Flag(("--chat-template",), f"/head/cache/needs/{path.parent.name}/c.jinja", "x"),
            Flag(("-x",), None, "x"),
        ),
        (
            Variable("A", f"/head/cache/needs/{path.parent.name}", "x"),
            Variable("B", "/head/cache/models/x", "x"),
        ),
    )
    here = brought.here(told, table["cache"])
    assert [each.value for each in here.flags] == [str(path.parent / "c.jinja"), None]
    assert [each.value for each in here.variables] == [str(path.parent), "/head/cache/models/x"]
    assert store.cache() == tmp_path


def test_a_host_that_joins_with_other_code_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("1")
    own = Code(str(tmp_path), {"a.py": fingerprint.of_bytes(b"1")})
    table = json.loads(json.dumps(Beside(own).table()))
    brought.ready(beside.from_table(table), "head", SILENT)
    (tmp_path / "a.py").write_text("2")
    with pytest.raises(Problem, match="this host has other code"):
        brought.ready(beside.from_table(table), "head", SILENT)
