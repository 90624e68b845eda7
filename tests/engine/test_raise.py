"""`medley env raise` on made-up releases: one that is as the last, and one that lacks a flag of medley's."""

import functools
import hashlib
import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from medley.serving.engine_release import list_parser_commands

TREE = Path(__file__).parents[2]
pytestmark = pytest.mark.engine
PARSER = """

def make_arg_parser(parser):
    parser.add_argument("model")
    for name in {names}:
        parser.add_argument(name, nargs="?")
    return parser
"""
FILES = {
    "vllm/__init__.py": "",
    "vllm/platforms.py": "class P:\n    is_unspecified = lambda self: False\ncurrent_platform = P()\n",
    "vllm/entrypoints/__init__.py": "",
    "vllm/entrypoints/common/__init__.py": "",
    "vllm/utils/__init__.py": "",
    "vllm/utils/argparse_utils.py": "from argparse import ArgumentParser as FlexibleArgumentParser\n",
}


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None: ...


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A package index on loopback with three releases of a package of an engine's name."""
    root = tmp_path_factory.mktemp("index")
    known = sorted({word for words in list_parser_commands("vllm") for word in words if word.startswith("-")})
    names = [name for name in known if not name.startswith(("-cc", "-O"))]
    names += ["-cc.mode", "-cc.backend"]
    releases = {
        "1.0": names,
        "1.1": [*names, "--new-one"],
        "1.2": [name for name in names if name != "--max-num-seqs"],
    }
    folder = root / "simple" / "vllm"
    folder.mkdir(parents=True)
    links = [_wheel(folder, version, flags) for version, flags in releases.items()]
    (folder / "index.html").write_text("".join(links))
    handler = functools.partial(Quiet, directory=str(root))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/simple"
        server.shutdown()
        thread.join()


def _wheel(folder: Path, version: str, flags: list[str]) -> str:
    file = folder / f"vllm-{version}-py3-none-any.whl"
    info = f"vllm-{version}.dist-info"
    texts = FILES | {
        "vllm/entrypoints/common/cli_args.py": PARSER.format(names=flags),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    with zipfile.ZipFile(file, "w") as wheel:
        for name, text in texts.items():
            wheel.writestr(name, text)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return f'<a href="{file.name}#sha256={digest}">{file.name}</a>\n'


@pytest.fixture
def clone(index: str, tmp_path: Path) -> Path:
    """A source tree of medley whose vllm-cuda is the first release."""
    tree = tmp_path / "medley"
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("pysrc", "locks", "hosts", "models", "failures"):
        shutil.copytree(TREE / name, tree / name, ignore=ignored)
    shutil.copy(TREE / "pyproject.toml", tree)
    python = "{}.{}".format(*sys.version_info[:2])
    (tree / "locks/vllm-cuda.in").write_text("# made up\nvllm==1.0\n")
    (tree / "locks/vllm-cuda.txt").unlink()
    (tree / "locks/vllm-cuda.overrides").unlink(missing_ok=True)
    recipe = f'title = "vLLM 1.0"\nengine = "vllm"\ndevice = "cuda"\npython = "{python}"\n'
    recipe += 'systems = ["x86_64-linux", "aarch64-linux"]\ndisk_bytes = 1_000\n'
    (tree / "locks/vllm-cuda.toml").write_text(recipe)
    remake = tree / "locks/remake.py"
    remake.write_text(
        remake.read_text().replace('"vllm-cuda": Lock(("3.12",))', f'"vllm-cuda": Lock(("{python}",))')
    )
    env = {**os.environ, "UV_DEFAULT_INDEX": index}
    subprocess.run([sys.executable, str(remake), "vllm-cuda"], env=env, check=True, capture_output=True)
    return tree


def test_a_release_as_the_last_is_taken(clone: Path, index: str, tmp_path: Path) -> None:
    """The host has no GPU, so the engine's parser is what can be asked."""
    done = medley(clone, index, tmp_path, "env", "raise", "vllm-cuda", "1.1", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["from"], told["to"], told["versions"]) == ("1.0", "1.1", {"vllm": ["1.0", "1.1"]})
    assert (told["gone"], told["new"], told["ran"]) == (
        [],
        ["--new-one"],
        "not run: this host has no cuda device",
    )
    assert told["commands"] > 50
    assert (clone / "locks/vllm-cuda.in").read_text() == "# made up\nvllm==1.1\n"
    assert 'title = "vLLM 1.1"' in (clone / "locks/vllm-cuda.toml").read_text()
    found = json.loads(medley(clone, index, tmp_path, "env", "list", "--json").stdout)
    assert sorted(each["current"] for each in found if each["built"]) == [False, True], "the old one stays"


def test_a_release_without_a_flag_is_refused_and_nothing_changes(
    clone: Path, index: str, tmp_path: Path
) -> None:
    """The newest is taken where none is named."""
    before = {path: path.read_bytes() for path in (clone / "locks").iterdir() if path.is_file()}
    done = medley(clone, index, tmp_path, "env", "raise", "vllm-cuda")
    assert done.returncode == 1
    assert "medley: vllm 1.2 rejects medley's flags; vllm-cuda is unchanged" in done.stderr
    assert "unrecognized arguments: --max-num-seqs" in done.stderr
    after = {path: path.read_bytes() for path in (clone / "locks").iterdir() if path.is_file()}
    assert after == before
    again = medley(clone, index, tmp_path, "env", "raise", "vllm-cuda", "1.0")
    assert "vllm-cuda has vllm 1.0 already" in again.stderr
    none = medley(clone, index, tmp_path, "env", "raise", "vllm-cuda", "9.9")
    assert none.returncode == 1
    assert "vllm==9.9" in none.stderr


def medley(clone: Path, index: str, tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    taken = ("UV_", "PIP_", "MEDLEY_")
    env = {name: value for name, value in os.environ.items() if not name.startswith(taken)}
    env |= {
        "UV_DEFAULT_INDEX": index,
        "MEDLEY_CACHE": str(tmp_path / "cache"),
        "PYTHONPATH": str(clone / "pysrc"),
    }
    env |= {"MEDLEY_CONFIG": str(tmp_path / "config"), "PIP_CONFIG_FILE": os.devnull}
    command = [sys.executable, "-m", "medley", *words]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
