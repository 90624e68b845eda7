from pathlib import Path

import pytest

from medley.host_key import comparison, fingerprint, peer, resolution, scan, scanned

ED25519 = "spark-2 ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHFfG9qciHDp/YYD4AhFtj3J2UuMBATvJLCkzVajZOA7"
ECDSA = (
    "[spark-2]:2222 ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBKH"
    "mZdkXlGrK1D/Je0R3XCm20VSy1pWk2zblg/RBOGkicdOMLFayX07FZF9465e68FQKVpgoHFaa9Jt8PrpVD/c="
)
HOME = Path("/home/me")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        # source: ssh-keygen -lf, of two keys made for this
        (ED25519, "SHA256:lzXEMLKsKuyE+3vTjoteerw9ax2l+fjOq2SG2zulQbc (ED25519)"),
        (ECDSA, "SHA256:YyqRiblhrbCXrZOFQr+W2GPSXz959cOsC4p9RB+3LNw (ECDSA)"),
        ("# spark-2:22 SSH-2.0-OpenSSH_9.6", None),
        ("spark-2: Connection refused", None),
        ("", None),
        ("spark-2 ssh-ed25519 no-base64!", None),
        ("spark-2 ssh-rsa AAAAC3NzaC1lZDI1NTE5AAAA", None),
    ],
)
def test_a_fingerprint_is_what_ssh_keygen_says(line: str, expected: str | None) -> None:
    assert fingerprint(line) == expected


def test_what_a_scan_says_besides_is_no_key() -> None:
    assert scanned(["# spark-2:22 SSH-2.0", ED25519, "getaddrinfo x: Name unknown"]) == (ED25519,)
    assert "SHA256:lzXEMLKs" in comparison([ED25519])
    assert "ssh-keygen -lf /etc/ssh" in comparison([ED25519])


PLAIN = ["user me", "hostname 10.0.0.2", "port 2222", "hashknownhosts no", "userknownhostsfile ~/.ssh/own /x"]


def test_whom_ssh_means() -> None:
    found = peer(PLAIN, HOME)
    assert (found.host, found.port, found.file) == ("10.0.0.2", 2222, HOME / ".ssh" / "own")
    assert not found.indirect
    assert scan(found).argv[1:] == ("-T", "5", "-p", "2222", "10.0.0.2")
    assert "-H" in scan(peer(["hashknownhosts yes", *PLAIN], HOME)).argv


@pytest.mark.parametrize(
    ("line", "indirect"),
    [
        ("proxyjump gate", True),
        ("proxycommand nc %h %p", True),
        ("hostkeyalias box", True),
        ("proxycommand none", False),
        ("hostname $(x)", True),
        ("hostname -oX", True),
    ],
)
def test_a_key_seen_from_here_need_not_be_its_own(line: str, indirect: bool) -> None:  # noqa: FBT001 - of a table
    assert peer([line, *PLAIN], HOME).indirect == indirect


def test_a_target_is_one_word_of_ssh() -> None:
    assert resolution("-x").argv == ("ssh", "-G", "--", "-x")
