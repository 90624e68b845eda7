import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from medley import ssh
from medley.introducing import Manner, copy_id, keygen, name_in_config
from medley.problem import Problem

KEY = Path("/home/me/.ssh/id_ed25519")
TWO = {"spark-2": "nvidia@192.168.100.11"}


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    monkeypatch.setenv("HOME", str(tmp_path))
    yield tmp_path
    assert {path.name for path in tmp_path.rglob(".config.*")} == set()  # nothing half written is left


def manner(shown: list[str], *, consents: bool = True, dry: bool = False) -> Manner:
    return Manner(shown.append, lambda _: consents, None, dry)


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
    assert copy_id(KEY, target).argv == ("ssh-copy-id", *options, *words)


def test_a_key_is_made_without_a_question() -> None:
    assert str(keygen(KEY)) == f"ssh-keygen -q -t ed25519 -N '' -f {KEY}"


@pytest.mark.parametrize(
    ("said", "sort"),
    [
        ("me@box: Permission denied (publickey).", ssh.Refused),
        ("No ED25519 host key is known for box and you have requested strict checking.", ssh.Unknown),
        ("@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.", Problem),
        ("ssh: connect to host box port 22: Connection refused", Problem),
    ],
    ids=["our key", "its key", "another key than before", "nobody there"],
)
def test_what_keys_can_mend(said: str, sort: type[Problem]) -> None:
    problem = ssh.problem("box", "ssh://me@box:2222", said.splitlines(), 255)
    assert type(problem) is sort
    if sort is ssh.Refused:
        assert problem.fix == "give it your key: ssh-copy-id -p 2222 me@box"


def test_a_name_is_written_once_and_for_the_user_alone(home: Path) -> None:
    shown: list[str] = []
    name_in_config(TWO, manner(shown))
    config = home / ".ssh" / "config"
    assert stat.S_IMODE(config.stat().st_mode) == 0o600
    assert stat.S_IMODE(config.parent.stat().st_mode) == 0o700
    text = config.read_text()
    assert "+Host spark-2\n+    HostName 192.168.100.11" in shown[0]
    name_in_config(TWO, manner(shown))
    assert config.read_text() == text
    assert len(shown) == 1


@pytest.mark.parametrize(("consents", "dry"), [(False, False), (True, True)], ids=["no", "a dry run"])
def test_a_name_is_shown_and_not_written(home: Path, *, consents: bool, dry: bool) -> None:
    shown: list[str] = []
    name_in_config(TWO, manner(shown, consents=consents, dry=dry))
    assert "+Host spark-2" in shown[0]
    assert not (home / ".ssh").exists()


def test_a_config_that_is_kept_elsewhere_stays_there(home: Path) -> None:
    kept = home / "dotfiles" / "ssh"
    kept.parent.mkdir()
    kept.write_text("Host nas\n")
    (home / ".ssh").mkdir()
    (home / ".ssh" / "config").symlink_to(kept)
    name_in_config(TWO, manner([]))
    assert (home / ".ssh" / "config").is_symlink()
    assert kept.read_text().startswith("Host nas\n\n# medley: begin")


def test_a_config_in_other_letters_is_a_problem(home: Path) -> None:
    (home / ".ssh").mkdir()
    (home / ".ssh" / "config").write_bytes(b"# B\xfcro\n")
    with pytest.raises(Problem, match="config cannot be read"):
        name_in_config(TWO, manner([]))
