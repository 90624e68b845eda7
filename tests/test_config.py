from pathlib import Path

import pytest

from medley import config
from medley.problem import Problem
from medley.tables import Host, Model, Recipe, Table

HOST = """
title = "x"
systems = ["x86_64-linux"]
device = "cpu"
[recognise]
[memory]
unified = true
"""


def test_every_table_that_comes_with_medley_is_right() -> None:
    wrong = config.check()
    assert {path.parent.name for path in wrong} == {"hosts", "models", "locks"}
    assert {path: problem for path, problem in wrong.items() if problem} == {}


@pytest.mark.parametrize(
    ("text", "shape", "what", "fix"),
    [
        pytest.param("title = ", Host, "is not TOML", "mend that line", id="no TOML"),
        pytest.param(
            HOST + "unifeid = true",
            Host,
            "'memory.unifeid' is wrong",
            "rename it to 'unified'",
            id="typo in a table",
        ),
        pytest.param(
            "titel = 'x'\n" + HOST, Host, "'titel' is wrong", "rename it to 'title'", id="typo at the top"
        ),
        pytest.param("zzz = 'x'\n" + HOST, Host, "'zzz' is wrong", "remove it", id="like nothing known"),
        pytest.param("title = 'x'", Host, "'systems' is missing", "add 'systems = …'", id="missing"),
        pytest.param(
            HOST.replace('"x"', "3"), Host, "'title' is wrong", "mend 'title'", id="a number for a word"
        ),
        pytest.param(
            HOST + "[toolkit]\ncuda = 13.0",
            Host,
            "'toolkit.cuda' is wrong",
            "mend",
            id="a float for a version",
        ),
        pytest.param(
            HOST + "[toolkit]\ncuda = '13'", Host, "'toolkit.cuda' is wrong", "mend", id="half a version"
        ),
        pytest.param("title = 'x'", Model, "'the table' is wrong", "mend", id="a model without weights"),
        pytest.param("title = 2026-11-21", Model, "holds a date", "as a string", id="a date"),
        pytest.param("", Recipe, "'title' is missing", "add 'title", id="an empty recipe"),
    ],
)
def test_a_wrong_table_is_a_problem(
    tmp_path: Path, text: str, shape: type[Table], what: str, fix: str
) -> None:
    path = tmp_path / "x.toml"
    path.write_text(text)
    with pytest.raises(Problem) as caught:
        config.read(path, shape)
    assert what in caught.value.what
    assert str(path) in caught.value.what
    assert fix in caught.value.fix


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(Problem, match="cannot be read"):
        config.read(tmp_path / "none.toml", Host)


def test_your_own_table_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "demo.toml").write_text('title = "mine"\nrepository = "me/mine"\n')
    monkeypatch.setenv("MEDLEY_CONFIG", str(tmp_path))
    assert config.models()["demo"].title == "mine"
    assert config.folders()[0] == tmp_path
    monkeypatch.delenv("MEDLEY_CONFIG")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    assert config.models()["demo"].made is not None


def test_a_wrong_table_harms_only_who_wants_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "mine.toml").write_text("titel = 'x'\n")
    monkeypatch.setenv("MEDLEY_CONFIG", str(tmp_path))
    models = config.models()
    assert models["demo"].made is not None
    assert "mine" in models
    with pytest.raises(Problem, match="'titel' is wrong"):
        models["mine"]


def test_check_says_what_hangs_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("hosts", "locks"):
        (tmp_path / kind).mkdir()
    (tmp_path / "hosts" / "odd.toml").write_text(HOST + '[environments]\nvllm = "nowhere"\n')
    recipe = 'title="x"\nengine="vllm"\ndevice="cpu"\npython="3.11"\nsystems=["x86_64-linux"]\ndisk_bytes=1\n'
    (tmp_path / "locks" / "odd.toml").write_text(recipe)
    monkeypatch.setenv("MEDLEY_CONFIG", str(tmp_path))
    wrong = {path.parent.name: problem for path, problem in config.check().items() if problem}
    assert "unknown environment" in wrong["hosts"].what
    assert "has no lock" in wrong["locks"].what
