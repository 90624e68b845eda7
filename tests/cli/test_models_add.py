"""`medley models add` as it is typed, against a real server on loopback."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from medley import config
from medley.model.shape import compute_demo_shape
from medley.schema import Model
from tests.model.hub_server import COMMIT, MADE, SECRET, Hub, demo_repositories, serving
from tests.problems import assert_problem, problem_in

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return demo_repositories(tmp_path_factory.mktemp("demo"))


@pytest.fixture(autouse=True)
def served(files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    monkeypatch.setenv("MEDLEY_CONFIG", str(tmp_path / "own"))
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path / "state"))
    with serving(files, monkeypatch, tmp_path) as server:
        server.card = {"license": "mit"}
        yield server


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "own" / "models" / "two.toml"


def test_a_table_is_written_and_its_name_can_be_planned(run: Run, table: Path) -> None:
    status, out, _ = run("models", "add", "org/two")
    assert (status, out.splitlines()[0]) == (0, f"{table}: written")
    assert out.splitlines()[-1] == "medley plan two"
    found = config.read_table(table, Model)
    assert (found.repository, found.license, found.shape) == ("org/two", "mit", compute_demo_shape(MADE))
    assert COMMIT in table.read_text()
    status, out, err = run("plan", "two", "--hosts", "spark:1")
    assert (status, err) == (0, "")
    assert out.startswith("two on spark-1")


def test_a_table_of_ones_own_without_a_shape_is_listed_once_it_was_planned(run: Run, table: Path) -> None:
    table.parent.mkdir(parents=True)
    table.write_text('title = "x"\nrepository = "org/two"\n')

    def listed() -> dict[str, object]:
        found: list[dict[str, object]] = json.loads(run("models", "--hosts", "spark:1", "--json")[1])
        return next(each for each in found if each["name"] == "two")

    assert listed()["lacks"] == "size unknown; to read it from the hub: medley plan two"
    assert run("plan", "two", "--hosts", "spark:1")[0] == 0
    assert listed()["parameters"] == compute_demo_shape(MADE).parameters


def test_no_weights_are_fetched(run: Run, served: Hub) -> None:
    assert run("models", "add", "org/one")[0] == 0
    assert [size for _, name, size in served.asked if name == "model.safetensors"] == [100_001]


def test_again_it_changes_nothing(run: Run, table: Path) -> None:
    run("models", "add", "org/two")
    before = table.stat().st_mtime_ns
    status, out, _ = run("models", "add", "org/two", "--json")
    assert status == 0
    assert json.loads(out)["written"] is False
    assert table.stat().st_mtime_ns == before


def test_what_was_edited_is_kept_until_it_shall_be_replaced(run: Run, table: Path) -> None:
    run("models", "add", "org/two")
    mine = table.read_text().replace('title = "two"', 'title = "mine"').replace("= 128", "= 64")
    table.write_text(mine)
    status, _, err = run("models", "add", "org/two")
    assert status == 1
    assert "in title, shape.context: edited" in err
    assert table.read_text() == mine
    assert run("models", "add", "org/two", "--replace")[0] == 0
    assert config.read_table(table, Model).title == "two"


def test_a_dry_run_prints_what_would_be_written(run: Run, table: Path) -> None:
    status, text, _ = run("models", "add", "org/two", "--dry-run")
    assert status == 0
    assert not table.exists()
    run("models", "add", "org/two")
    assert table.read_text() == text


def test_json_has_the_table_and_what_was_left_out(run: Run, table: Path) -> None:
    said = json.loads(run("models", "add", "org/two", "--json")[1])
    assert (said["name"], said["path"], said["written"]) == ("two", str(table), True)
    assert (said["repository"], said["commit"]) == ("org/two", COMMIT)
    assert said["proposed"] == {"tool_parser": "hermes"}
    assert list(said["left_out"]) == ["reasoning_parser"]
    assert said["text"] == table.read_text()


def test_another_file(run: Run, tmp_path: Path, table: Path) -> None:
    status, out, _ = run("models", "add", "org/two", "--output", str(tmp_path / "mine.toml"))
    assert status == 0
    assert out.splitlines()[-1] == "medley plan org/two"
    assert config.read_table(tmp_path / "mine.toml", Model).shape == compute_demo_shape(MADE)
    assert not table.exists()


def test_what_is_no_file_stays_as_it_is(run: Run, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.toml"
    os.mkfifo(pipe)
    status, _, err = run("models", "add", "org/two", "--output", str(pipe))
    assert (status, pipe.is_fifo()) == (1, True)
    assert_problem(problem_in(err), str(pipe), fix="--output pipe.toml")


@pytest.mark.parametrize("name", ["../x", "A B", "-x"])
def test_what_is_no_name(run: Run, name: str, table: Path) -> None:
    status, _, err = run("models", "add", "org/two", f"--name={name}")
    assert status == 1
    assert_problem(problem_in(err), repr(name), fix="medley models add org/two --name two")
    assert not table.parent.exists()


def test_a_known_repository_is_not_added_twice(run: Run, tmp_path: Path) -> None:
    status, out, err = run("models", "add", "Qwen/Qwen3-8B")
    assert (status, out, err) == (0, "qwen3-8b is this model already: medley plan qwen3-8b\n", "")
    assert not (tmp_path / "own").exists()


def test_without_a_network_what_was_kept_is_enough(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    first = run("models", "add", "org/two", "--dry-run")[1]
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    status, text, err = run("models", "add", "org/two", "--dry-run")
    assert (status, text) == (0, first)
    assert "HF_HUB_OFFLINE is set: using org/two at commit cccccccccccc, read on " in err


def test_a_gated_repository_with_a_token(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", SECRET)
    status, out, err = run("models", "add", "org/gated")
    assert status == 0
    assert SECRET not in out + err


@pytest.mark.parametrize(
    ("words", "name", "cause", "fix"),
    [
        pytest.param("org/gated", "org/gated", "", "export HF_TOKEN=…", id="gated"),
        pytest.param("org/none", " org/none,", "401", "export HF_TOKEN=…", id="no such repository"),
        pytest.param("org/bare", "org/bare ", "model.safetensors.index.json", "", id="no safetensors"),
        pytest.param("org/odd", "org/odd: 'layer_types'", "'rwkv'", "", id="an unknown architecture"),
        pytest.param("qwen", "'qwen'", "ORG/NAME", "medley models add Qwen/Qwen3-14B", id="no ORG/NAME"),
        pytest.param("./tiny", "./tiny ", "", "medley plan ./tiny", id="a folder"),
        pytest.param(
            "org/one --name demo",
            " demo ",
            "org/one",
            "medley models add org/one --name org-one",
            id="a name that is taken",
        ),
        pytest.param(
            "org/one --output /proc/x.toml",
            "/proc/x.toml ",
            "No such file",
            "--output x.toml",
            id="where nobody may write",
        ),
    ],
)
def test_problems(run: Run, served: Hub, table: Path, *, words: str, name: str, cause: str, fix: str) -> None:
    odd = json.loads(served.files["org/one/config.json"]) | {"layer_types": ["rwkv", "rwkv"]}
    served.files |= {"org/odd/config.json": json.dumps(odd).encode()}
    served.files["org/odd/model.safetensors"] = served.files["org/one/model.safetensors"]
    status, out, err = run("models", "add", *words.split())
    assert (status, out) == (1, "")
    assert_problem(problem_in(err), name, cause=cause, fix=fix)
    assert not table.parent.exists()


def test_no_network_and_nothing_kept(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    status, _, err = run("models", "add", "org/one")
    assert status == 1
    assert_problem(
        problem_in(err), "org/one ", cause="127.0.0.1:9", fix="medley models add org/one --output one.toml"
    )


def test_a_misspelt_verb_is_refused(run: Run) -> None:
    status, _, err = run("models", "ad")
    assert status == 2
    assert "try:   medley models add" in err
