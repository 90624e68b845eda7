import json
from pathlib import Path
from typing import Any

import pytest

from medley import fingerprint, remote_code
from medley.problem import Problem


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
    with pytest.raises(Problem, match="more Python"):
        remote_code.of_folder(folder)
