import json
from pathlib import Path

import pytest

from medley import storage
from medley.cluster import model_files
from medley.cluster.model_files import choose_reference
from medley.model import extra_files
from medley.model.extra_files import ModelExtras
from medley.model.remote_code import Code
from medley.progress import SILENT
from medley.schema import ExtraFile
from tests.problems import raises_problem

HERE, THERE = "a" * 64, "b" * 64
CODE = Code("/m", {"a.py": HERE})
NEED = ExtraFile(kind="tiktoken", what="x", name="x.tiktoken", sha256=HERE, url="http://example.org/x")


def test_the_same_code_on_all_hosts_is_well() -> None:
    model_files.require_same_code(CODE, {"one (10.0.0.1)": {"a.py": HERE}, "two (10.0.0.2)": {"a.py": HERE}})


@pytest.mark.parametrize(
    ("files", "said"),
    [
        pytest.param({"a.py": THERE}, f"a.py: SHA-256 {THERE}, trusted is {HERE}", id="another"),
        pytest.param({}, f"a.py: SHA-256 missing, trusted is {HERE}", id="none"),
        pytest.param({"a.py": HERE, "b.py": THERE}, f"b.py: SHA-256 {THERE}, trusted is none", id="one more"),
    ],
)
def test_a_host_with_other_code_is_named(files: dict[str, str], said: str) -> None:
    with raises_problem("/m ", "two", cause=said, fix="rsync -a /m/ HOST:/m/"):
        model_files.require_same_code(CODE, {"one": {"a.py": HERE}, "two": files})


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        pytest.param({"path": "/c", "error": "No space left"}, "No space left", id="disk full"),
        pytest.param({"path": "/c", "sha256": THERE}, f"not {HERE}", id="another file"),
        pytest.param({}, "SHA-256 there is None", id="nothing"),
    ],
)
def test_a_file_that_did_not_arrive_is_a_problem(said: dict[str, str], cause: str) -> None:
    with raises_problem("x.tiktoken", "two", cause=cause, fix="df -h ~"):
        model_files.require_copied("two", NEED, said)


def test_one_that_arrived_is_well() -> None:
    model_files.require_copied("two", NEED, {"path": "/c", "sha256": HERE, "written": False})


def test_a_host_that_joins_has_it_in_its_own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    content = b"tokens"
    need = NEED.replace(sha256=storage.hash_bytes(content), url="http://127.0.0.1:9/x")
    monkeypatch.setenv("MEDLEY_CACHE", "/head/cache")
    table = json.loads(
        json.dumps(
            ModelExtras(files=extra_files.require_usable_extras((need,), "vllm", trusted=False)).build_table()
        )
    )
    monkeypatch.setenv("MEDLEY_CACHE", str(tmp_path))
    found = extra_files.read_extras(table)
    ((_, path),) = found.files
    assert path.is_relative_to(tmp_path)
    with raises_problem("x.tiktoken", cause="http://127.0.0.1:9/x: ") as caught:
        model_files.fetch_extra_files(found, "head", SILENT)
    assert [
        each in caught.value.fix for each in ("http://127.0.0.1:9/x", str(path), storage.hash_bytes(content))
    ] == [True] * 3
    path.write_bytes(content)
    model_files.fetch_extra_files(found, "head", SILENT)
    assert storage.find_cache_folder() == tmp_path


def test_a_host_that_joins_with_other_code_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("1")
    own = Code(str(tmp_path), {"a.py": storage.hash_bytes(b"1")})
    table = json.loads(json.dumps(ModelExtras(own).build_table()))
    model_files.fetch_extra_files(extra_files.read_extras(table), "head", SILENT)
    (tmp_path / "a.py").write_text("2")
    with raises_problem(str(tmp_path), cause="a.py: SHA-256 ", fix=f"rsync -a head:{tmp_path}/ {tmp_path}/"):
        model_files.fetch_extra_files(extra_files.read_extras(table), "head", SILENT)


@pytest.mark.parametrize(
    ("digests", "origin", "host"),
    [
        pytest.param({"a": "x"}, None, "a", id="one"),
        pytest.param({"a": "x", "b": "y", "c": "y"}, None, "b", id="the first of the most"),
        pytest.param({"a": "x", "b": "y"}, None, "a", id="two that differ"),
        pytest.param({"a": "x", "b": "y", "c": "y"}, "a", "a", id="as the user says"),
        pytest.param({"a": "x"}, "b", "a", id="the user's has none"),
    ],
)
def test_whose_copy_counts(digests: dict[str, str], origin: str | None, host: str) -> None:
    assert choose_reference(digests, origin) == host
