"""A redacted transcript tells no secret and no lie."""

from pathlib import Path

import pytest

from medley.host.facts import facts
from medley.host.redact import Redactor
from medley.transcript import Answer, parse

HOSTS = Path(__file__).parents[1] / "host" / "recorded"
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
        pytest.param(
            "    Name                  : secret-plan\n    Name : python3\n  Name : secret-plan",
            "    Name                  : process-1\n    Name : python3\n  Name : process-1",
            id="what has the GPU",
        ),
        pytest.param(
            "        Name : VLLM::EngineCore", "        Name : VLLM::EngineCore", id="an engine has it"
        ),
        pytest.param(
            'tcp dport 22 drop comment "for Alice"\n-A INPUT -m comment --comment bob -j DROP',
            'tcp dport 22 drop comment ""\n-A INPUT -m comment --comment "" -j DROP',
            id="comments of a firewall",
        ),
        pytest.param("/home/alice/.local/bin/uv", "/home/user/.local/bin/uv", id="home"),
        pytest.param("Linux spark-1 6.8 spark-10", "Linux host-1 6.8 spark-10", id="host name"),
        pytest.param("", "", id="nothing"),
        pytest.param(
            "3c:6d:66:01:02:03 fe80::3e6d:66ff:fe01:203 fe80:0000:0000:0000:3e6d:66ff:fe01:0203",
            "02:00:00:00:00:01 fe80::ff:fe00:1 fe80:0000:0000:0000:0000:00ff:fe00:0001",
            id="a MAC inside of an IPv6 address and of a GID",
        ),
        pytest.param(
            "rocep1s0f0/sys_image_guid 3c6d:6603:0001:0203\nroceP2p1s0f0/sys_image_guid 3c6d:6603:0001:0203",
            "rocep1s0f0/sys_image_guid 0200:0000:0000:0001\nroceP2p1s0f0/sys_image_guid 0200:0000:0000:0001",
            id="twins stay twins",
        ),
        pytest.param(
            "fe80::506b:4b03:c1:2 506b:4b03:00c1:0002",
            "fe80::200:0:0:1 0200:0000:0000:0001",
            id="InfiniBand's GID and GUID",
        ),
        pytest.param("fd00:1::3e6d:66ff:fe01:203", "fd00:1::ff:fe00:1", id="a MAC in a private IPv6"),
        pytest.param("fe80::a1b2:c3d4:e5f6:789", "fe80::200:0:0:1", id="a random interface"),
        pytest.param(
            "8.8.4.4 0000:0000:0000:0000:0000:ffff:0808:0404",
            "203.0.113.1 0000:0000:0000:0000:0000:ffff:cb00:7101",
            id="global IPv4 in a GID",
        ),
        pytest.param(
            "0000:0000:0000:0000:0000:ffff:c0a8:640a",
            "0000:0000:0000:0000:0000:ffff:c0a8:640a",
            id="private IPv4 in a GID",
        ),
        pytest.param(
            '"root_id":"8000.3c:6d:66:1:2:3","group_addr":"01:80:c2:00:00:00"',
            '"root_id":"8000.2:0:0:0:0:1","group_addr":"01:80:c2:00:00:00"',
            id="bridge",
        ),
        pytest.param("enx3c6d66010203 3C:6D:66:01:02:03", "enx020000000001 02:00:00:00:00:01", id="named"),
        pytest.param(
            '"phys_switch_id":"8c2e5f000324de24"', '"phys_switch_id":"0200000000000001"', id="switch"
        ),
        pytest.param(
            "80:00:02:08:fe:80:00:00:00:00:00:00:50:6b:4b:03:00:c1:00:02",
            "80:00:02:08:fe:80:00:00:00:00:00:00:02:00:00:00:00:00:00:01",
            id="IPoIB",
        ),
    ],
)
def test_redact(said: str, redacted: str) -> None:
    assert Redactor(["spark-1"]).transcript({"question": Answer(said, 3)}) == {
        "question": Answer(redacted, 3)
    }


@pytest.mark.parametrize("path", sorted(HOSTS.glob("*.txt")), ids=lambda path: path.stem)
def test_recorded_hosts_are_redacted(path: Path) -> None:
    """Redacting again changes nothing, so no transcript here gives anyone away."""
    answers = parse(path.read_text())
    assert Redactor().transcript(answers) == answers


def test_redacting_keeps_the_facts() -> None:
    answers = parse((HOSTS / "rtx-two.txt").read_text())
    again = parse((HOSTS / "rtx-two.txt").read_text().replace("00000000-0000-0000-0000-000000000002", SECOND))
    assert facts(again) != facts(answers)
    assert facts(Redactor().transcript(again)) == facts(answers)


def test_redacting_keeps_the_network() -> None:
    """What the fabric is decided by is the same before and after."""
    text = (HOSTS / "spark-pair-a.txt").read_text()
    secret = text.replace("02:00:00:00:00:", "3c:6d:66:01:02:").replace("0200:0000:", "3c6d:6603:")
    secret = secret.replace(":0000:00ff:fe00:", ":3e6d:66ff:fe01:02").replace("fe01:0200", "fe01:02")
    answers = parse(secret.replace("fe80::ff:fe00:", "fe80::3e6d:66ff:fe01:20"))
    assert "3c:6d:66" not in str(Redactor().transcript(answers))
    assert "3e6d" not in str(Redactor().transcript(answers))
    assert Redactor().transcript(answers) == parse(text)


def test_more_public_addresses_than_documentation_has() -> None:
    said = " ".join(f"8.8.{high}.{low}" for high in range(2) for low in range(200))
    words = Redactor().transcript({"q": Answer(said)})["q"].text.split()
    assert len(set(words)) == 400
    assert words[0] == "203.0.113.1"
    assert words[-1] == "198.18.1.144"


def test_json_is_redacted_with_its_keys() -> None:
    found = Redactor(["spark-1"], ["ann"]).table(
        {
            "spark-1": {"MY_TOKEN": "hunter2 hunter2", "token": ["kept as a list"], "tokens": 7},
            "argv": ["serve", "--api-key", "abc def", "--port", "8000", "--key-file", "/home/ann/key"],
            "pair": ("spark-1", None, True, 1.5),
        }
    )
    assert found == {
        "host-1": {"MY_TOKEN": "HIDDEN", "token": ["kept as a list"], "tokens": 7},
        "argv": ["serve", "--api-key", "HIDDEN", "--port", "8000", "--key-file", "/home/user/key"],
        "pair": ["host-1", None, True, 1.5],
    }


def test_a_host_has_one_number_by_all_of_its_names() -> None:
    redactor = Redactor([("ann-desk", "desk"), ("spark-2", ""), "spark-3", "desk"])
    assert redactor.text("desk ann-desk spark-2 spark-3") == "host-1 host-1 host-2 host-3"
