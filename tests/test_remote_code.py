import json
from pathlib import Path
from typing import Any

import pytest

from medley import fingerprint, remote_code
from medley.problem import Problem
from tests.odd_input import COUNTS, hold, json_texts


@pytest.mark.parametrize(
    ("configs", "files"),
    [
        pytest.param({"config.json": {"model_type": "qwen3"}}, (), id="none"),
        pytest.param(
            {
                "config.json": {
                    "auto_map": {"AutoConfig": "configuration_x.X", "AutoModel": "modeling_x.Y"},
                }
            },
            ("configuration_x.py", "modeling_x.py"),
            id="a config and a model",
        ),
        pytest.param(
            {"config.json": {}, "tokenizer_config.json": {"auto_map": {"AutoTokenizer": ["tok.Slow", None]}}},
            ("tok.py",),
            id="a tokenizer alone",
        ),
        pytest.param(
            {"config.json": {"text_config": {"auto_map": {"AutoConfig": "inner.deep.X"}}}},
            ("inner/deep.py",),
            id="one table deeper, in a folder",
        ),
        pytest.param({"config.json": {"auto_map": 7}}, (), id="nonsense"),
    ],
)
def test_what_its_configs_name(configs: dict[str, dict[str, Any]], files: tuple[str, ...]) -> None:
    assert remote_code.modules(configs, "x") == files


def test_code_of_another_repository_cannot_be_pinned() -> None:
    """Transformers reads the newest commit of it, whatever revision the model has."""
    configs = {"config.json": {"auto_map": {"AutoConfig": "else/where--configuration_x.X"}}}
    with pytest.raises(Problem) as caught:
        remote_code.modules(configs, "org/name")
    assert "another repository" in caught.value.what
    assert "else/where--configuration_x.X" in caught.value.cause
    assert "--no-remote-code" in caught.value.fix


def model(folder: Path) -> Path:
    (folder / "sub").mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"auto_map": {"AutoConfig": "configuration_x.X"}}))
    (folder / "configuration_x.py").write_text("from .sub import more\n")
    (folder / "sub" / "more.py").write_text("1\n")
    return folder


def test_all_python_of_a_folder_is_its_code(tmp_path: Path) -> None:
    """What is named imports what is not."""
    code = remote_code.of_folder(model(tmp_path / "m"))
    assert code is not None
    assert set(code.files) == {"configuration_x.py", "sub/more.py"}
    assert code.pin == code.fingerprint == fingerprint.of_all(code.files)
    assert f"{fingerprint.of_bytes(b'1' + bytes([10]))}  sub/more.py" in code.lines()
    (tmp_path / "m" / "sub" / "more.py").write_text("2\n")
    assert remote_code.of_folder(tmp_path / "m") != code


def test_python_that_nothing_names_is_no_code(tmp_path: Path) -> None:
    (model(tmp_path / "m") / "config.json").write_text("{}")
    assert remote_code.of_folder(tmp_path / "m") is None


def test_a_folder_full_of_python_is_no_model(tmp_path: Path) -> None:
    folder = model(tmp_path / "m")
    for number in range(201):
        (folder / f"{number}.py").touch()
    with pytest.raises(Problem, match="more Python files"):
        remote_code.of_folder(folder)


@pytest.mark.parametrize(
    "file", ["video_preprocessor_config.json", "generation_config.json", "sub/modules.json", "new.json"]
)
def test_code_is_found_whichever_table_names_it(tmp_path: Path, file: str) -> None:
    """Engines read more of them with each version: one not on a list of ours was accepted, and run."""
    folder = model(tmp_path / "m")
    (folder / "config.json").write_text("{}")
    (folder / file).write_text(json.dumps([{"auto_map": {"AutoVideoProcessor": "configuration_x.X"}}]))
    code = remote_code.of_folder(folder)
    assert code is not None
    assert "configuration_x.py" in code.files


def test_the_key_in_other_letters_of_json_is_the_key(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(r'{"\u0061uto\u005Fm\u0061p": {"AutoConfig": "configuration_x.X"}}')
    assert remote_code.modules(remote_code.configs(tmp_path), "x") == ("configuration_x.py",)


@pytest.mark.parametrize("name", ["/tmp/evil.X", "../evil.X", "a/../../evil.X", "a b.X", "x", "a\0.X"])
def test_a_name_that_leads_out_of_the_model_is_refused(name: str) -> None:
    with pytest.raises(Problem, match="not beside its weights"):
        remote_code.modules({"config.json": {"auto_map": {"AutoConfig": name}}}, "x")


def test_python_behind_a_linked_folder_is_refused(tmp_path: Path) -> None:
    """What is imported from there was not hashed, and could change after it was trusted."""
    folder = model(tmp_path / "m")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "evil.py").touch()
    (folder / "linked").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Problem, match="linked is a link to a folder"):
        remote_code.of_folder(folder)


def test_a_table_of_too_many_bytes_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "config.json").open("wb") as file:
        file.truncate(65 << 20)
    with pytest.raises(Problem, match="too large"):
        remote_code.of_folder(tmp_path)


@pytest.mark.parametrize("count", COUNTS)
def test_odd_input_of_what_configs_name(count: int) -> None:
    sample = {"auto_map": {"AutoConfig": "configuration_x.X", "AutoTokenizer": ["tok.Slow", None]}}
    hold(
        lambda text: remote_code.modules(
            {"config.json": remote_code.naming(text.encode("utf-8", "replace"), "x")}, "x"
        ),
        json_texts([sample]),
        count,
    )
