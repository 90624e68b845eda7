from pathlib import Path

import pytest

from medley import config
from medley.command import AnnotatedCommand, Flag, Variable
from medley.environment import container
from medley.environment.container import (
    ContainerSpec,
    HardLimits,
    Image,
    Mount,
    Runtime,
    build_removal_words,
    list_engine_variables_set_by_user,
    name_container,
)
from medley.host.kind import match_kind
from tests.host.recordings import recorded
from tests.problems import raises_problem

ID = "0f66cc578fb7" + "0" * 52
BOX = ContainerSpec(
    "docker",
    Image("maker/vllm:1", ID, names=("CUDA_VERSION", "PATH")),
    flags=(Flag(("--gpus",), "all", "GPUs"),),
    mounts=(Mount(Path("/models/m"), "the model"),),
)
ENGINE = AnnotatedCommand(
    ("vllm", "serve", "/models/m"),
    (Flag(("--port",), "8000", "the server's address"),),
    (
        Variable("NCCL_DEBUG", "WARN", "said"),
        Variable("VLLM_API_KEY", "/state/key", "the key", secret=True),
        Variable("RAY_AUTH_TOKEN_PATH", "/state/token", "the token"),
    ),
    ("--seed", "7"),
)


def test_the_engine_comes_last_and_as_it_was() -> None:
    words = BOX.wrap(ENGINE, "medley-x", {}).command.argv
    at = words.index("--entrypoint")
    assert words[:2] == ("docker", "run")
    assert words[at:] == ("--entrypoint", "vllm", ID, "serve", "/models/m", "--port", "8000", "--seed", "7")
    assert words[words.index("--gpus") + 1] == "all"


def test_values_are_in_the_client_s_environment_and_names_on_its_command_line() -> None:
    command = BOX.wrap(ENGINE, "medley-x", {"HF_TOKEN": "hf_secret", "EDITOR": "vi"}).command
    words = command.argv
    named = [words[at + 1] for at, word in enumerate(words) if word == "--env"]
    assert named == ["NCCL_DEBUG", "VLLM_API_KEY", "RAY_AUTH_TOKEN_PATH", "HF_TOKEN"]
    assert command.env == {"NCCL_DEBUG": "WARN", "RAY_AUTH_TOKEN_PATH": "/state/token"}
    assert command.secrets == {"VLLM_API_KEY": "/state/key"}
    assert "hf_secret" not in str(command)
    assert command.inherits == ("CUDA_VERSION", "PATH")


def test_each_part_has_a_reason() -> None:
    why = BOX.wrap(ENGINE, "medley-x", {}).list_reasons()
    assert all(reason for _, reason in why)
    told = dict(why)
    assert {"--network host", "--ipc host", "--init", "--rm", "--port 8000", "--name medley-x"} <= set(told)


@pytest.mark.parametrize(
    ("volume", "there"),
    [
        pytest.param("/models/m:/models/m:ro", True, id="the model, to read"),
        pytest.param("/state/token:/state/token:ro", True, id="the token's file, which a variable names"),
        pytest.param("/cache/needs/x:/cache/needs/x:ro", True, id="encodings, which a variable names"),
        pytest.param("/own/chat.jinja:/own/chat.jinja:ro", True, id="a file that a flag names"),
        pytest.param("/own/more.yaml:/own/more.yaml:ro", True, id="the same in one word"),
        pytest.param("/state/key:/state/key:ro", False, id="a secret's value goes in, not its file"),
    ],
)
def test_what_is_mounted(volume: str, *, there: bool) -> None:
    base = Variable("TIKTOKEN_ENCODINGS_BASE", "/cache/needs/x", "encodings")
    named = ("--chat-template", "/own/chat.jinja", "--config=/own/more.yaml")
    engine = ENGINE.replace(variables=(*ENGINE.variables, base), extra=named)
    assert (volume in BOX.wrap(engine, "medley-x", {}).command.argv) is there


def test_ray_stays_until_it_is_ended_by_name() -> None:
    command = BOX.wrap(ENGINE, "medley-ray", {}, detached=True).command
    assert "--detach" in command.argv
    assert "--rm" not in command.argv  # its last words would be gone with it
    assert command.undo == ("docker", "rm", "--force", "medley-ray")


def test_beside_ray_it_is_in_ray_s_process_namespace() -> None:
    words = BOX.replace(pid_container="medley-ray").wrap(ENGINE, "medley-x", {}).command.argv
    assert words[words.index("--pid") + 1] == "container:medley-ray"
    assert "--init" not in words  # podman and docker take it for a first process alone


@pytest.mark.parametrize(
    ("entrypoint", "words"),
    [
        pytest.param((), ("--entrypoint", "vllm", ID, "serve"), id="none"),
        pytest.param(("vllm", "serve"), ("--entrypoint", "vllm", ID, "serve"), id="the engine itself"),
        pytest.param(("/opt/nvidia/nvidia_entrypoint.sh",), (ID, "vllm", "serve"), id="NVIDIA's, kept"),
    ],
)
def test_the_image_s_own_entrypoint(entrypoint: tuple[str, ...], words: tuple[str, ...]) -> None:
    box = BOX.replace(image=BOX.image.replace(entrypoint=entrypoint))
    argv = box.wrap(ENGINE, "medley-x", {}).command.argv
    at = argv.index(words[0])
    assert argv[at : at + len(words)] == words


def test_what_a_shell_says_to_an_engine() -> None:
    shell = {"HF_TOKEN": "", "NCCL_DEBUG": "", "CUDA_HOME": "", "HOME": "", "https_proxy": "", "RAY_X": ""}
    assert list(list_engine_variables_set_by_user(shell, {"NCCL_DEBUG"})) == [
        "HF_TOKEN",
        "RAY_X",
        "https_proxy",
    ]


def test_names_differ_by_role_and_by_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEDLEY_STATE", "/a")
    of_ray = name_container("ray")
    assert of_ray != name_container("serve-8000")
    assert of_ray == name_container("ray")
    monkeypatch.setenv("MEDLEY_STATE", "/b")
    assert of_ray != name_container("ray")


def test_a_removal_waits_for_nothing() -> None:
    assert build_removal_words("podman", "x") == ("podman", "rm", "--force", "--ignore", "--time", "0", "x")


ROOT = HardLimits(files=1_048_576, processes=None, memlock_bytes=None, can_raise=True)
PERSON = HardLimits(files=524_288, processes=8192, memlock_bytes=8 << 20, can_raise=False)


def words(runtime: Runtime, host: str, limits: HardLimits = ROOT) -> list[str]:
    facts = recorded(host)
    flags = tuple(
        container.list_host_flags(runtime, match_kind(facts, config.load_hosts()).table, facts, limits)
    )
    assert all(flag.why for flag in flags)
    return [" ".join(flag.build_argv()) for flag in flags]


RDMA = ["--ulimit memlock=-1:-1", "--device /dev/infiniband"]
OWN = ["--ulimit nofile=1048576:1048576", "--ulimit nproc=32768:32768"]


@pytest.mark.parametrize(
    ("runtime", "host", "flags"),
    [
        pytest.param(
            "docker",
            "orin-r36",
            ["--runtime nvidia", "--env NVIDIA_DRIVER_CAPABILITIES=all"],
            id="Orin, L4T 36: NVIDIA's runtime",
        ),
        pytest.param("docker", "thor-r38", ["--gpus all"], id="Thor: as any other"),
        pytest.param("docker", "rtx-4090", ["--gpus all"], id="RTX"),
        pytest.param("docker", "spark-pair-a", [RDMA[0], "--gpus all", RDMA[1]], id="Spark: RDMA"),
        pytest.param("docker", "cpu-rack", [], id="no GPU"),
        pytest.param(
            "podman",
            "spark-pair-a",
            [*OWN, RDMA[0], "--device nvidia.com/gpu=all", RDMA[1]],
            id="Spark, podman: CDI",
        ),
        pytest.param("podman", "orin-r36", [*OWN, "--device nvidia.com/gpu=all"], id="Orin, podman: CDI"),
        pytest.param("podman", "cpu-rack", OWN, id="no GPU, podman"),
    ],
)
def test_what_a_kind_of_host_passes_on(runtime: Runtime, host: str, flags: list[str]) -> None:
    assert words(runtime, host) == flags


def test_podman_gives_no_more_than_the_host_has() -> None:
    assert words("podman", "cpu-rack", PERSON) == [
        "--ulimit nofile=524288:524288",
        "--ulimit nproc=8192:8192",
    ]


def test_rdma_without_the_right_to_lock_memory_is_a_problem_for_podman_alone() -> None:
    assert RDMA[0] in words("docker", "spark-pair-a", PERSON)  # its daemon is root
    assert RDMA[0] not in words("podman", "rtx-4090", PERSON)
    with raises_problem(
        "RDMA",
        "podman",
        cause="8192 KiB",
        fix=(
            "echo '* - memlock unlimited' | sudo tee /etc/security/limits.d/memlock.conf",
            "--container docker",
        ),
    ):
        words("podman", "spark-pair-a", PERSON)
