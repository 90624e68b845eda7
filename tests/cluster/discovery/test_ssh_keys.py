import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from medley.cluster import ssh
from medley.cluster.discovery.sources import parse_ssh_config
from medley.cluster.discovery.ssh_keys import (
    SshPeer,
    UserDialog,
    add_aliases,
    build_copy_id_command,
    build_keygen_command,
    build_resolve_command,
    build_scan_command,
    compute_fingerprint,
    format_comparison,
    parse_peer,
    select_key_lines,
    set_up_ssh,
    write_aliases,
)
from medley.command import Command
from medley.errors import Problem
from medley.process import find_program, run
from tests.problems import raises_problem

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
    assert compute_fingerprint(line) == expected


PEER = SshPeer("spark-2", 22, Path("/known"), has_hashed_names=False, is_indirect=False)


def test_what_a_scan_says_besides_is_no_key() -> None:
    output = ["# spark-2:22 SSH-2.0", ED25519, "getaddrinfo x: Name unknown"]
    assert select_key_lines(output, PEER) == (ED25519,)
    assert "SHA256:lzXEMLKs" in format_comparison([ED25519])
    assert "ssh-keygen -lf /etc/ssh" in format_comparison([ED25519])


PLAIN = ["user me", "hostname 10.0.0.2", "port 2222", "hashknownhosts no", "userknownhostsfile ~/.ssh/own /x"]


def test_whom_ssh_means() -> None:
    found = parse_peer(PLAIN, HOME)
    assert (found.host, found.port, found.known_hosts) == ("10.0.0.2", 2222, HOME / ".ssh" / "own")
    assert not found.is_indirect
    assert build_scan_command(found).argv[1:] == ("-T", "5", "-p", "2222", "10.0.0.2")
    assert parse_peer(["hashknownhosts yes", *PLAIN], HOME).has_hashed_names


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
    assert parse_peer([line, *PLAIN], HOME).is_indirect == indirect


def test_a_target_is_one_word_of_ssh() -> None:
    assert build_resolve_command("-x").argv == ("ssh", "-G", "--", "-x")


@pytest.mark.parametrize(("port", "name"), [(22, "spark-2"), (2222, "[spark-2]:2222")])
def test_a_host_has_keys_under_its_own_name_only(port: int, name: str) -> None:
    """A host writes names of others, with its own key, into a text that ssh-keyscan prints."""
    key = ED25519.partition(" ")[2]
    output = [ED25519, f"github.com {key}", f"* {key}", f"|1|c2FsdA==|aGFzaA== {key}", f"{ED25519} comment"]
    assert select_key_lines(output, PEER.replace(port=port)) == (f"{name} {key}",)


@pytest.mark.skipif(find_program("ssh-keygen") is None, reason="there is no ssh-keygen")
@pytest.mark.parametrize(("port", "name"), [(22, "spark-2"), (2222, "[spark-2]:2222")])
def test_a_hashed_name_is_one_that_ssh_finds(port: int, name: str, tmp_path: Path) -> None:
    (line,) = select_key_lines([ED25519], PEER.replace(host="Spark-2", port=port, has_hashed_names=True))
    assert line.startswith("|1|")
    (tmp_path / "known").write_text(f"{line}\n")
    finished = run(Command(("ssh-keygen", "-F", name, "-f", str(tmp_path / "known"))), limit_s=10)
    assert finished.status == 0, finished.lines


def test_what_ssh_keyscan_quotes_of_a_host_is_no_key(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = home / "bin"
    programs.mkdir()
    key = ED25519.partition(" ")[2]
    unknown = "No ED25519 host key is known for spark-2 and you have requested strict checking."
    settings = 'printf "hostname spark-2\\nport 22\\n"'
    for name, text in {
        "ssh": f'case "$*" in *-G*) {settings};; *) echo "{unknown}" >&2; exit 255;; esac',
        "ssh-keyscan": f'echo "github.com {key}" >&2',
    }.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    shown: list[str] = []
    with pytest.raises(ssh.HostKeyUnknown):
        set_up_ssh("spark-2", "spark-2", UserDialog(shown.append, lambda _: True, lambda _: True))
    assert not (home / ".ssh" / "known_hosts").exists()
    assert not any("github.com" in text for text in shown)


KEY = Path("/home/me/.ssh/id_ed25519")
TWO = {"spark-2": "nvidia@192.168.100.11"}


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    monkeypatch.setenv("HOME", str(tmp_path))
    yield tmp_path
    assert {path.name for path in tmp_path.rglob(".config.*")} == set()  # nothing half written is left


def manner(shown: list[str], *, consents: bool = True, dry: bool = False) -> UserDialog:
    return UserDialog(shown.append, lambda _: consents, None, dry)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        pytest.param("spark-2", ("spark-2",), id="a name"),
        pytest.param("nvidia@10.0.0.2", ("nvidia@10.0.0.2",), id="a user"),
        pytest.param("ssh://me@box:2222", ("-p", "2222", "me@box"), id="a port"),
    ],
)
def test_a_key_is_given_without_taking_a_host_key(target: str, words: tuple[str, ...]) -> None:
    options = ("-i", f"{KEY}.pub", "-o", "StrictHostKeyChecking=yes")
    assert build_copy_id_command(KEY, target).argv == ("ssh-copy-id", *options, *words)


def test_a_key_is_made_without_a_question() -> None:
    assert str(build_keygen_command(KEY)) == f"ssh-keygen -q -t ed25519 -N '' -f {KEY}"


@pytest.mark.parametrize(
    ("said", "sort"),
    [
        ("me@box: Permission denied (publickey).", ssh.KeyRefused),
        ("No ED25519 host key is known for box and you have requested strict checking.", ssh.HostKeyUnknown),
        ("@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.", Problem),
        ("ssh: connect to host box port 22: Connection refused", Problem),
    ],
    ids=["our key", "its key", "another key than before", "nobody there"],
)
def test_what_keys_can_mend(said: str, sort: type[Problem]) -> None:
    problem = ssh.connection_problem("box", "ssh://me@box:2222", said.splitlines(), 255)
    assert type(problem) is sort
    if sort is ssh.KeyRefused:
        assert problem.fix == "give it your key: ssh-copy-id -p 2222 me@box"


def test_a_name_is_written_once_and_for_the_user_alone(home: Path) -> None:
    shown: list[str] = []
    write_aliases(TWO, manner(shown))
    config = home / ".ssh" / "config"
    assert stat.S_IMODE(config.stat().st_mode) == 0o600
    assert stat.S_IMODE(config.parent.stat().st_mode) == 0o700
    text = config.read_text()
    assert "+Host spark-2\n+    HostName 192.168.100.11" in shown[0]
    write_aliases(TWO, manner(shown))
    assert config.read_text() == text
    assert len(shown) == 1


@pytest.mark.parametrize(("consents", "dry"), [(False, False), (True, True)], ids=["no", "a dry run"])
def test_a_name_is_shown_and_not_written(home: Path, *, consents: bool, dry: bool) -> None:
    shown: list[str] = []
    write_aliases(TWO, manner(shown, consents=consents, dry=dry))
    assert "+Host spark-2" in shown[0]
    assert not (home / ".ssh").exists()


def test_a_config_that_is_kept_elsewhere_stays_there(home: Path) -> None:
    kept = home / "dotfiles" / "ssh"
    kept.parent.mkdir()
    kept.write_text("Host nas\n")
    (home / ".ssh").mkdir()
    (home / ".ssh" / "config").symlink_to(kept)
    write_aliases(TWO, manner([]))
    assert (home / ".ssh" / "config").is_symlink()
    assert kept.read_text().startswith("Host nas\n\n# medley: begin")


def test_a_config_in_other_letters_is_a_problem(home: Path) -> None:
    (home / ".ssh").mkdir()
    (home / ".ssh" / "config").write_bytes(b"# B\xfcro\n")
    with raises_problem(".ssh/config", cause=("byte 3", "0xfc")):
        write_aliases(TWO, manner([]))


OWN = "Host nas\n    HostName 192.168.1.9\n"
BLOCK = """\
# medley: begin (from `medley init --keys`, which replaces this block)
Host spark-2
    HostName 192.168.100.11
    User nvidia
# medley: end
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", BLOCK, id="no config"),
        pytest.param(OWN, f"{OWN}\n{BLOCK}", id="behind what is there"),
        pytest.param(OWN.rstrip("\n"), f"{OWN}\n{BLOCK}", id="no end of the last line"),
        pytest.param(f"{OWN}\n{BLOCK}", f"{OWN}\n{BLOCK}", id="a second time"),
        pytest.param(f"{BLOCK}\n{OWN}", f"{BLOCK}\n{OWN}", id="where it was moved to"),
        pytest.param("Host spark-2\n", "Host spark-2\n", id="a name that is taken"),
        pytest.param(f"{BLOCK}{OWN}{BLOCK}", f"{BLOCK}{OWN}", id="twice by hand"),
    ],
)
def test_the_block_is_there_once(text: str, expected: str) -> None:
    assert add_aliases(text, TWO) == expected


def test_what_is_in_it_stays_and_what_is_newer_holds() -> None:
    once = add_aliases(OWN, TWO)
    more = add_aliases(once, {"thor-1": "ssh://me@10.0.0.3:2222"})
    moved = add_aliases(more, {"spark-2": "192.168.100.12"})
    found = {each.name: each.aliases for each in parse_ssh_config(moved, "", lambda _: ())}
    assert found == {
        "nas": ("192.168.1.9",),
        "spark-2": ("192.168.100.12",),
        "thor-1": ("10.0.0.3:2222",),
    }
    assert moved.count("# medley: begin") == moved.count("# medley: end") == 1
    assert add_aliases(moved, {}) == moved


def test_a_name_that_is_not_plain_is_not_written() -> None:
    assert add_aliases(OWN, {"a b\nHost *": "10.0.0.1"}) == OWN


def test_half_a_block_is_a_problem() -> None:
    with raises_problem(cause=("# medley: begin", "# medley: end")):
        add_aliases(f"{OWN}# medley: begin\nHost a\n", TWO)
