"""A Jetson's host and its container image are compared by their JetPack."""

import pytest

from medley.explain.jetson_release import compare_releases
from tests.explain.test_explain import names, of

FAILS = "ImportError: libnvdla_compiler.so: cannot open shared object file: No such file or directory\n"


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (
            {"host_l4t": "38.4.0", "image_l4t": "36.4.0"},
            "36.4.0 (JetPack 6), and the host has L4T 38.4.0",
        ),
        ({"host_l4t": "36", "revision": "4.4", "image_l4t": "38.2"}, "the host has L4T 36.4.4 (JetPack 6)"),
        ({"thor": "NVIDIA Thor", "image_l4t": "36.4"}, "the host has L4T 38 (JetPack 7)"),
        ({"tegra_kernel": "5.15", "image_thor": "thor"}, "the host has L4T 36 (JetPack 6)"),
    ],
)
def test_both_releases_are_named(facts: dict[str, str], words: str) -> None:
    found = compare_releases(facts)
    assert words in (found.l4t or "")
    assert found.l4t_image


@pytest.mark.parametrize(
    "facts",
    [
        {"host_l4t": "39.0", "image_l4t": "38.2"},
        {"host_l4t": "36.4.3", "image_l4t": "36.2.0"},
        {"host_l4t": "36.4.3"},
        {"image_l4t": "36.2.0"},
        {},
    ],
    ids=["both are JetPack 7", "both are JetPack 6", "no image", "no host", "nothing"],
)
def test_nothing_is_said(facts: dict[str, str]) -> None:
    assert compare_releases(facts) == (None, None)


@pytest.mark.parametrize(
    "image",
    [
        "dustynv/vllm:0.8.6-r36.4-cu128-24.04",
        "dustynv/nano_llm:r36.4.0",
        "nvcr.io/nvidia/l4t-jetpack:r36.4.0",
    ],
)
def test_the_release_is_in_the_tag_of_an_image(image: str) -> None:
    host = "-- L4T_VERSION=38.4.0  JETPACK_VERSION=7.1  CUDA_VERSION=13.0\n"
    assert names(of(f"{host}+ docker run --runtime nvidia {image} bash\n{FAILS}")) == ["jetson-release"]
    same = host.replace("38.4.0", "36.4.0")
    assert names(of(f"{same}+ docker run --runtime nvidia {image} bash\n{FAILS}")) == ["jetson-host-library"]
