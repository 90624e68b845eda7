"""The engine and Ray out of an image, for real: podman, and an image made of this host's own environment."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from medley import storage
from medley.command import Command
from medley.environment import container, container_image, container_runtime
from medley.environment.container import Image
from medley.environment.container_image import ContainerEnvironment, ImageSelection
from medley.host.kind import detect_host
from medley.process_identity import list_descendants
from tests.engine import imaging
from tests.engine.imaging import podman
from tests.problems import raises_problem
from tests.servers import Served, Start, chat
from tests.waiting import wait_for

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    return imaging.environ(tmp_path_factory.mktemp("podman"))


@pytest.fixture(scope="module")
def image(settings: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory) -> str:
    return imaging.engine(tmp_path_factory.mktemp("image"), settings)


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Mapping[str, str]) -> Iterator[Path]:
    """That of `start`, ours too; whatever container is left at the end is removed."""
    folder = tmp_path / "state"
    for name, value in {"MEDLEY_STATE": str(folder), **settings}.items():
        monkeypatch.setenv(name, value)
    yield folder
    for each in ours(settings):
        podman("rm", "--force", "--time", "0", each, settings=settings)


def ours(settings: Mapping[str, str]) -> list[str]:
    """The containers of this test's state: another run on this machine has its own."""
    only = f"name=^{container.name_container('.*')}$"
    return podman("ps", "--all", "--format", "{{.Names}}", "--filter", only, settings=settings).split()


def medley(*words: str, limit_s: float = 300) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "medley", *words], capture_output=True, text=True, check=False, timeout=limit_s
    )


def serve(image: str, port: int) -> Command:
    return Command((sys.executable, "-m", "medley", "serve", "demo", "--port", str(port), "--image", image))


def until_gone(settings: Mapping[str, str]) -> None:
    wait_for("no container is left", lambda: not ours(settings), 60, state=lambda: ours(settings))


@pytest.mark.slow
@pytest.mark.usefixtures("state")
def test_the_demo_answers_out_of_an_image_and_ctrl_c_leaves_no_container(
    start: Start, free_port: int, image: str, settings: Mapping[str, str]
) -> None:
    served = start(serve(image, free_port))
    url = served.ready()
    assert [name.rpartition("-")[0] for name in ours(settings)] == [f"medley-serve-{free_port}"]
    assert chat(url)["usage"]["completion_tokens"] == 16
    assert served.interrupt() == 128 + signal.SIGINT
    assert ours(settings) == []


@pytest.mark.slow
@pytest.mark.usefixtures("state")
def test_when_medley_is_killed_its_container_ends_and_when_both_are_the_next_start_ends_it(
    start: Start, free_port: int, image: str, settings: Mapping[str, str]
) -> None:
    served = start(serve(image, free_port))
    served.ready()
    os.kill(served.process.pid, signal.SIGKILL)  # its client gets SIGTERM from the kernel, and passes it on
    until_gone(settings)

    name = container.name_container(f"serve-{free_port}")
    limits = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024", "--network", "host")
    podman(
        "run", "--detach", "--name", name, *limits, "--entrypoint", "sleep", image, "60", settings=settings
    )
    assert container_runtime.remove_leftover(f"serve-{free_port}")
    assert ours(settings) == []


@pytest.fixture
def ray_s_ports() -> Iterator[None]:
    """Those on this machine, which are the same for all: another run waits."""
    with storage.lock_file(
        storage.find_cache_folder().parent / "medley-tests" / "ray-ports.lock", on_wait=lambda: None
    ):
        yield


@pytest.mark.slow  # CI runs a model out of an image, and Ray over several hosts, each by itself
@pytest.mark.usefixtures("ray_s_ports", "state")
def test_ray_and_the_model_on_it_run_out_of_the_image(
    free_port: int,
    image: str,
    settings: Mapping[str, str],
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Short, for the paths of Ray's sockets.
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path_factory.mktemp("r")))
    head = medley("ray-head", "--image", image)
    assert head.returncode == 0, head.stderr
    assert "1 slots, 1 free  alive" in medley("status").stdout
    assert [name.split("-")[1] for name in ours(settings)] == ["ray"]
    assert "ended" in medley("ray-stop").stdout
    assert ours(settings) == []

    table = tmp_path_factory.mktemp("c") / "cluster.toml"
    table.write_text(f'image = "{image}"\n[hosts.here]\nssh = "127.0.0.1"\n')
    monkeypatch.setenv("MEDLEY_CLUSTER", str(table))
    try:
        up = medley("up")
        assert up.returncode == 0, up.stderr
        ray = next(name for name in ours(settings) if name.startswith("medley-ray-"))
        before = container_id(ray, settings)
        podman("kill", ray, settings=settings)  # what keeps it starts it anew
        wait_for(
            "Ray runs in another container",
            lambda: container_id(ray, settings) not in {"", before},
            90,
            state=lambda: podman("ps", "--all", settings=settings),
        )
        until_alive()
        served_on_ray(free_port, settings)
    finally:
        down = medley("down")
    assert down.returncode == 0, down.stderr
    assert ours(settings) == []
    assert "the cluster is not started: medley up" in medley("status").stdout


def container_id(name: str, settings: Mapping[str, str]) -> str:
    """Of the running container with this name; empty where none runs."""
    return podman("ps", "--quiet", "--no-trunc", "--filter", f"name=^{name}$", settings=settings)


def until_alive() -> None:
    """Ray is up, and so not only the container."""
    said: list[str] = []

    def alive() -> bool:
        said[:] = [medley("status").stdout]
        return said[0].count(" up ") == 1 and "0 of 1 taken" in said[0]

    wait_for("status shows this host up and free", alive, 90, state=lambda: said)


def served_on_ray(port: int, settings: Mapping[str, str]) -> None:
    """Nothing needs to be said again: the engine is of the image whose Ray runs."""
    served = Served(Command((sys.executable, "-m", "medley", "serve", "demo", "--port", str(port))))
    try:
        url = served.ready()
        assert "1 of 1 taken" in medley("status").stdout
        assert {name.split("-")[1] for name in ours(settings)} == {"ray", "ask", "serve"}
        assert chat(url)["usage"]["completion_tokens"] == 16
        assert served.interrupt(signal.SIGTERM) == 128 + signal.SIGTERM
    finally:
        served.process.stop()


@pytest.mark.usefixtures("state")
def test_an_image_without_an_engine_is_a_problem(tmp_path: Path, settings: Mapping[str, str]) -> None:
    name = f"localhost/medley-empty:{os.getpid()}"
    for each in ("proc", "sys", "dev", "etc", "tmp"):
        (tmp_path / "root" / each).mkdir(parents=True)
    archive = tmp_path / "empty.tar"
    subprocess.run(["tar", "-C", str(tmp_path / "root"), "-cf", str(archive), "."], check=True, timeout=60)
    podman("import", str(archive), name, settings=settings)
    try:
        refused = medley("serve", "demo", "--image", name, "--container", "podman")
    finally:
        podman("rmi", "--force", name, settings=settings)
    assert refused.returncode == 1
    assert f"nothing runs out of {name}" in refused.stderr
    assert "that has Python, Ray and vLLM" in refused.stderr


def look(image: str) -> ContainerEnvironment:
    return container_image.prepare_image(ImageSelection("podman", Image(image)), detect_host(), "vllm")


@pytest.mark.usefixtures("state")
def test_torch_in_the_image_maps_the_host_s_own_nccl(
    tmp_path: Path, image: str, settings: Mapping[str, str]
) -> None:
    (tmp_path / "broken.so").write_text("no library")
    file = imaging.nccl(tmp_path / "host", 22707)
    with imaging.with_stand_in(image, tmp_path, settings) as name:
        found = look(name)
        (before,) = container_image.probe_image(found, "nccl")["nccl"]
        assert before["version"] == 22907
        (after,) = container_image.probe_image(container_image.mount_user_nccl(found, str(file)), "nccl")[
            "nccl"
        ]
        assert after["version"] == 22707
        assert after["path"] == before["path"] == "/standin/nvidia/nccl/lib/libnccl.so.2"

        with raises_problem(name, cause="libnccl.so.2"):
            container_image.mount_user_nccl(found, str(tmp_path / "broken.so"))


@pytest.mark.usefixtures("state")
def test_a_torch_without_nccl_takes_none(tmp_path: Path, image: str) -> None:
    file = str(imaging.nccl(tmp_path / "host", 22707))
    with raises_problem(file, cause=(image, "libnccl.so")):
        container_image.mount_user_nccl(look(image), file)


@pytest.mark.usefixtures("state")
def test_the_edge_and_the_watchdog_reach_into_the_container(
    start: Start, free_port: int, image: str, settings: Mapping[str, str]
) -> None:
    command = serve(image, free_port)
    served = start(command.replace(argv=(*command.argv, "--stall-limit", "12")))
    url = served.ready()
    assert chat(url)["usage"]["completion_tokens"] == 16
    (name,) = ours(settings)
    first = int(podman("inspect", "--format", "{{.State.Pid}}", name, settings=settings))
    (core,) = [each for each in list_descendants(first) if each.name.startswith("VLLM::EngineCor")]
    core.signal(signal.SIGSTOP)
    finished = served.process.wait(90)
    assert finished is not None, served.tail()
    assert finished.status == 1
    assert re.search(r"VLLM::EngineCore \(process \d+\) on \S+ \(this host\) is stopped", served.tail())
    assert ours(settings) == []
