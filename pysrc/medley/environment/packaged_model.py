"""Build a model whose file is in a package of the Python package index, so that no hub is needed.

The wheel comes with its hash from the index that environments come from, and the weights that are written
have a hash in the model's table too.
"""

import shutil
import tempfile
from pathlib import Path

from medley import config, process, storage
from medley.command import Command
from medley.environment import build, uv
from medley.environment.payload import FOLDER
from medley.errors import Problem, in_words
from medley.model.resolve import Weights
from medley.model.transfer.inventory import file_sha256
from medley.progress import SILENT, Progress
from medley.schema import Package

_READER = config.beside(__file__, "packaged_model.toml")["reader"]
_CONVERT_LIMIT_S = 600


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
    return (folder / "config.json").is_file()


def _build(name: str, package: Package, folder: Path, python: Path, watch: Progress) -> None:
    draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        libraries, model = storage.make(draft / "wheels"), storage.make(draft / "model")
        with watch.stage(f"{name}: download {package.name} {package.version}"):
            _download(package, libraries, python, watch)
        with watch.stage(f"{name}: convert it"):
            _convert(name, libraries, model, python)
        _require_weights(name, package, model)
        model.chmod(0o755)
        model.rename(folder)
    except OSError as error:
        raise Problem(
            f"{name} cannot be written to {folder}",
            cause=in_words(error),
            fix="make room there, or use another disk: export MEDLEY_CACHE=/path",
        ) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _download(package: Package, libraries: Path, python: Path, watch: Progress) -> None:
    """Install the wheel, and the library that reads its file, into a folder of their own."""
    wheels = (_READER, package.model_dump())
    lock = libraries.with_name("lock.txt")
    lock.write_text("".join("{name}=={version} --hash=sha256:{sha256}\n".format(**each) for each in wheels))
    words = ("pip", "install", "--require-hashes", "--no-deps", "--no-build")
    argv = (uv.binary(None), *words, "--python", str(python), "--target", str(libraries), "-r", str(lock))
    command = Command(argv, {**build.patience(), **uv.settings(python.parent.parent, ())}, build.UNSET)
    finished = process.run(command, on_line=uv.Downloads(watch.line).line)
    if finished.status:
        raise uv.failure(package.name, finished.status, finished.lines)


def _convert(name: str, libraries: Path, model: Path, python: Path) -> None:
    files = [*libraries.rglob("*.gguf")]
    if len(files) != 1:
        raise Problem(
            f"{name} cannot be built",
            cause=f"its package has {len(files)} GGUF files, and one is expected",
            fix="medley check",
        )
    argv = (str(python), "-I", str(FOLDER / "convert_gguf.py"), str(libraries), str(files[0]), str(model))
    finished = process.run(Command(argv), limit_s=_CONVERT_LIMIT_S)
    if finished.status:
        raise Problem(
            f"{name} cannot be converted",
            cause=finished.lines[-1] if finished.lines else f"it ended with {finished.status}",
            fix="medley env check  # its numpy reads and writes the weights",
        )
    for license_file in libraries.rglob("LICENSE"):
        if license_file.parent.name.startswith(files[0].parent.name):
            shutil.copy(license_file, model / "LICENSE")


def _require_weights(name: str, package: Package, model: Path) -> None:
    written = file_sha256(model / "model.safetensors", lambda _: None)
    if written != package.weights_sha256:
        raise Problem(
            f"the weights of {name} are not those of its table",
            cause=f"they have SHA-256 {written}, the table has {package.weights_sha256}",
            fix="medley env check  # its numpy reads and writes the weights",
        )
