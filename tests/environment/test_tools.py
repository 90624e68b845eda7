import json
import stat
import struct
from pathlib import Path

import pytest

from medley import config
from medley.environment import tools
from medley.environment.toolkit import Toolkit
from medley.host.kind import Kind
from medley.progress import SilentProgress
from medley.schema import EngineName
from tests.problems import raises_problem

HOSTS = config.load_hosts()
TOOLKIT = Toolkit(
    kind="cpu", variables={"CC": "/n/gcc"}, path=("/n/bin",), preload=(), pythons={}, uv="/n/uv"
)


class Notes(SilentProgress):
    """A watch that keeps what it is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def kind(name: str) -> Kind:
    return Kind(name, HOSTS[name], "because")


def virtualenv(folder: Path, *programs: str) -> Path:
    (folder / "bin").mkdir(parents=True)
    for program in programs:
        (folder / "bin" / program).touch()
        (folder / "bin" / program).chmod(stat.S_IRWXU)
    return folder


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MEDLEY_CACHE", str(tmp_path / "cache"))
    for name in ("MEDLEY_TOOLKIT", "MEDLEY_FLAKE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("host", "named", "engine", "name"),
    [
        pytest.param("cpu", None, "vllm", "vllm-cpu", id="as the kind's table says"),
        pytest.param("spark", None, "vllm", "vllm-cuda", id="a GPU's"),
        pytest.param("cpu", "vllm-cuda", "vllm", "vllm-cuda", id="as named"),
        pytest.param("cpu", None, "sglang", "sglang-cpu", id="another engine's"),
        pytest.param("thor", None, "sglang", "sglang-cuda", id="another engine's for a GPU"),
        pytest.param("cpu", "sglang-cuda", "sglang", "sglang-cuda", id="another engine's as named"),
    ],
)
def test_environment(host: str, named: str | None, engine: EngineName, name: str) -> None:
    assert tools.choose_environment(kind(host), named, engine) == name


def test_vllm_is_what_is_taken_unless_another_engine_is_asked_for() -> None:
    for name, host in HOSTS.items():
        assert next(iter(host.environments), "vllm") == "vllm", name
        assert name == "orin" or tools.choose_environment(kind(name), None).startswith("vllm-")


OWN = "medley serve MODEL --env /path/to/a/virtualenv/with"


@pytest.mark.parametrize(
    ("host", "named", "words"),
    [
        pytest.param("cpu", "vllm-cpu", ("vLLM", "--env sglang-cpu"), id="another engine in it"),
        pytest.param("cpu", "sglang-cup", ("vllm-cpu, vllm-cuda", "--env sglang-cpu"), id="none"),
        pytest.param(
            "orin-r39",
            None,
            ("hosts/orin-r39.toml", f"{OWN}/sglang"),
            id="not on this",
        ),
    ],
)
def test_no_environment_of_the_engine(host: str, named: str | None, words: tuple[str, str]) -> None:
    with raises_problem(named or "L4T r39", cause=words[0], fix=words[1]):
        tools.choose_environment(kind(host), named, "sglang")


def test_a_kind_without_an_environment_says_why() -> None:
    with raises_problem(
        "Jetson Orin, L4T r36",
        cause=("CUDA 12.6", "JetPack 7.2"),
        fix=(
            "medley serve MODEL --image default",
            "medley serve MODEL --env /path/to/a/virtualenv/with/vllm",
        ),
    ):
        tools.choose_environment(kind("orin"), None)


def test_a_virtualenv_of_ones_own(tmp_path: Path) -> None:
    own = virtualenv(tmp_path / "own", "python", "vllm")
    assert tools.prepare_tools(kind("orin"), str(own)).program_folder == own / "bin"
    bare = virtualenv(tmp_path / "bare", "python")
    with raises_problem(str(bare), cause="bin/vllm"):
        tools.prepare_tools(kind("orin"), str(bare))
    with raises_problem(str(own), cause="bin/sglang"):
        tools.prepare_tools(kind("orin"), str(own), engine="sglang")
    other = virtualenv(tmp_path / "other", "python", "sglang")
    assert tools.prepare_tools(kind("orin"), str(other), engine="sglang").program_folder == other / "bin"


def test_the_shells_toolkit_is_used_and_a_wrong_one_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "toolkit.json").write_text(TOOLKIT.replace(kind="thor").to_json())
    monkeypatch.setenv("MEDLEY_TOOLKIT", str(tmp_path))
    notes = Notes()
    own = virtualenv(tmp_path / "own", "python", "vllm")
    found = tools.prepare_tools(kind("cpu"), str(own), progress=notes)
    assert (dict(found.toolchain_variables), found.path) == ({"CC": "/n/gcc"}, ("/n/bin",))
    assert notes.notes == ["this shell's toolchain is for thor, and the host is cpu"]


def test_a_dry_run_builds_nothing_and_says_what_would_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEDLEY_FLAKE", "/nix/store/none")
    notes = Notes()
    found = tools.prepare_tools(kind("cpu"), dry_run=True, progress=notes)
    assert found.program_folder.is_relative_to(tmp_path / "cache" / "envs")
    assert ["toolkit-cpu" in notes.notes[0], "env build vllm-cpu" in notes.notes[1]] == [True, True]
    assert not (tmp_path / "cache").exists()


def program(path: Path, loader: str) -> None:
    """An ELF program of 64 bits that asks for a loader, and does nothing."""
    name = loader.encode() + b"\0"
    header = struct.pack("<4sBB10xHHIQQQIHHH", b"\x7fELF", 2, 1, 2, 62, 1, 0, 64, 0, 0, 64, 56, 1)
    segment = struct.pack("<IIQQQQQQ", 3, 4, 128, 0, 0, len(name), len(name), 1)
    path.write_bytes((header + bytes(64 - len(header)) + segment + bytes(8))[:128] + name)


NIXS, OWN = "/nix/store/x-glibc/lib/ld-linux-aarch64.so.1", "/lib/ld-linux-aarch64.so.1"
NCCL = "/nix/store/x-nccl/lib/libnccl.so.2"


@pytest.mark.parametrize(
    ("host", "loader", "given"),
    [
        pytest.param("orin-r39", NIXS, NCCL, id="an Orin among others"),
        pytest.param("orin-r39", OWN, None, id="its own Python, on another libc than Nix's NCCL"),
        pytest.param("thor", NIXS, None, id="a kind on which the wheels' NCCL runs"),
        pytest.param("cpu", NIXS, None, id="no GPU"),
    ],
)
def test_a_host_whose_nccl_has_to_be_the_flakes(
    host: str, loader: str, given: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = virtualenv(tmp_path / "own", "vllm")
    program(own / "bin/python", loader)
    monkeypatch.setenv("MEDLEY_NCCL", NCCL)
    for joins in (True, False):
        wanted = given if joins else None
        for dry_run in (False, True):
            settings = tools.prepare_tools(
                kind(host), str(own), is_multi_host=joins, dry_run=dry_run
            ).toolchain_variables
            assert settings.get("VLLM_NCCL_SO_PATH") == settings.get("MEDLEY_PRELOAD") == wanted


@pytest.mark.parametrize(("loader", "notes"), [(NIXS, ["nccl-orin-r39"]), (OWN, [])])
def test_a_dry_run_says_that_nccl_would_be_compiled(
    loader: str, notes: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = virtualenv(tmp_path / "own", "vllm")
    program(own / "bin/python", loader)
    monkeypatch.setenv("MEDLEY_FLAKE", "/nix/store/none")
    said = Notes()
    found = tools.prepare_tools(kind("orin-r39"), str(own), is_multi_host=True, dry_run=True, progress=said)
    assert "VLLM_NCCL_SO_PATH" not in found.toolchain_variables
    assert [note.split()[3] for note in said.notes if "compile" in note] == notes


def test_json_of_a_toolkit_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "toolkit.json"
    path.write_text(TOOLKIT.to_json())
    assert json.loads(path.read_text())["kind"] == "cpu"


@pytest.mark.parametrize(
    ("name", "given", "refused"),
    [
        pytest.param("orin-r39", None, True, id="the wheels' own does not start"),
        pytest.param("orin-r39", "/opt/nccl/libnccl.so.2", False, id="the user has another"),
        pytest.param("spark", None, False, id="it starts"),
    ],
)
def test_hosts_that_join_need_an_nccl_that_starts(
    name: str, given: str | None, *, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VLLM_NCCL_SO_PATH", raising=False)
    if given:
        monkeypatch.setenv("VLLM_NCCL_SO_PATH", given)
    tools.prepare_tools(kind(name), dry_run=True)  # alone it serves
    if not refused:
        tools.prepare_tools(kind(name), is_multi_host=True, dry_run=True)
        return
    with raises_problem(cause="Jetson Orin, L4T r39", fix="nix run .#ray-head"):
        tools.prepare_tools(kind(name), is_multi_host=True, dry_run=True)


@pytest.mark.parametrize(("value", "cleared"), [("1", ["PYTHONDONTWRITEBYTECODE"]), ("", [])])
def test_the_first_start_keeps_its_bytecode(
    value: str, cleared: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", value)
    found = [each for each in tools.Tools(Path("/env/bin")).list_variables("/usr/bin") if each.name != "PATH"]
    assert [each.name for each in found] == cleared
    assert all(each.value == "" for each in found)
    assert "PYTHONDONTWRITEBYTECODE" not in {each.name for each in tools.NO_TOOLS.list_variables("/usr/bin")}
