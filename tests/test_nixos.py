import shutil
import subprocess
from pathlib import Path

import pytest

from medley import elf, nixos
from medley.problem import Problem
from medley.toolkit import Loader
from tests.engine import foreign

SHELL = Path("/bin/sh").resolve()
# In Nix's sandbox /bin/sh is static, and no program there has the host's loader.
needs_hosts_program = pytest.mark.skipif(
    not elf.is_hosts(elf.loader(SHELL)), reason=f"{SHELL} does not ask for a host's loader"
)
FAKE = Loader(interpreter="/nix/store/x/ld.so", patchelf="patchelf", libraries=("/nix/store/a/lib", "/b"))


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A program as uv installs one, a link into its cache, among files that are none."""
    where, cache = tmp_path / "v" / "ray", tmp_path / "cache"
    where.mkdir(parents=True)
    cache.mkdir()
    shutil.copy(SHELL, cache / "raylet")
    (where / "raylet").hardlink_to(cache / "raylet")
    shutil.copy(SHELL, where / "data.bin")
    (where / "data.bin").chmod(0o644)
    (where / "script").write_text("#!/bin/sh\n")
    (where / "script").chmod(0o755)
    (where / "python").symlink_to("/bin/sh")
    return tmp_path / "v"


@needs_hosts_program
def test_programs(environment: Path) -> None:
    assert [path.name for path in nixos.programs(environment)] == ["raylet"]


def test_the_command() -> None:
    assert str(nixos.set_loader(FAKE, Path("/v/raylet"))) == (
        "patchelf --set-interpreter /nix/store/x/ld.so --add-rpath /nix/store/a/lib:/b /v/raylet"
    )


@needs_hosts_program
def test_a_patch_that_fails(environment: Path) -> None:
    with pytest.raises(Problem, match="raylet cannot be patched"):
        nixos.patch(environment, FAKE.model_copy(update={"patchelf": "false"}))


@pytest.fixture
def patchelf(tmp_path: Path) -> str:
    """A real one: PATH's, or that which .ci/install-nix unpacks, on its own loader."""
    if found := shutil.which("patchelf"):
        return found
    if not foreign.PATCHELF.exists():
        pytest.skip("there is no patchelf: neither on PATH nor from .ci/install-nix")
    script = tmp_path / "patchelf"
    run = f"{foreign.LIBRARIES / foreign.LOADER} --library-path {foreign.LIBRARIES} {foreign.PATCHELF}"
    script.write_text(f'#!/bin/sh\nexec {run} "$@"\n')
    script.chmod(0o755)
    return str(script)


@needs_hosts_program
def test_a_patched_program_runs_and_the_cache_is_untouched(
    environment: Path, tmp_path: Path, patchelf: str
) -> None:
    loader = elf.loader(SHELL)
    assert loader
    other = tmp_path / "ld.so"
    shutil.copy(Path(loader).resolve(), other)
    real = Loader(interpreter=str(other), patchelf=patchelf, libraries=(str(tmp_path / "lib"),))
    [raylet] = nixos.patch(environment, real)
    assert elf.loader(raylet) == str(other)
    assert elf.loader(tmp_path / "cache" / "raylet") == loader, "a patched cache would serve all hosts"
    assert subprocess.run([raylet, "-c", "exit 7"], check=False).returncode == 7
    assert list(nixos.programs(environment)) == [], "nothing is left to patch"
