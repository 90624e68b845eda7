import pytest

from medley.joining import require_alike, terms
from medley.problem import Problem

PARTS = {"python": "cpython 3.12.3", "machine": "aarch64", "lock": "a" * 64, "libc": "glibc 2.39"}
HEAD = terms(PARTS, {"ray": "2.60.0", "engine": "vLLM 0.32.0"}, "spark-1")


@pytest.mark.parametrize(
    ("changes", "versions"),
    [
        pytest.param({}, {}, id="the same"),
        pytest.param({"libc": "glibc 2.42"}, {}, id="another libc: Nix beside Ubuntu"),
        pytest.param({"machine": "x86_64", "lock": "b" * 64}, {}, id="another machine has its own files"),
    ],
)
def test_these_can_share_a_cluster(changes: dict[str, str], versions: dict[str, str]) -> None:
    ours = terms({**PARTS, **changes}, {"ray": "2.60.0", "engine": "vLLM 0.32.0", **versions}, "rtx")
    require_alike(ours, HEAD, "10.0.0.1:24000")


@pytest.mark.parametrize(
    ("changes", "versions", "cause"),
    [
        pytest.param({}, {"ray": "2.59.0"}, "Ray is 2.59.0 here and 2.60.0 on the head", id="Ray"),
        pytest.param(
            {"python": "cpython 3.12.4"},
            {},
            "Python is cpython 3.12.4 here and cpython 3.12.3",
            id="Python's patch",
        ),
        pytest.param(
            {}, {"engine": "vLLM 0.33.0"}, "the engine is vLLM 0.33.0 here and vLLM 0.32.0", id="engine"
        ),
        pytest.param({"lock": "b" * 64}, {}, "lock is bbbbbbbbbbbb here and aaaaaaaaaaaa", id="lock"),
    ],
)
def test_a_difference_names_both_sides(changes: dict[str, str], versions: dict[str, str], cause: str) -> None:
    ours = terms({**PARTS, **changes}, {"ray": "2.60.0", "engine": "vLLM 0.32.0", **versions}, "spark-2")
    with pytest.raises(Problem) as caught:
        require_alike(ours, HEAD, "10.0.0.1:24000")
    assert cause in caught.value.cause
    assert "spark-2" in caught.value.what
    assert "spark-1" in caught.value.what


def test_a_cluster_of_another_hand_is_a_problem() -> None:
    with pytest.raises(Problem, match="is not medley's"):
        require_alike(HEAD, None, "10.0.0.1:6379")


IMAGE = {"name": "maker/vllm:1", "id": "a" * 64, "digests": [], "runtime": "podman"}


@pytest.mark.parametrize(
    ("changes", "machine", "alike"),
    [
        pytest.param({}, "aarch64", True, id="the same"),
        pytest.param({"id": "b" * 64}, "aarch64", False, id="another of this name"),
        pytest.param(
            {"id": "b" * 64, "digests": ["sha256:d"]}, "aarch64", True, id="a registry calls them one"
        ),
        pytest.param({"id": "b" * 64}, "x86_64", True, id="another architecture: versions are compared"),
    ],
)
def test_an_image_is_the_head_s(changes: dict[str, str], machine: str, *, alike: bool) -> None:
    versions = {"ray": "2.60.0", "engine": "vLLM 0.32.0"}
    parts = {"python": "CPython 3.12.3", "machine": "aarch64", "image": {**IMAGE, "digests": ["sha256:d"]}}
    head = terms(parts, versions, "spark-1")
    ours = terms({**parts, "machine": machine, "image": {**IMAGE, **changes}}, versions, "spark-2")
    if alike:
        require_alike(ours, head, "10.0.0.1:24000")
        return
    with pytest.raises(Problem) as caught:
        require_alike(ours, head, "10.0.0.1:24000")
    assert "b" * 12 in caught.value.cause
    assert "a" * 12 in caught.value.cause
    assert "ssh spark-1 podman save maker/vllm:1 | podman load" in caught.value.fix


def test_between_an_image_and_an_environment_the_fix_is_no_build() -> None:
    inside = terms({**PARTS, "image": IMAGE}, {"ray": "2.60.0", "engine": "vLLM 0.12.0"}, "orin")
    with pytest.raises(Problem) as caught:
        require_alike(inside, HEAD, "10.0.0.1:24000")
    assert "both out of one image" in caught.value.fix
