"""Images: what is in them, for each kind; and one is really loaded and run, by podman.

Over the stand-in the programs in them are links to this machine's own, so to run one it is given what they
link to: the folders that Nix's sandbox is given.
"""

import io
import json
import os
import shutil
import signal
import subprocess
import tarfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from medley import storage
from medley.command import Command
from tests.engine.imaging import environ, podman
from tests.nix.test_outputs import KINDS
from tests.servers import Start, chat

if TYPE_CHECKING:
    from tests.nix.conftest import Tree

pytestmark = pytest.mark.nix

LIMITS = ("--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096")
EVERY = [(system, kind) for system in KINDS for kind in sorted(KINDS[system])]
SMI = """
#include <dlfcn.h>
#include <stdio.h>
int main(int count, char **words) {
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    printf("%s %s\\n", library ? "found" : dlerror(), count > 1 ? words[1] : "");
    return !library;
}
"""


@dataclass(frozen=True)
class Archive:
    """What an image's script writes."""

    config: dict[str, Any]
    tag: str
    names: frozenset[str]
    architecture: str


@pytest.fixture(scope="module")
def archives(tree: "Tree") -> dict[tuple[str, str], Archive]:
    outputs = [f".#packages.{system}.image-{kind}" for system, kind in EVERY]
    built = tree.nix("build", "--no-link", "--print-out-paths", *outputs).stdout.split()
    return {each: _read(Path(script)) for each, script in zip(EVERY, built, strict=True)}


def _read(script: Path) -> Archive:
    written = subprocess.run([script], capture_output=True, check=True, timeout=60).stdout
    with tarfile.open(fileobj=io.BytesIO(written)) as archive:
        (manifest,) = json.load(_file(archive, "manifest.json"))
        config = json.load(_file(archive, manifest["Config"]))
        names: set[str] = set()
        for layer in manifest["Layers"]:
            with tarfile.open(fileobj=_file(archive, layer)) as files:
                names |= {name.removeprefix("./") for name in files.getnames()}
        return Archive(config["config"], manifest["RepoTags"][0], frozenset(names), config["architecture"])


def _file(archive: tarfile.TarFile, name: str) -> Any:
    file = archive.extractfile(name)
    assert file
    return file


@pytest.mark.parametrize(("system", "kind"), EVERY)
def test_an_image_says_what_its_kind_needs(
    archives: dict[tuple[str, str], Archive], tree: "Tree", system: str, kind: str
) -> None:
    found = archives[system, kind]
    assert found.tag.startswith(f"medley-{kind}:0.")
    assert found.architecture == {"x86_64-linux": "amd64", "aarch64-linux": "arm64"}[system]
    assert found.config["Entrypoint"][0].endswith("/bin/medley")
    assert found.config["Volumes"] == {"/root/.cache": {}}
    said = dict(word.split("=", 1) for word in found.config["Env"])
    assert said["MEDLEY_TOOLKIT"] == str(tree.build(f"packages.{system}.toolkit-{kind}"))
    assert ("MEDLEY_NCCL" in said) == tree.eval(f"lib.hosts.{kind}").get("toolkit", {}).get("nccl", False)
    gpu = {name: value for name, value in said.items() if name.startswith("NVIDIA_")}
    wanted = {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}
    assert gpu == ({} if kind == "cpu" else wanted)
    assert "LD_LIBRARY_PATH" not in said


@pytest.mark.parametrize(("system", "kind"), EVERY)
def test_an_image_holds_its_toolchain_and_no_driver(
    archives: dict[tuple[str, str], Archive], tree: "Tree", system: str, kind: str
) -> None:
    found = archives[system, kind]
    kept = tree.nix("path-info", "--recursive", f".#packages.{system}.toolkit-{kind}").stdout.split()
    assert {path.removeprefix("/") for path in kept} <= found.names
    assert {"bin/sh", "bin/medley", "tmp", "etc/ld.so.conf.d", "etc/passwd"} <= found.names
    assert ("bin/nvidia-smi" in found.names) == (kind != "cpu")
    # libcuda.so is what is linked with; by the name that is loaded, the stub is in a package of stubs alone.
    driver = {
        name for name in found.names if name.rpartition("/")[2].startswith(("libcuda.so.", "libnvidia-"))
    }
    assert {name for name in driver if "stubs" not in name} == set()


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    if shutil.which("podman") is None:
        pytest.skip("there is no podman")
    if os.geteuid() != 0:
        pytest.skip("needs root, as podman has been set up for it alone")
    return dict(environ(tmp_path_factory.mktemp("podman")))


def loaded(tree: "Tree", kind: str, settings: dict[str, str], folder: Path) -> Iterator[str]:
    """The image under a name of its own: others may test, too."""
    archive = folder / f"{kind}.tar"
    with archive.open("wb") as file:
        subprocess.run([tree.build(f"image-{kind}")], stdout=file, check=True, timeout=60)
    name = f"localhost/medley-{uuid.uuid4().hex[:12]}:{kind}"
    with storage.lock_file(
        storage.find_cache_folder().parent / "medley-tests" / "image.lock", on_wait=lambda: None
    ):
        said = podman("load", "--quiet", "--input", str(archive), settings=settings)
        loaded = said.removeprefix("Loaded image: ")
        podman("tag", loaded, name, settings=settings)
        podman("untag", loaded, loaded, settings=settings)
    yield name
    podman("rmi", "--force", name, settings=settings)


@pytest.fixture(scope="module")
def cpu(tree: "Tree", settings: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from loaded(tree, "cpu", settings, tmp_path_factory.mktemp("cpu"))


@pytest.fixture(scope="module")
def rtx(tree: "Tree", settings: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from loaded(tree, "rtx", settings, tmp_path_factory.mktemp("rtx"))


def given(tree: "Tree") -> list[str]:
    """What the programs in an image link to, as flags of podman."""
    (line,) = (line for line in tree.variables["NIX_CONFIG"].splitlines() if "sandbox-paths" in line)
    folders = {"/usr", *line.partition(" = ")[2].split()}
    return [f"--volume={folder}:{folder}:ro" for folder in sorted(folders)]


def test_medley_runs_in_it(tree: "Tree", cpu: str, settings: dict[str, str]) -> None:
    def run(*words: str) -> str:
        network = ("--network", "none")
        return podman("run", "--rm", *LIMITS, *network, *given(tree), cpu, *words, settings=settings)

    assert run("--version").startswith("medley 0.")
    facts = json.loads(run("facts", "--json"))
    assert facts["kind"]["name"] == "cpu"
    assert " 0 wrong" in run("check")


@pytest.mark.engine
@pytest.mark.slow
def test_the_demo_is_served_out_of_it(
    tree: "Tree", cpu: str, settings: dict[str, str], start: Start, free_port: int
) -> None:
    """With the engine environment that is there already as its volume: it is the same one, by its digest."""
    home = Path("/root/.cache/medley")  # an environment's programs name their place
    if storage.find_cache_folder() != home or not (home / "envs").is_dir():
        pytest.skip(f"there are no engine environments in {home}")
    shared = ("--network", "host", "--ipc", "host", "--init", f"--volume={home}:{home}:O")
    words = ("run", "--rm", *LIMITS, *shared, *given(tree), cpu, "serve", "demo", "--port", str(free_port))
    served = start(Command(("podman", *words), settings))
    assert chat(served.ready())["usage"]["completion_tokens"] == 16
    os.kill(served.process.pid, signal.SIGINT)
    ended = served.process.wait(60)
    assert ended is not None
    assert ended.status == 128 + signal.SIGINT


def test_the_driver_s_program_finds_the_driver_s_library(
    rtx: str, settings: dict[str, str], tmp_path: Path
) -> None:
    """As NVIDIA's runtime mounts them: a program of the host's, a library where no loader looks by itself."""
    if shutil.which("gcc") is None:
        pytest.skip("there is no gcc")
    smi, library = tmp_path / "nvidia-smi", tmp_path / "libnvidia-ml.so.1"
    words = ["gcc", "-x", "c", "-", "-o"]
    subprocess.run([*words, smi], input=SMI, text=True, check=True, timeout=60)
    subprocess.run([*words, library, "-shared", "-fPIC"], input="", text=True, check=True, timeout=60)
    host = ("/lib", "/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/bin/bash")
    mounts = [f"--volume={path}:{path}:ro" for path in host]
    ask = ("--entrypoint", "/bin/nvidia-smi", rtx, "--help")
    absent = podman(
        "run", "--rm", *LIMITS, "--network", "none", *mounts, *ask, settings=settings, check=False
    )
    assert absent == ""
    driver = {smi: "/usr/bin/nvidia-smi", library: "/usr/lib/wsl/lib/libnvidia-ml.so.1"}
    mounts += [f"--volume={ours}:{theirs}:ro" for ours, theirs in driver.items()]
    assert (
        podman("run", "--rm", *LIMITS, "--network", "none", *mounts, *ask, settings=settings)
        == "found --help"
    )
