"""Real builds of real environments, and what is left when one goes wrong: never a half-made one."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from uv import find_uv_bin

from tests.waiting import wait_for

pytestmark = pytest.mark.engine

TREE = Path(__file__).parents[2]
LIMIT_S = 30
"""Half of what the slow build would take."""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it makes namespaces and mounts")


@pytest.fixture
def tiny(tmp_path: Path) -> dict[str, str]:
    """The variables of a medley that has one more environment, of two packages, and an empty cache."""
    locks = tmp_path / "config" / "locks"
    locks.mkdir(parents=True)
    base = (TREE / "locks" / "base.txt").read_text(encoding="utf-8")
    text = "".join(re.findall(r"^(?:h11|idna)==(?:.*\\\n)*.*\n", base, re.MULTILINE))
    (locks / "tiny.txt").write_text(text)
    write_recipe(tmp_path)
    mine = {"MEDLEY_CONFIG": str(tmp_path / "config"), "MEDLEY_CACHE": str(tmp_path / "cache")}
    taken = {"MEDLEY_TOOLKIT", "MEDLEY_FLAKE", "MEDLEY_PYTHONS", "MEDLEY_UV"}
    return {**{name: value for name, value in os.environ.items() if name not in taken}, **mine}


def write_recipe(tmp_path: Path, **changes: str) -> None:
    keys = {
        "title": '"Two small packages"',
        "engine": '"vllm"',
        "device": '"cpu"',
        "python": '"{}.{}"'.format(*sys.version_info[:2]),
        "systems": '["x86_64-linux", "aarch64-linux"]',
        "disk_bytes": "1_000_000",
    }
    lines = (f"{key} = {value}\n" for key, value in {**keys, **changes}.items())
    (tmp_path / "config" / "locks" / "tiny.toml").write_text("".join(lines))


def medley(
    env: Mapping[str, str], *words: str, before: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    command = [*before, sys.executable, "-m", "medley", *words]
    start = time.monotonic()
    finished = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=120)
    assert time.monotonic() - start < LIMIT_S, f"slower than {LIMIT_S} s\n{finished.stderr}"
    return finished


def start(env: Mapping[str, str], *words: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "medley", *words]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def environments(tmp_path: Path) -> list[str]:
    """Folders of environments, finished or not."""
    where = tmp_path / "cache" / "envs"
    return sorted(path.name for path in where.iterdir() if path.name != ".locks") if where.exists() else []


def is_problem(finished: subprocess.CompletedProcess[str], *words: str) -> bool:
    said = finished.stderr
    assert "Traceback" not in said, said
    assert all(word in said for word in ("cause:", "fix:", *words)), said
    return finished.returncode == 1


@pytest.fixture
def slow(tiny: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """uv installs, and then takes a minute to end: time to kill a build that is under way."""
    script = tmp_path / "uv"
    late = 'case "$*" in *--dry-run*) ;; *"pip sync"*) sleep 60 ;; esac'
    script.write_text(f'#!/bin/sh\n"{find_uv_bin()}" "$@" || exit\n{late}\n')
    script.chmod(0o755)
    return {**tiny, "MEDLEY_UV": str(script)}


def under_way(process: "subprocess.Popen[str]", tmp_path: Path) -> None:
    """Wait until the packages lie in the half-made folder."""
    folder = tmp_path / "cache" / "envs"
    wait_for(
        "the packages lie in the half-made folder",
        lambda: list(folder.glob("tiny-*/lib/*/site-packages/h11")) or process.poll() is not None,
        LIMIT_S,
        state=lambda: environments(tmp_path),
    )
    assert process.poll() is None, process.communicate()


def uv_processes(tmp_path: Path) -> Iterator[str]:
    """The command lines of what still runs for this test's folder."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if f"{tmp_path}/uv" in line:
            yield line


def test_build_path_list_reuse_and_clean(tiny: dict[str, str], tmp_path: Path) -> None:
    built = medley(tiny, "env", "build", "tiny", "--json")
    assert built.returncode == 0, built.stderr
    table = json.loads(built.stdout)
    assert Path(table["path"]).parent == tmp_path / "cache" / "envs"
    assert table["digest"] in table["path"]
    python = f"{table['path']}/bin/python"
    assert subprocess.run([python, "-c", "import h11, idna"], check=False).returncode == 0
    stamp = (Path(table["path"]) / "medley.json").stat().st_mtime_ns

    again = medley(tiny, "env", "build", "tiny")
    assert again.stdout.strip() == table["path"]
    assert (Path(table["path"]) / "medley.json").stat().st_mtime_ns == stamp, "it was built again"
    assert medley(tiny, "env", "path", "tiny").stdout.strip() == table["path"]
    assert "tiny" in medley(tiny, "env", "list").stdout

    assert "rm -rf" in medley(tiny, "env", "clean", "tiny", "--dry-run").stdout
    assert medley(tiny, "env", "clean").returncode == 0
    assert environments(tmp_path) == [Path(table["path"]).name], "what is current stays"
    assert medley(tiny, "env", "clean", "tiny").returncode == 0
    assert environments(tmp_path) == []
    assert is_problem(medley(tiny, "env", "path", "tiny"), "medley env build tiny")


def test_clean_removes_what_no_lock_makes_any_more(tiny: dict[str, str], tmp_path: Path) -> None:
    assert medley(tiny, "env", "build", "tiny").returncode == 0
    lock = tmp_path / "config" / "locks" / "tiny.txt"
    lock.write_text(lock.read_text() + "# another lock\n")
    assert "old" in medley(tiny, "env", "list").stdout
    assert medley(tiny, "env", "clean").returncode == 0
    assert environments(tmp_path) == []


def test_dry_run_prints_what_is_run(tiny: dict[str, str], tmp_path: Path) -> None:
    said = medley(tiny, "env", "build", "tiny", "--dry-run").stdout
    assert environments(tmp_path) == []
    for line in said.splitlines():
        assert subprocess.run(line, shell=True, env=tiny, check=False, capture_output=True).returncode == 0, (
            line
        )
    [name] = environments(tmp_path)
    assert not (tmp_path / "cache" / "envs" / name / "medley.json").exists(), "only a build marks it finished"
    assert medley(tiny, "env", "build", "tiny").returncode == 0


def test_two_builders_at_once(tiny: dict[str, str], tmp_path: Path) -> None:
    first, second = start(tiny, "env", "build", "tiny"), start(tiny, "env", "build", "tiny")
    said = [first.communicate(timeout=60), second.communicate(timeout=60)]
    assert (first.returncode, second.returncode) == (0, 0), said
    assert said[0][0] == said[1][0]
    assert len(environments(tmp_path)) == 1
    assert sum("download and install …" in err for _, err in said) == 1, said


def test_a_build_waits_for_another(slow: dict[str, str], tiny: dict[str, str], tmp_path: Path) -> None:
    first = start(slow, "env", "build", "tiny")
    under_way(first, tmp_path)
    second = start(tiny, "env", "build", "tiny")
    assert second.stderr
    assert "waiting" in second.stderr.readline()
    first.terminate()
    first.communicate(timeout=LIMIT_S)
    out, err = second.communicate(timeout=60)
    assert second.returncode == 0, err
    assert (Path(out.strip()) / "medley.json").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda each: each.name)
def test_a_stopped_build_leaves_nothing(number: signal.Signals, slow: dict[str, str], tmp_path: Path) -> None:
    process = start(slow, "env", "build", "tiny")
    under_way(process, tmp_path)
    begin = time.monotonic()
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert time.monotonic() - begin < LIMIT_S
    assert process.returncode == 128 + number, err
    assert environments(tmp_path) == []
    assert list(uv_processes(tmp_path)) == []


def test_a_killed_build_is_swept(slow: dict[str, str], tiny: dict[str, str], tmp_path: Path) -> None:
    process = start(slow, "env", "build", "tiny")
    under_way(process, tmp_path)
    process.kill()
    process.communicate(timeout=60)
    assert "current" not in medley(tiny, "env", "list").stdout, "half-made, and it looks finished"
    assert is_problem(medley(tiny, "env", "path", "tiny"), "not built")
    (tmp_path / "cache" / "envs" / "vllm-cpu-000000000000" / "lib").mkdir(parents=True)
    built = medley(tiny, "env", "build", "tiny")
    assert built.returncode == 0, built.stderr
    assert environments(tmp_path) == [Path(built.stdout.strip()).name]


def test_a_falsified_hash(tiny: dict[str, str], tmp_path: Path) -> None:
    lock = tmp_path / "config" / "locks" / "tiny.txt"
    text = lock.read_text()
    at = text.index("sha256:", text.index("idna==")) + len("sha256:")
    lock.write_text(text[:at] + ("0" if text[at] != "0" else "1") + text[at + 1 :])
    assert is_problem(medley(tiny, "env", "build", "tiny"), "idna")
    assert environments(tmp_path) == []


def test_a_build_that_is_offered_nowhere(tiny: dict[str, str], tmp_path: Path) -> None:
    lock = tmp_path / "config" / "locks" / "tiny.txt"
    lock.write_text(lock.read_text().replace("h11==", "h11==9"))
    assert is_problem(medley(tiny, "env", "build", "tiny"), "h11", "offered nowhere")
    assert environments(tmp_path) == []


@needs_root
def test_no_network(tiny: dict[str, str], tmp_path: Path) -> None:
    cold = {**tiny, "UV_CACHE_DIR": str(tmp_path / "uv-cache")}
    assert is_problem(medley(cold, "env", "build", "tiny", before=("unshare", "-n")), "cannot be reached")
    assert environments(tmp_path) == []


@needs_root
def test_a_network_that_swallows_everything(tiny: dict[str, str], tmp_path: Path) -> None:
    swallow = (
        "set -e; ip link add hole type veth peer name away; ip link set away arp off up; "
        "ip address add 192.0.2.1/24 dev hole; ip link set hole arp off up; "
        'ip neighbour add 192.0.2.2 lladdr 02:00:00:00:00:02 dev hole; exec "$@"'
    )
    cold = {**tiny, "UV_CACHE_DIR": str(tmp_path / "uv-cache"), "UV_DEFAULT_INDEX": "http://192.0.2.2/simple"}
    before = ("unshare", "-n", "sh", "-c", swallow, "sh")
    assert is_problem(medley(cold, "env", "build", "tiny", before=before), "cannot be reached")
    assert environments(tmp_path) == []


@needs_root
def test_a_full_disk(tiny: dict[str, str], tmp_path: Path) -> None:
    shutil.copy(TREE / "locks" / "base.txt", tmp_path / "config" / "locks" / "tiny.txt")
    (tmp_path / "cache").mkdir()
    cache = tmp_path / "cache"
    mount = f'mount -t tmpfs -o size=8m none {cache} && "$@"; status=$?; ls {cache}/envs; exit $status'
    finished = medley(tiny, "env", "build", "tiny", before=("unshare", "-m", "sh", "-c", mount, "sh"))
    assert is_problem(finished, "disk is full", "MEDLEY_CACHE")
    assert finished.stdout == ""


def test_a_disk_that_is_too_full_to_begin(tiny: dict[str, str], tmp_path: Path) -> None:
    write_recipe(tmp_path, disk_bytes="1_000_000_000_000_000")
    assert is_problem(medley(tiny, "env", "build", "tiny"), "needs 1000000.0 GB", "GB free")
    assert environments(tmp_path) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        pytest.param({"python": '"3.99"'}, ("no Python 3.99", "PATH"), id="no such Python"),
        pytest.param({"systems": "[]"}, ("systems",), id="a table that is wrong"),
    ],
)
def test_what_cannot_be_built(
    changes: dict[str, str], words: tuple[str, ...], tiny: dict[str, str], tmp_path: Path
) -> None:
    write_recipe(tmp_path, **changes)
    finished = medley({**tiny, "UV_PYTHON_DOWNLOADS": "never"}, "env", "build", "tiny")
    assert is_problem(finished, *words)
    assert environments(tmp_path) == []


def test_vllm_cpu_is_proved() -> None:
    """In the usual cache, so that it is built once for every test that needs it."""
    command = [sys.executable, "-m", "medley", "env"]
    built = subprocess.run([*command, "build", "vllm-cpu"], capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    proved = subprocess.run(
        [*command, "check", "vllm-cpu", "--json"], capture_output=True, text=True, check=False
    )
    assert proved.returncode == 0, proved.stderr
    proof = json.loads(proved.stdout)
    assert proof["packages"]["torch"]["version"] == "2.13.0+cpu"
    assert proof["platform"] == "cpu"
    assert all(proof["devices"][0][kernel]["ok"] for kernel in ("matmul", "silu_and_mul"))
    assert [each["fault"] for each in proof["answers"]] == [None, None]
    assert proof["answers"][0]["text"] == "The capital of France is Paris."


SEEN = """
import json, inspect
from vllm.distributed.device_communicators import cpu_communicator
from vllm.platforms import current_platform
from vllm.utils.import_utils import resolve_obj_by_qualname
ours = resolve_obj_by_qualname(current_platform.get_device_communicator_cls())
replaced = [name for name in vars(ours) if inspect.isfunction(vars(ours)[name])]
print(json.dumps({
    "platform": f"{type(current_platform).__module__}.{type(current_platform).__name__}",
    "key": current_platform.ray_device_key,
    "communicator": f"{ours.__module__}.{ours.__name__}",
    "of_vllm": issubclass(ours, cpu_communicator.CpuCommunicator),
    "replaced": {name: hasattr(cpu_communicator.CpuCommunicator, name) for name in replaced},
}))
"""


def test_vllm_on_a_cpu_takes_our_platform_and_so_accepts_ray() -> None:
    built = subprocess.run(
        [sys.executable, "-m", "medley", "env", "build", "vllm-cpu"],
        capture_output=True,
        text=True,
        check=False,
    )
    python = f"{built.stdout.strip()}/bin/python"
    finished = subprocess.run([python, "-c", SEEN], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout.splitlines()[-1]) == {
        "platform": "medley_cpu_ray.CpuUnderRay",
        "key": "GPU",
        "communicator": "medley_cpu_ray.Communicator",
        "of_vllm": True,
        "replaced": {"_all_group_ranks_share_shm_group_name": True},
    }
