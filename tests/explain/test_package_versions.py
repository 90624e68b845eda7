"""A fault of named releases counts in the versions that it affects."""

import pytest

from medley.explain import patterns
from medley.explain.package_versions import AffectedReleases, describe_affected
from tests.explain.test_explain import names, of

RELEASES = AffectedReleases(package="vllm", since="0.15.0", before="0.16.0")
REGRESSIONS = [each for each in patterns.load(user=False).failures if each.affects]


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("0.15.0", "vLLM 0.15.0"),
        ("0.15.1+cu130", "vLLM 0.15.1+cu130"),
        ("0.16.0", None),
        ("0.9.2", None),
        (None, ""),
    ],
)
def test_versions_are_compared_as_numbers(version: str | None, expected: str | None) -> None:
    figures = {"version_vllm": version} if version else {}
    assert describe_affected(RELEASES, figures) == expected


def test_some_faults_need_the_version_or_the_host_in_the_log() -> None:
    required = RELEASES.replace(required=True, fact="thor")
    assert describe_affected(required, {"thor": "NVIDIA Thor"}) is None
    assert describe_affected(required, {"version_vllm": "0.15.0"}) is None
    assert describe_affected(required, {"version_vllm": "0.15.0", "thor": "x"}) == "vLLM 0.15.0"


def test_there_are_sourced_regressions() -> None:
    assert len(REGRESSIONS) >= 15
    assert all(each.several_causes for each in REGRESSIONS)


@pytest.mark.parametrize(
    ("version", "expected"), [("v0.15.0", "vllm-image-compat"), ("v0.17.0", "driver-halves")]
)
def test_the_tag_of_an_image_decides_between_causes(version: str, expected: str) -> None:
    log = (
        f"$ docker run --rm --gpus all vllm/vllm-openai:{version} org/model\n"
        "RuntimeError: Error 803: system has unsupported display driver / cuda driver combination\n"
    )
    assert names(of(log))[:1] == [expected]


def test_an_old_ray_is_not_called_too_new() -> None:
    error = "RuntimeError: No node info found matching attributes: '' when trying to resolve node.\n"
    assert names(of(error)) == ["ray-driver-without-raylet"]
    assert names(of(f"ray==2.56.0\n{error}")) == ["ray-driver-without-raylet"]
    assert names(of(f"ray==2.50.1\n{error}")) == ["unknown-error"]
