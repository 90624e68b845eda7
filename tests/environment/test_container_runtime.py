"""Docker and podman as this host has them: small programs of ours that answer as they do."""

import json
from pathlib import Path

import pytest

from medley.environment import container_runtime
from tests.problems import raises_problem

IMAGE = {
    "Id": "sha256:" + "a" * 64,
    "RepoDigests": ["maker/vllm@sha256:" + "d" * 64],
    "Architecture": "arm64",
    "Config": {"Entrypoint": ["vllm", "serve"], "Env": ["PATH=/usr/bin", "CUDA_VERSION=13.0"]},
}
# Without cat: no program is where another has it.
SHOW = 'while IFS= read -r line; do printf "%s\\n" "$line"; done'


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}")
    return tmp_path


def runtime(path: Path, name: str, *, answers: bool = True, images: tuple[str, ...] = ()) -> None:
    (path / "image.json").write_text(f"WARN[0000] something\n{json.dumps([IMAGE])}\n")
    lines = (
        "#!/bin/sh",
        'case "$1 $2" in',
        "'info --format')" + (" echo 1.0;;" if answers else " echo 'Cannot connect to the daemon'; exit 1;;"),
        "'image inspect')",
        f' case " {" ".join(images)} " in *" $3 "*) {SHOW} <{path}/image.json; exit 0;; esac; exit 1;;',
        "'pull maker/other') echo 'Trying to pull'; echo 'connection refused'; exit 125;;",
        "*) exit 1;; esac",
    )
    program = path / name
    program.write_text("\n".join(lines) + "\n")
    program.chmod(0o755)


def test_neither_is_here(path: Path) -> None:
    del path
    with raises_problem("docker", "podman", cause="PATH", fix="sudo apt install podman catatonit"):
        container_runtime.choose_runtime(None, "maker/vllm")


def test_the_one_that_has_the_image(path: Path) -> None:
    runtime(path, "docker")
    runtime(path, "podman", images=("maker/vllm",))
    assert container_runtime.choose_runtime(None, "maker/vllm") == "podman"
    assert container_runtime.choose_runtime("docker", "maker/vllm") == "docker"
    assert container_runtime.choose_runtime(None, "maker/new") == "docker"


def test_a_daemon_that_does_not_answer(path: Path) -> None:
    runtime(path, "docker", answers=False)
    with raises_problem(
        "docker", cause="docker: Cannot connect to the daemon", fix="sudo systemctl start docker"
    ):
        container_runtime.choose_runtime(None, "maker/vllm")
    runtime(path, "podman")
    assert container_runtime.choose_runtime(None, "maker/vllm") == "podman"


def test_what_an_image_is(path: Path) -> None:
    runtime(path, "podman", images=("maker/vllm",))
    found = container_runtime.find_image("podman", "maker/vllm")
    assert found
    assert (found.id, found.digests) == ("a" * 64, ("sha256:" + "d" * 64,))
    assert (found.entrypoint, found.names) == (("vllm", "serve"), ("CUDA_VERSION", "PATH"))
    assert container_runtime.find_image("podman", "maker/other") is None


def test_an_image_for_another_architecture(path: Path) -> None:
    runtime(path, "podman", images=("maker/vllm",))
    assert container_runtime.fetch_image("podman", "maker/vllm", "aarch64-linux").short_id == "a" * 12
    with raises_problem("maker/vllm", cause=("arm64", "x86_64-linux"), fix="podman image rm maker/vllm"):
        container_runtime.fetch_image("podman", "maker/vllm", "x86_64-linux")


def test_an_image_that_cannot_be_fetched_names_the_way_from_a_host_that_has_it(path: Path) -> None:
    runtime(path, "podman")
    with raises_problem(
        "maker/other",
        cause="connection refused",
        fix=("podman pull maker/other", "ssh HOST podman save maker/other | podman load"),
    ):
        container_runtime.fetch_image("podman", "maker/other", "x86_64-linux")


@pytest.mark.parametrize(
    ("said", "fix"),
    [
        pytest.param(
            'docker: Error response: could not select device driver "" with capabilities: [[gpu]].',
            "nvidia-container-toolkit",
            id="docker without NVIDIA's toolkit",
        ),
        pytest.param(
            "docker: Error response from daemon: unknown or invalid runtime name: nvidia.",
            "nvidia-ctk runtime configure",
            id="no NVIDIA runtime",
        ),
        pytest.param(
            "Error: setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=all",
            "nvidia-ctk cdi generate",
            id="podman without CDI",
        ),
        pytest.param(
            "ERROR (catatonit:6): failed to exec pid1: No such file or directory",
            "--image default",
            id="no Python in it",
        ),
        pytest.param(
            "Error: container-init binary not found on the host: stat /usr/libexec/podman/catatonit: no such",
            "apt install catatonit",
            id="podman without an init",
        ),
    ],
)
def test_a_refusal_has_a_fix(said: str, fix: str) -> None:
    from medley.command import Command
    from medley.environment.container import Image

    problem = container_runtime.build_refused_start_problem(
        Image("maker/vllm", "a" * 64), Command(("docker", "run")), [said]
    )
    assert said in problem.cause
    assert fix in problem.fix
