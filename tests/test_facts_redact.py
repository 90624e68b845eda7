"""A redacted transcript tells no secret and no lie."""

from pathlib import Path

import pytest

from medley.facts import facts
from medley.facts.redact import redact
from medley.transcript import Answer, parse

HOSTS = Path(__file__).parent / "hosts"
FIRST, SECOND = "11111111-2222-3333-4444-555555555555", "AAAAAAAA-bbbb-cccc-dddd-eeeeeeeeeeee"


@pytest.mark.parametrize(
    ("said", "redacted"),
    [
        pytest.param(
            f"GPU-{FIRST} GPU-{SECOND} GPU-{FIRST}",
            "GPU-00000000-0000-0000-0000-000000000001 GPU-00000000-0000-0000-0000-000000000002 "
            "GPU-00000000-0000-0000-0000-000000000001",
            id="equal stays equal",
        ),
        pytest.param("link/ether 3c:6d:66:01:02:03", "link/ether 02:00:00:00:00:01", id="MAC"),
        pytest.param("brd ff:ff:ff:ff:ff:ff", "brd ff:ff:ff:ff:ff:ff", id="broadcast"),
        pytest.param("inet 8.8.4.4/24", "inet 203.0.113.1/24", id="global IPv4"),
        pytest.param("inet 192.168.1.5 127.0.0.1", "inet 192.168.1.5 127.0.0.1", id="private IPv4"),
        pytest.param("inet6 2a00:1450:4001:80b::200e", "inet6 2001:db8::1", id="global IPv6"),
        pytest.param("inet6 fe80::1 ::1", "inet6 fe80::1 ::1", id="local IPv6"),
        pytest.param("00000000:01:00.0 0000:0f:00.0", "00000000:01:00.0 0000:0f:00.0", id="PCI address"),
        pytest.param("580.126.09 6.8.12-1021-tegra", "580.126.09 6.8.12-1021-tegra", id="versions"),
        pytest.param("/home/alice/.local/bin/uv", "/home/user/.local/bin/uv", id="home"),
        pytest.param("Linux spark-1 6.8 spark-10", "Linux host-1 6.8 spark-10", id="host name"),
        pytest.param("", "", id="nothing"),
    ],
)
def test_redact(said: str, redacted: str) -> None:
    assert redact({"question": Answer(said, 3)}, ["spark-1"]) == {"question": Answer(redacted, 3)}


@pytest.mark.parametrize("path", sorted(HOSTS.glob("*.txt")), ids=lambda path: path.stem)
def test_recorded_hosts_are_redacted(path: Path) -> None:
    """Redacting again changes nothing, so no transcript here gives anyone away."""
    answers = parse(path.read_text())
    assert redact(answers) == answers


def test_redacting_keeps_the_facts() -> None:
    answers = parse((HOSTS / "rtx-two.txt").read_text())
    again = parse((HOSTS / "rtx-two.txt").read_text().replace("00000000-0000-0000-0000-000000000002", SECOND))
    assert facts(again) != facts(answers)
    assert facts(redact(again)) == facts(answers)
