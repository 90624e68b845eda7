"""A lock of one's own: made with the real uv from an index that tells as Jetson's does, built, looked at."""

import hashlib
import http.server
import json
import os
import platform
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from threading import Thread

import pytest

pytestmark = pytest.mark.engine

MACHINE = platform.machine()
PYTHON = "{}.{}".format(*sys.version_info[:2])
ASKED = ("--python", PYTHON, "-r", "vllm", "-r", "ray")
# As the wheels for a Jetson: for this machine, and of no manylinux.
HERE = f"py3-none-linux_{MACHINE}"
ELSEWHERE = "py3-none-linux_" + ("x86_64" if MACHINE == "aarch64" else "aarch64")


def wheel(
    index: Path, name: str, version: str, tag: str = HERE, *, text: str = "", requires: str = ""
) -> None:
    """In the index, with its hash in the link, as the simple index has it."""
    folder = index / "simple" / name
    folder.mkdir(parents=True, exist_ok=True)
    about = f"{name}-{version}.dist-info"
    wanted = f"Requires-Dist: {requires}\n" if requires else ""
    files = {
        f"{name}/__init__.py": f"__version__ = {version!r}  # {text}\n",
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{wanted}",
        f"{about}/WHEEL": f"Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: false\nTag: {tag}\n",
        f"{about}/RECORD": "",
    }
    with zipfile.ZipFile(folder / f"{name}-{version}-{tag}.whl", "w") as archive:
        for file, content in files.items():
            archive.writestr(zipfile.ZipInfo(file), content)
    links = (
        f'<a href="{each.name}#sha256={hashlib.sha256(each.read_bytes()).hexdigest()}">{each.name}</a><br>'
        for each in sorted(folder.glob("*.whl"))
    )
    (folder / "index.html").write_text("\n".join(links))


@pytest.fixture
def index(tmp_path: Path) -> Path:
    """Of two small packages, called as an engine and Ray are."""
    wheel(tmp_path / "index", "vllm", "0.14.0", requires="ray")
    wheel(tmp_path / "index", "ray", "2.50.0")
    return tmp_path / "index"


@pytest.fixture
def address(index: Path) -> Iterator[str]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(index)))
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/simple"
    server.shutdown()
    server.server_close()


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    taken = {"MEDLEY_TOOLKIT", "MEDLEY_FLAKE", "MEDLEY_PYTHONS", "MEDLEY_UV"}
    own = {f"MEDLEY_{each.upper()}": str(tmp_path / each) for each in ("config", "cache", "state")}
    kept = {name: value for name, value in os.environ.items() if name not in taken}
    # Without a cache, which would give what an index had before.
    return {**kept, **own, "UV_NO_CACHE": "1", "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}


def medley(env: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-m", "medley", "env", *words)
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)


def test_it_is_made_built_and_looked_at(env: dict[str, str], address: str, tmp_path: Path) -> None:
    made = medley(env, "lock", "jp6", "--index", address, *ASKED, "--json")
    assert made.returncode == 1, "these packages are no engine, which the proof finds"
    assert "jp6 does not work on this host" in made.stderr
    assert "import torch: ModuleNotFoundError" in made.stderr
    said = json.loads(made.stdout)
    lock = tmp_path / "config" / "locks" / "jp6.txt"
    assert (said["name"], said["lock"], said["packages"]) == ("jp6", str(lock), 2)
    assert "://" not in lock.read_text(), "a lock has no address"
    assert f'indexes = ["{address}"]' in lock.with_suffix(".toml").read_text(), "its table does"
    found = medley(env, "path", "jp6").stdout.strip()
    assert found == said["path"]
    assert list(Path(found).glob("lib/python*/site-packages/vllm-0.14.0.dist-info"))
    (listed,) = [each for each in json.loads(medley(env, "list", "--json").stdout) if each["name"] == "jp6"]
    assert listed["current"]


def test_a_file_that_changed_since_is_refused(env: dict[str, str], address: str, index: Path) -> None:
    assert medley(env, "lock", "jp6", "--index", address, *ASKED, "--unproven").returncode == 0
    wheel(index, "vllm", "0.14.0", text="another")
    built = medley(env, "build", "jp6")
    assert built.returncode == 1
    assert "vllm==0.14.0 is not the file that the lock names" in built.stderr
    assert not list(Path(env["MEDLEY_CACHE"]).glob("envs/jp6-*"))


@pytest.mark.parametrize(
    ("tag", "said"),
    [
        pytest.param(ELSEWHERE, "vllm has no file for this Python and this machine", id="another machine"),
        pytest.param("cp38-cp38-any", "vllm has no file for this Python", id="another Python"),
    ],
)
def test_what_it_cannot_have(env: dict[str, str], address: str, index: Path, tag: str, said: str) -> None:
    for file in (index / "simple" / "vllm").iterdir():
        file.unlink()
    wheel(index, "vllm", "0.14.0", tag, requires="ray")
    made = medley(env, "lock", "jp6", "--unproven", "--index", address, *ASKED)
    assert made.returncode == 1
    assert said in made.stderr
    assert not (Path(env["MEDLEY_CONFIG"]) / "locks").exists()
