"""Images that a registry refuses, and logs in which something reads like an error."""

import pytest

from tests.explain.test_explain import names, of

PULLED = "Status: Image is up to date for ghcr.io/org/uv:latest\n"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("docker: Error response from daemon: error from registry: unauthorized", "registry-login"),
        (
            'Error response from daemon: Head "https://ghcr.io/v2/org/x/manifests/dev": unauthorized',
            "registry-login",
        ),
        (
            (
                "Error: initializing source docker://quay.io/org/x:dev: reading manifest dev in quay.io/x: "
                "unauthorized: access to the requested resource is not authorized"
            ),
            "registry-login",
        ),
        (
            (
                'failed to resolve reference "ghcr.io/x:1": failed to authorize: failed to fetch anonymous '
                "token: unexpected status from GET request to https://ghcr.io/token: 401 Unauthorized"
            ),
            "registry-login",
        ),
        (
            (
                'Warning Failed 1s kubelet Failed to pull image "nvcr.io/x:9": failed to resolve reference '
                '"nvcr.io/x:9": nvcr.io/x:9: not found'
            ),
            "image-none",
        ),
        (
            (
                'Error response from daemon: Get "https://registry-1.docker.io/v2/": net/http: TLS handshake '
                "timeout"
            ),
            "image-unreachable",
        ),
        ("docker: no matching manifest for linux/arm64/v8 in the manifest list", "image-architecture"),
        ("Error response from daemon: toomanyrequests: too many", "image-limit"),
    ],
)
def test_a_refused_pull_is_found_above_later_commands(line: str, expected: str) -> None:
    assert names(of(f"$ docker pull x\n{line}\n$ docker images\na\nb\nc\n")) == [expected]


def test_another_image_of_the_log_excludes_the_network() -> None:
    line = "docker: Error response from daemon: error from registry: unauthorized\n"
    (alone,) = of(line).problems
    (report,) = of(line + PULLED).problems
    assert "the network and the daemon work" not in alone.problem().cause
    assert "ghcr.io/org/uv:latest" in report.problem().cause
    assert "the network and the daemon work" in report.problem().cause


@pytest.mark.parametrize(
    "line",
    [
        "Error response from daemon: the image was refused by policy 12",
        "[x] the plugin could not start",
        "install: cannot stat the file",
    ],
)
def test_an_unknown_error_is_no_good_log(line: str) -> None:
    (report,) = of(f"$ docker pull x\n{line}\n$ uname\nLinux\n$ date\nMon\n").problems
    assert report.match.failure.name == "unknown-error"
    assert report.match.number == 2
    assert report.confidence == "low"


@pytest.mark.parametrize(
    "line",
    [
        "INFO 11-21 08:01:33 [x.py:1] no request failed",
        "tests: 12 passed, 0 failed",
        "errors: 0",
        "loads error_handler.py and /opt/no-error/x",
        "the port is closed when a request is refused",
    ],
)
def test_names_and_counts_are_no_errors(line: str) -> None:
    explanation = of(f"$ ./run\n{line}\n$ uname\nLinux\n$ date\nMon\n")
    assert names(explanation) == []
    assert explanation.doubtful_line is None


def test_a_ready_server_with_such_a_line_is_not_called_faultless() -> None:
    ready = "(APIServer pid=1) INFO:     Application startup complete.\n"
    explanation = of(f"{ready}the monitor could not start\nthe rest works\n")
    assert names(explanation) == []
    assert explanation.doubtful_line == "the monitor could not start"
