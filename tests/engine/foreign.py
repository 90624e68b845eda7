"""A Python on a newer libc than the host's, whose loader knows no folder: it stands in for Nix's.

CPython 3.11 of this host is copied and patched onto the libraries under /opt/nix-deb, which .ci/install-nix
unpacks. The copied loader has one default folder, with libc's own libraries and nothing else, and no cache,
as Nix's: what wheels expect of a system is then truly not found unless it is loaded by full path.
"""

import ctypes
import json
import shutil
import subprocess
from pathlib import Path

import uv

from medley import storage

LIBRARIES = Path("/opt/nix-deb/usr/lib/x86_64-linux-gnu")
PATCHELF = Path("/opt/nix-deb/usr/bin/patchelf")
LOADER = "ld-linux-x86-64.so.2"
# The default folders as they stand in Debian's loader, end to end. The copy gets as many bytes: the first is
# a folder of libc's own libraries, whose path has as many letters by design; the others are nowhere.
DEFAULTS = b"/lib/x86_64-linux-gnu/\0/usr/lib/x86_64-linux-gnu/\0/lib/\0/usr/lib/\0"
LIBC = Path("/opt/nix-deb/usr/libc")
NIXLIKE = f"{LIBC}/\0".encode() + b"/nix/lib/x86_64-linux-gnu/\0/nix/\0/nix/lib/\0"
CACHE, NO_CACHE = b"/etc/ld.so.cache", b"/nix/no.so.cache"
OF_LIBC = ("libc", "libdl", "libm", "libmvec", "libpthread", "libresolv", "librt", "libutil")
# What wheels expect of a system. They lie apart, as Nix's do, so that nothing finds them beside libc.
EXPECTED = ("libgcc_s.so.1", "libstdc++.so.6", "libz.so.1", "libnuma.so.1")
HOST = Path("/usr/lib/x86_64-linux-gnu")


def toolkit(folder: Path, python: Path) -> Path:
    """A toolkit for the CPU as Nix realises it, made of `python`; returns its folder, for MEDLEY_TOOLKIT."""
    home = folder / "python"
    with storage.lock_file(folder / "making", on_wait=lambda: None):
        if not (home / "done").exists():
            shutil.rmtree(home, ignore_errors=True)
            _make(home, python)
            (home / "done").touch()
    contents = {
        "kind": "cpu",
        "variables": {},
        "path": [],
        "preload": [str(home / "expected" / name) for name in EXPECTED],
        "pythons": {"3.11": str(home / "bin" / "python3.11")},
        "uv": uv.find_uv_bin(),
        "loader": {
            "interpreter": str(home / "lib" / LOADER),
            "patchelf": str(PATCHELF),
            "libraries": [str(home / "lib"), str(home / "expected")],
        },
    }
    storage.write_text(folder / "toolkit.json", json.dumps(contents))
    return folder


def _make(home: Path, python: Path) -> None:
    prefix = Path(_said(python, "import sys; print(sys.base_prefix)"))
    for folder in ("bin", "lib", "expected", "lib/python3.11/site-packages"):
        (home / folder).mkdir(parents=True)
    for library in (*LIBRARIES.glob("*.so*"), HOST / "libnuma.so.1"):
        where = "expected" if library.name in EXPECTED else "lib"
        shutil.copy(library.resolve(), home / where / library.name)
    loader = home / "lib" / LOADER
    assert len(NIXLIKE) == len(DEFAULTS)
    assert DEFAULTS in loader.read_bytes()
    loader.write_bytes(loader.read_bytes().replace(DEFAULTS, NIXLIKE).replace(CACHE, NO_CACHE))
    LIBC.mkdir(exist_ok=True)
    for library in LIBRARIES.glob("*.so*"):
        if library.name.partition(".")[0] in OF_LIBC and not (LIBC / library.name).exists():
            (LIBC / library.name).symlink_to(library)
    shutil.copy(prefix / "bin" / "python3.11", home / "bin")
    for shared in prefix.glob("lib/libpython3.11.so.1.0"):
        shutil.copy(shared, home / "lib")
    standard = Path(_said(python, "import os; print(os.path.dirname(os.__file__))"))
    for part in standard.iterdir():
        if part.name not in {"lib-dynload", "site-packages", "dist-packages", "__pycache__"}:
            (home / "lib" / "python3.11" / part.name).symlink_to(part)
    shutil.copytree(standard / "lib-dynload", home / "lib/python3.11/lib-dynload")
    _patch(home)


def _patch(home: Path) -> None:
    """Each file finds its own libraries, and no other file's: RUNPATH, as Nix sets it."""
    lib, expected = home / "lib", home / "expected"
    both = f"{lib}:{expected}"
    binary = home / "bin" / "python3.11"
    modules = list(lib.glob("python3.11/lib-dynload/*.so"))
    _complete(home, [binary, *modules])
    for library in [*lib.glob("*.so*"), *expected.iterdir()]:
        if library.name not in {LOADER, "libc.so.6"}:
            _patchelf(library, "--set-rpath", both)
    for module in modules:
        own = both if module.name.startswith(("zlib", "binascii")) else str(lib)
        _patchelf(module, "--set-rpath", own)
    # In this order: the other way round patchelf 0.18 makes a program of Debian's Python that crashes.
    _patchelf(binary, "--set-rpath", both)
    _patchelf(binary, "--set-interpreter", str(lib / LOADER))


def _complete(home: Path, files: list[Path]) -> None:
    """Debian's own Python needs what the newer suite's Nix does not (libexpat): taken from the host."""
    for name in {needed for file in files for needed in _patchelf(file, "--print-needed").split()}:
        if not any((home / where / name).exists() for where in ("lib", "expected")):
            found = next(HOST.glob(f"**/{name}"), None)
            if found:
                shutil.copy(found.resolve(), home / "lib" / name)


def _patchelf(file: Path, *words: str) -> str:
    file.chmod(0o755)
    # It lies on the newer libc itself.
    run = [str(LIBRARIES / LOADER), "--library-path", str(LIBRARIES), str(PATCHELF)]
    done = subprocess.run([*run, *words, str(file)], check=True, capture_output=True, text=True)
    return done.stdout


def _said(python: Path, code: str) -> str:
    run = subprocess.run([str(python), "-c", code], check=True, capture_output=True, text=True)
    return run.stdout.strip()


def host_libc() -> str:
    libc = ctypes.CDLL(None)
    libc.gnu_get_libc_version.restype = ctypes.c_char_p
    return str(libc.gnu_get_libc_version().decode())
