import json
from pathlib import Path

import pytest

from medley import config
from medley.cli.ray import RayHeadVerb
from medley.command import AnnotatedCommand, Variable
from medley.environment import container_image
from medley.environment.container import Image
from medley.environment.container_image import ImageSelection, format_nccl_version
from medley.host.kind import match_kind
from tests.host.recordings import HOSTS, recorded
from tests.problems import raises_problem

CHOICE = ImageSelection(
    "docker", Image("maker/vllm", "a" * 64, ("sha256:d",), ("x",), ("PATH",)), "/n.so", (), ("vllm",)
)


def test_a_choice_is_noted_and_read_again() -> None:
    assert ImageSelection.parse(json.loads(json.dumps(CHOICE.table))) == CHOICE


def test_what_is_mounted_must_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path))
    facts = recorded("spark-pair-a")
    sort = match_kind(facts, config.load_hosts())
    for said, target in ((str(tmp_path), str(tmp_path)), (f"{tmp_path}:/data", "/data")):
        choice = ImageSelection("docker", CHOICE.image, mounts=(said,))
        assert target in {
            str(mount.target)
            for mount in container_image.plan_image_environment(choice, sort, facts).spec.mounts
        }
    with raises_problem("/no/such", fix="--mount PATH"):
        container_image.plan_image_environment(
            ImageSelection("docker", CHOICE.image, mounts=("/no/such",)), sort, facts
        )


@pytest.mark.parametrize(
    ("number", "said"), [(22707, "2.27.7"), (23007, "2.30.7"), (0, "of no known version")]
)
def test_nccl_counts_its_versions(number: int, said: str) -> None:
    assert format_nccl_version({"version": number}) == said


@pytest.mark.parametrize("name", ["spark", "thor", "rtx", "orin"])
def test_a_kind_of_host_names_an_image_with_its_registry_and_tag(name: str) -> None:
    """Podman takes no short name, and a tag that moves is not the same tomorrow."""
    container = config.load_hosts()[name].container
    for named in (container.image or "", *(each.image or "" for each in container.older)):
        registry, _, rest = named.partition("/")
        assert "." in registry
        assert ":" in rest
        assert not rest.endswith(":latest")


@pytest.mark.parametrize(
    ("host", "words"),
    [
        pytest.param("orin-pair-a", ("--runtime", "nvidia"), id="an Orin"),
        pytest.param("spark-pair-a", ("--device", "/dev/infiniband"), id="a Spark"),
    ],
)
def test_a_head_as_another_host_would_start_it(
    host: str,
    words: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Nothing is asked of this host: it may have neither docker nor podman."""
    for name, value in {"PATH": str(tmp_path), "MEDLEY_STATE": str(tmp_path / "state")}.items():
        monkeypatch.setenv(name, value)
    file = str(HOSTS / f"{host}.txt")
    RayHeadVerb.run(["ray-head", "--dry-run", "--json", "--from", file, "--image", "default"], exit=False)
    argv = json.loads(capsys.readouterr().out)["argv"]
    assert argv[:2] == ["docker", "run"]
    assert words[1] == argv[argv.index(words[0]) + 1]
    assert "--block" in argv
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("ray", "refused"),
    [
        pytest.param("2.60.0", False, id="as in our locks"),
        pytest.param("2.52.0", False, id="the first that asks for a token"),
        pytest.param("2.51.1", True, id="one that asks nobody"),
        pytest.param("", True, id="of no known version"),
    ],
)
def test_a_ray_that_asks_for_no_token_takes_no_part(
    ray: str, *, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path))
    facts = recorded("spark-pair-a")
    held = {"programs": {"ray": "/usr/bin/ray"}, "versions": {"ray": ray} if ray else {}}
    found = container_image.plan_image_environment(
        CHOICE, match_kind(facts, config.load_hosts()), facts
    ).replace(
        contents=held,
    )
    if not refused:
        container_image.require_ray(found)
        return
    with raises_problem("maker/vllm", cause="2.52") as caught:
        container_image.require_ray(found)
    assert caught.value.fix.endswith("| docker build -t vllm-ray - && medley ray-head --image vllm-ray")


def test_what_is_compiled_in_a_container_is_kept_on_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("MEDLEY_CACHE", str(tmp_path / "cache"))
    facts = recorded("spark-pair-a")
    found = container_image.plan_image_environment(CHOICE, match_kind(facts, config.load_hosts()), facts)
    engine = AnnotatedCommand(("vllm", "serve", "m"), (), (Variable("MAX_JOBS", "4", "compilers"),))
    command = found.spec.wrap(engine, "x", {}).command
    for name in (
        "FLASHINFER_WORKSPACE_BASE",
        "TRITON_CACHE_DIR",
        "CUDA_CACHE_PATH",
        "TORCHINDUCTOR_CACHE_DIR",
    ):
        folder = command.env[name]
        assert folder.startswith(str(tmp_path / "cache"))
        assert f"{folder}:{folder}" in command.argv, "mounted, to be written"
    assert "MAX_JOBS" in command.argv
