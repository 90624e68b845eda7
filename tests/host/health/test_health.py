"""A host's condition is what a person reads in its answers; what was not asked is None."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from medley import config
from medley.host import facts
from medley.host.driver_libraries import read_library_file
from medley.host.health import (
    CLUSTERS_QUESTION,
    DISKS_QUESTION,
    PAGES_QUESTION,
    PROCESSES_QUESTION,
    QUESTIONS,
    Disk,
    Health,
    Pages,
    ProcessUsage,
    access,
    gpu,
    read_disks,
    read_health,
    read_pages,
    read_processes,
    software,
)
from medley.host.health.gpu import GpuUser
from medley.host.redact import Redactor
from medley.process import ask_host
from medley.transcript import Answer, Transcript, format_transcript, parse_transcript
from tests.environment.driver_trees import begin
from tests.host.health.cases import CLOCKS, IDLE, REASONS, answers, meminfo, smi, used_by
from tests.waiting import wait_for

GIB, MIB = 1 << 30, 1 << 20


def said(*pairs: tuple[str, str]) -> Transcript:
    return {question: Answer(answer) for question, answer in pairs}


def test_nothing_was_asked() -> None:
    assert read_health({}) == Health()
    assert read_health(dict.fromkeys(facts.QUESTIONS, Answer())) == Health()


def test_its_questions_are_not_asked_by_others() -> None:
    assert set(QUESTIONS).isdisjoint(facts.QUESTIONS)
    assert len(set(QUESTIONS)) == len(QUESTIONS)


def test_a_transcript_of_both_replays_to_the_same() -> None:
    whole = answers("spark")
    assert read_health(parse_transcript(format_transcript(whole))) == read_health(whole)
    assert read_health(Redactor(["spark"]).transcript(whole)) == read_health(whole)


def test_this_very_host_answers() -> None:
    """Real programs, whatever this host has of them."""
    found = read_health(ask_host(QUESTIONS))
    assert found.pages
    assert found.pages.free_bytes > 0
    assert {each.what for each in found.disks or ()} == {"environments", "state", "models", "temporary"}
    assert found.firewall
    assert found.access
    assert found.settings is not None
    assert found.medley_files is not None


class TestGpuState:
    def test_users_clocks_and_reasons(self) -> None:
        users = used_by(
            (2211, "G", "Xorg", 180), (6330, "C", "sglang::scheduler", 96073), (7, "C+G", "chrome", 1)
        )
        (gpu,) = _states(smi(users, REASONS, CLOCKS))
        assert gpu.users == (
            GpuUser(2211, "Xorg", is_graphics=True, memory_bytes=180 * MIB),
            GpuUser(6330, "sglang::scheduler", is_graphics=False, memory_bytes=96073 * MIB),
            GpuUser(7, "chrome", is_graphics=False, memory_bytes=MIB),
        )
        assert (gpu.mhz, gpu.max_mhz, gpu.set_mhz, gpu.default_mhz) == (208, 3003, 2418, 2418)
        assert gpu.clock_limits == ("Idle",)

    def test_two_gpus(self) -> None:
        both = smi(IDLE, REASONS, CLOCKS) + "GPU 00000000:02:00.0\n" + used_by((1, "C", "python3", 5))
        one, two = _states(both)
        assert (one.users, two.bus_id, len(two.users)) == ((), "00000000:02:00.0", 1)

    def test_an_older_drivers_words(self) -> None:
        older = REASONS.replace("Event", "Throttle").replace(
            "SW Thermal Slowdown               : Not", "SW Thermal Slowdown : "
        )
        (gpu,) = _states(smi(IDLE, older.replace(":  Active", ": Active"), CLOCKS))
        assert "SW Thermal Slowdown" in gpu.clock_limits

    @pytest.mark.parametrize(
        "answer", ["", "Unable to determine the device handle for GPU0", "No devices were found\n"]
    )
    def test_no_gpu_that_it_tells_of(self, answer: str) -> None:
        assert _states(answer) == ()

    @pytest.mark.parametrize(
        ("answer", "mode"),
        [
            ("NV Power Mode: MAXN\n0\n", "MAXN"),
            ("NV Fan Mode:quiet\nNV Power Mode: MODE_30W\n2\n", "MODE_30W"),
            ("NV Power Mode: MAXN_SUPER\n", "MAXN_SUPER"),
            ("NVPM ERROR: optMask is 1, no request for power mode\n", None),
        ],
    )
    def test_power(self, answer: str, mode: str | None) -> None:
        found = gpu.read_gpu_states(said((gpu.STATE_QUESTION, ""), (gpu.POWER_QUESTION, answer)))
        assert found.power_mode == mode

    def test_the_question_keeps_folders_and_arguments_to_itself(self) -> None:
        expression = re.search(r"sed -E '(.*)'", gpu.STATE_QUESTION)
        assert expression
        line = "                Name                          : /home/alice/bin/python3 train.py --token=x"
        asked = f"printf '%s\\n' '{line}' | sed -E '{expression[1]}'"
        assert ask_host([asked])[asked].text.strip() == "Name                          : python3"


def _states(answer: str) -> tuple[gpu.GpuState, ...]:
    return gpu.read_gpu_states(said((gpu.STATE_QUESTION, answer))).gpus


def test_pages() -> None:
    found = read_pages(said((PAGES_QUESTION, meminfo(3, 60, 16, 9))))
    assert found == Pages(3 * GIB, 60 * GIB, 16 * GIB, 9 * GIB)
    assert read_pages(said((PAGES_QUESTION, ""))) is None


def test_processes() -> None:
    found = read_processes(
        said(
            (
                PROCESSES_QUESTION,
                "own 40 raylet\nother 90 Xorg\nown 41 ray::IDLE\nother 8 raylets\nown 42 raylet\n",
            ),
            (CLUSTERS_QUESTION, "41 here\n42 elsewhere\n"),
        )
    )
    assert found == (
        ProcessUsage(40, "raylet", "ray", is_of_user=True),
        ProcessUsage(90, "Xorg", "desktop", is_of_user=False),
        ProcessUsage(41, "ray::IDLE", "ray", is_of_user=True, cluster="here"),
        ProcessUsage(42, "raylet", "ray", is_of_user=True, cluster="elsewhere"),
    )
    assert [each.pid for each in found if each.is_own_ray] == [41]
    assert read_processes({PROCESSES_QUESTION: Answer("", 127)}) is None


def test_the_cluster_of_a_ray_process_is_that_of_its_state_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent of Ray has its title where its variables were, so only its raylet has the mark."""
    mine, other = tmp_path / "mine", tmp_path / "other"
    for state in (mine, other):
        (state / "ray").mkdir(parents=True)
    (tmp_path / "link").symlink_to(mine)
    for name in ("raylet", "ray::DashboardA"):
        (tmp_path / name).symlink_to(shutil.which("sleep") or "sleep")
    shell = (tmp_path / "gcs_server").resolve()
    shell.symlink_to("/bin/sh")
    agent = f"env -i '{tmp_path}/ray::DashboardA' 60 & echo $!; wait"
    marks = {"here": mine / "ray", "elsewhere": other / "ray", "none": None}
    started = {
        name: subprocess.Popen(
            (str(shell), "-c", agent),
            env={"PATH": os.environ["PATH"], **({"MEDLEY_RAY": str(mark)} if mark else {})},
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        for name, mark in marks.items()
    }
    try:
        pids = {name: {process.pid, _read_pid(process)} for name, process in started.items()}
        monkeypatch.setenv("MEDLEY_STATE", str(tmp_path / "link"))
        asked = read_processes(ask_host((PROCESSES_QUESTION, CLUSTERS_QUESTION)))
        assert asked is not None
        found = {each.pid: each for each in asked}
        assert {found[pid].cluster for pid in pids["here"]} == {"here"}
        assert {found[pid].cluster for pid in pids["elsewhere"]} == {"elsewhere"}
        assert {found[pid].cluster for pid in pids["none"]} == {None}
        assert {pid for pid, each in found.items() if each.is_own_ray} >= pids["here"]
    finally:
        for process in started.values():
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def _read_pid(process: "subprocess.Popen[bytes]") -> int:
    assert process.stdout
    pid = int(process.stdout.readline())
    wait_for("the agent runs", lambda: Path(f"/proc/{pid}/comm").read_text().startswith("ray::"))
    return pid


def test_the_drivers_files(tmp_path: Path) -> None:
    """Asked by a shell they are what Python sees: a library, a link to nothing, an empty file."""
    library = begin(os.uname().machine) + b"more"
    for name, content in (("libcuda.so.580.95.05", library), ("libnvidia-ml.so.1", b"")):
        (tmp_path / name).write_bytes(content)
    (tmp_path / "libcuda.so.1").symlink_to("libcuda.so.580.95.05")
    (tmp_path / "libdxcore.so").symlink_to("gone")
    asked = gpu.FILES_QUESTION.replace(f"in {' '.join(gpu.FOLDERS)};", f"in {tmp_path};")
    answer = ask_host((asked,))[asked]
    found = gpu.read_driver_files({gpu.FILES_QUESTION: answer})
    assert set(found) == {str(tmp_path / n) for n in ("libcuda.so.1", "libnvidia-ml.so.1", "libdxcore.so")}
    assert all(found[path] == read_library_file(path) for path in found)


def test_every_folder_of_a_drivers_is_asked_about() -> None:
    named = {
        folder
        for host in config.load_hosts().values()
        for each in host.driver.to_table().values()
        for folder in each
    }
    assert set(gpu.FOLDERS) == named


def test_compilers() -> None:
    found = gpu.read_compilers(
        said(
            (gpu.PTXAS_QUESTION, "/a/ptxas 12.8\n/b/ptxas \n/a/ptxas 12.8\n"),
            (gpu.TOOLKIT_QUESTION, "flake\n"),
            (gpu.HEADERS_QUESTION, "/e/vllm True\n/e/own False\n/e/broken \n"),
        )
    )
    assert found == gpu.Compilers((("/a/ptxas", "12.8"),), is_from_nix=True, without_headers=("/e/own",))


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (
            "state yes 1000 10",
            (Disk("state", is_writable=True, total_bytes=1000 << 10, free_bytes=10 << 10),),
        ),
        (
            "models no 1000 10",
            (Disk("models", is_writable=False, total_bytes=1000 << 10, free_bytes=10 << 10),),
        ),
        ("models no", ()),
        ("nonsense", ()),
    ],
)
def test_disks(line: str, found: tuple[Disk, ...]) -> None:
    assert read_disks(said((DISKS_QUESTION, f"{line}\n"))) == found


def test_access() -> None:
    found = access.read_access(
        said(
            (access.DEVICES_QUESTION, "/dev/nvidiactl yes\n/dev/infiniband/uverbs0 no\n"),
            (access.LIMITS_QUESTION, "Max locked memory 65536 65536 bytes\nMax open files 1024 4096 files\n"),
        )
    )
    assert (found.open_devices, found.closed_devices) == (("/dev/nvidiactl",), ("/dev/infiniband/uverbs0",))
    assert (found.limits.locked_bytes, found.limits.open_files) == (65536, 4096)


def test_an_answer_that_is_cut_has_what_is_whole_of_it() -> None:
    found = access.read_access(
        said(
            (access.DEVICES_QUESTION, "/dev/nvidiactl yes\n/dev/nv\n"),
            (access.LIMITS_QUESTION, "Max open files 1024\n"),
        )
    )
    assert found == access.Access(open_devices=("/dev/nvidiactl",))
    doors = access.read_firewall(
        said((access.LISTENING_QUESTION, ""), (access.UFW_QUESTION, "ENABLED=no\nDEFAULT_IN\n"))
    )
    assert doors.ufw is False


class TestDoors:
    def test_ports(self) -> None:
        assert _doors((access.LISTENING_QUESTION, "5DC0 all\n0277 loopback\nbad\n")).listening == (
            (24000, True),
            (631, False),
        )

    def test_rules_that_close(self) -> None:
        hook = "\t\ttype filter hook input priority 0; policy drop;\n"
        rules = (
            f"table inet medley {{\n\tchain input {{\n{hook}\t\ttcp dport 24000 drop\n"
            "table ip nat {\n\tchain pre {\n\t\ttype nat hook prerouting;\n\t\tip saddr 1.2.3.4 drop\n"
            f"table inet filter {{\n\tchain in {{\n{hook}\t\ttcp dport 22 reject\n"
        )
        found = _doors(
            (access.NFT_QUESTION, rules),
            (access.IPTABLES_QUESTION, "-P INPUT ACCEPT\n-A INPUT -p tcp --dport 80 -j DROP\n"),
        )
        assert found.closing_rules == (
            "inet filter in: policy drop",
            "inet filter in: tcp dport 22 reject",
            "iptables: -A INPUT -p tcp --dport 80 -j DROP",
        )
        assert found.is_readable

    def test_ufw_and_name(self) -> None:
        found = _doors(
            (access.UFW_QUESTION, 'ENABLED="yes"\n'),
            (access.LOCAL_ADDRESSES_QUESTION, "10.0.0.1\n10.0.1.1\n"),
        )
        assert (found.ufw, found.local_addresses, found.is_readable) == (
            True,
            ("10.0.0.1", "10.0.1.1"),
            False,
        )
        assert _doors().ufw is None


def _doors(*pairs: tuple[str, str]) -> access.Firewall:
    return access.read_firewall(said((access.LISTENING_QUESTION, ""), *pairs))


@pytest.mark.parametrize(
    ("answer", "language", "found"),
    [
        (
            "NTP=yes\nNTPSynchronized=no\n",
            "C.UTF-8",
            access.Clock(is_synchronization_on=True, is_synchronized=False, charset="UTF-8"),
        ),
        ("", "", access.Clock()),
        ("", "de_DE.ISO-8859-1", access.Clock(charset="ISO-8859-1")),
    ],
)
def test_clock(answer: str, language: str, found: access.Clock) -> None:
    assert (
        access.read_clock(said((access.SYNCHRONISED_QUESTION, answer), (access.CHARSET_QUESTION, language)))
        == found
    )


def test_hub() -> None:
    words = said((software.SETTINGS_QUESTION, "mirror\ntoken\n"), (software.MODE_QUESTION, "644\n"))
    found = software.read_hub_access({**words, software.ANSWER_QUESTION: Answer("000", 28)})
    assert found == software.HubAccess(
        None, "no answer in 2 s", has_mirror=True, has_token=True, token_mode="644"
    )
    assert software.read_hub_access({software.ANSWER_QUESTION: Answer("200")}) == software.HubAccess(200)
    assert software.read_hub_access({software.ANSWER_QUESTION: Answer("", 127)}) is None


@pytest.mark.parametrize(
    "variables",
    [
        {"HF_HUB_OFFLINE": "0", "TRANSFORMERS_OFFLINE": "1"},
        {"HF_HOME": "/x", "HF_TOKEN": "secret", "HF_HUB_OFFLINE": "True"},
        {"XDG_CACHE_HOME": "/x", "HF_TOKEN_PATH": "/token", "TRANSFORMERS_OFFLINE": "on"},
        {"HUGGINGFACE_HUB_CACHE": "/x", "HF_HOME": "/y", "HUGGING_FACE_HUB_TOKEN": "secret"},
        {"HUGGINGFACE_HUB_CACHE": "/x", "HF_HUB_CACHE": "/y"},
    ],
    ids=" ".join,
)
def test_the_shell_means_what_the_hub_s_library_means(variables: Mapping[str, str]) -> None:
    asked = "import os; from huggingface_hub import constants as c; print(c.HF_HUB_CACHE, c.HF_TOKEN_PATH)"
    asked += "; print('offline' if c.HF_HUB_OFFLINE else '', 'token' if os.environ.get('HF_TOKEN') or"
    asked += " os.environ.get('HUGGING_FACE_HUB_TOKEN') else '')"
    env = {"HOME": "/home/me", "PATH": os.environ["PATH"], **variables}
    shell = f'echo "{software.HUB_CACHE}" "{software.HUB_TOKEN}"; {software.SETTINGS_QUESTION}'
    said = [
        sorted(subprocess.run(words, env=env, capture_output=True, text=True, check=True).stdout.split())
        for words in (["sh", "-c", shell], [sys.executable, "-c", asked])
    ]
    assert said[0] == said[1]


def test_rdma_parts() -> None:
    found = software.read_rdma_parts(
        said((software.LIBRARIES_QUESTION, "libibverbs.so.1\n"), (software.MODULES_QUESTION, "nvidia \n"))
    )
    assert found == software.RdmaParts(frozenset({"libibverbs"}), frozenset({"nvidia"}))
    nixos = software.read_rdma_parts({software.LIBRARIES_QUESTION: Answer("", 127)})
    assert nixos.libraries is None


def test_settings() -> None:
    found = software.read_settings(
        {
            software.VARIABLES_QUESTION: Answer("NCCL_IB_HCA==mlx5_0:1\n"),
            software.MTUS_QUESTION: Answer("9000\nclosed\nnone\n"),
            software.LINGERS_QUESTION: Answer("no\n"),
            software.RUNTIMES_QUESTION: Answer('docker\n"nvidia"\n/etc/cdi/nvidia.yaml\n'),
        }
    )
    assert found == software.Settings(
        {"NCCL_IB_HCA": "=mlx5_0:1"},
        frozenset({9000}),
        has_mtu_files=True,
        is_all_read=False,
        is_lingering=False,
        runtimes=frozenset({"docker"}),
        has_nvidia_runtime=True,
        has_cdi=True,
    )


def test_no_token_is_among_the_variables() -> None:
    assert "TOKEN" not in software.VARIABLES_QUESTION
    assert "KEY" not in software.VARIABLES_QUESTION


@pytest.mark.parametrize(("mode", "found"), [(0o600, {}), (0o640, {"keys/*": "640"})])
def test_a_key_that_others_can_read_is_found_and_not_named(
    mode: int, found: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this machine's own shell; a name is of a person, and the answer goes into bug reports."""
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path))
    (tmp_path / "token").touch(0o600)
    (tmp_path / "keys").mkdir()
    for name in ("alice", "bob"):
        (tmp_path / "keys" / name).touch(0o600)
    (tmp_path / "keys/bob").chmod(mode)
    told = ask_host((software.SECRETS_QUESTION,))
    assert software.read_medley_files(told).modes == {"token": "600", **found}
    assert "bob" not in told[software.SECRETS_QUESTION].text


def test_keeping() -> None:
    found = software.read_medley_files(
        said(
            (software.SECRETS_QUESTION, "600 token\n644 api-key\n"),
            (software.MEMBERSHIP_QUESTION, '"role": "head"\n"address": "10.0.0.1"\n'),
            (software.SERVING_QUESTION, "8000\n"),
            (
                software.PACKAGES_QUESTION,
                "vllm-cpu-41d8/lib/python3.11/site-packages/vllm-0.32.0+cpu.dist-info\n",
            ),
            (
                software.USER_ENVIRONMENT_QUESTION,
                "bin/python\nbin/ray\nlib/python3.12/site-packages/nvidia_nccl_cu13-2.30.7.dist-info\n",
            ),
        )
    )
    assert found == software.MedleyFiles(
        {"token": "600", "api-key": "644"},
        {"role": "head", "address": "10.0.0.1"},
        (8000,),
        {"vllm-cpu-41d8": {"python": "3.11", "vllm": "0.32.0+cpu"}},
        {"python": "3.12", "nvidia_nccl_cu13": "2.30.7"},
        frozenset({"python", "ray"}),
    )
