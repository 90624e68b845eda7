import os
import stat
from pathlib import Path

import pytest

from medley import credentials, process
from medley.command import Command
from tests.problems import raises_problem


@pytest.fixture(autouse=True)
def _state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path / "state"))


@pytest.mark.parametrize(
    ("address", "opens"),
    [
        ("127.0.0.1", False),
        ("127.8.8.8", False),
        ("::1", False),
        ("localhost", False),
        ("0.0.0.0", True),
        ("::", True),
        ("192.168.1.5", True),
        ("spark-1", True),
    ],
)
def test_who_listens_where_others_reach_it_has_a_key(address: str, opens: bool) -> None:  # noqa: FBT001
    assert credentials.is_reachable_address(address) is opens
    made = credentials.choose_keys(None, address, make=True)
    assert (made is not None) is opens
    assert credentials.choose_keys(credentials.NONE, address, make=True) is None


def test_it_is_made_once_for_its_owner_alone() -> None:
    source = credentials.choose_keys(None, "0.0.0.0", make=True)
    assert source == credentials.find_key_folder()
    file = credentials.choose_client_key_file(source)
    assert file == credentials.find_api_key_file()
    key = credentials.read_api_key(file)
    assert key.startswith("sk-")
    assert len(key) > 40
    assert file.stat().st_mode & 0o777 == 0o600
    assert credentials.choose_keys(None, "0.0.0.0", make=True) == source
    assert credentials.read_keys(source) == {"default": key}


def test_a_dry_run_makes_none() -> None:
    source = credentials.choose_keys(None, "0.0.0.0", make=False)
    assert source == credentials.find_key_folder()
    assert credentials.list_medley_keys() == {}


def test_a_named_key_makes_the_default_one_needless() -> None:
    credentials.add_key("alice")
    source = credentials.choose_keys(None, "0.0.0.0", make=True)
    assert source
    assert list(credentials.read_keys(source)) == ["alice"]
    assert credentials.choose_client_key_file(source) == credentials.find_key_folder() / "alice"


def test_named_keys_are_their_owners_and_can_be_revoked(state: Path) -> None:
    default, alice = credentials.add_key("default"), credentials.add_key("alice")
    assert (default, alice) == (state / "api-key", state / "keys" / "alice")
    assert (mode(default), mode(alice), mode(alice.parent)) == (0o600, 0o600, 0o700)
    keys = credentials.read_keys(credentials.find_key_folder())
    assert list(keys) == ["default", "alice"]
    assert credentials.revoke_key("default") == keys["default"]
    assert credentials.read_keys(credentials.find_key_folder()) == {"alice": keys["alice"]}


def test_an_own_key_may_be_brought(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("my-own-secret-of-24-letters\n")
    assert credentials.read_api_key(credentials.add_key("bob", str(own))) == "my-own-secret-of-24-letters"
    with raises_problem(f"{own} has the key named bob", fix="medley key add carol"):
        credentials.add_key("carol", str(own))


@pytest.mark.parametrize("name", ["", "-", "-a", "Alice", "a b", "a/b", "..", "a" * 33, "é"])
def test_what_cannot_name_a_key(name: str) -> None:
    with raises_problem(repr(name), cause="1 to 32", fix="medley key add alice"):
        credentials.add_key(name)


def test_a_name_is_given_once_and_the_last_key_stays() -> None:
    credentials.add_key("alice")
    with raises_problem("alice already", fix="medley key revoke alice"):
        credentials.add_key("alice")
    with raises_problem("no key named bob", cause="alice", fix="medley key list"):
        credentials.revoke_key("bob")
    with raises_problem("alice is the last key", fix="medley key add NAME && medley key revoke alice"):
        credentials.revoke_key("alice")


def test_a_copy_of_a_key_is_named_without_its_text(state: Path) -> None:
    """Caddy refuses a key that two names have, and prints it."""
    key = credentials.read_api_key(credentials.add_key("alice"))
    (state / "keys" / "bob").write_text(key)
    said: list[str] = []
    keys = credentials.read_keys(credentials.find_key_folder(), lambda _, problem: said.append(str(problem)))
    assert keys == {"alice": key}
    assert "the key named bob is that of alice" in said[0]
    assert key not in said[0]


def test_a_damaged_key_is_a_problem_and_can_be_revoked() -> None:
    credentials.add_key("default")
    file = credentials.add_key("alice")
    file.write_text("{http.vars.x}")
    with raises_problem(str(file), cause="13 characters", fix=f"openssl rand -hex 24 > {file}"):
        credentials.read_keys(credentials.find_key_folder())
    credentials.revoke_key("alice")
    assert list(credentials.read_keys(credentials.find_key_folder())) == ["default"]


def test_ones_own_is_closed_to_others(tmp_path: Path) -> None:
    own = tmp_path / "key"
    own.write_text("my-own-secret-of-24-letters\n")
    own.chmod(0o644)
    assert credentials.choose_keys(str(own), "127.0.0.1", make=True) == own
    assert own.stat().st_mode & 0o777 == 0o600
    assert credentials.read_api_key(own) == "my-own-secret-of-24-letters"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_credential_of_systemd_stays_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "api-key"
    file.write_text("sk-0123456789abcdef01234567")
    file.chmod(0o440)
    os.chown(file, 65_534, 65_534)
    assert credentials.choose_keys(str(file), "0.0.0.0", make=True) == file
    assert stat.S_IMODE(file.stat().st_mode) == 0o440


@pytest.mark.parametrize(
    ("text", "cause", "fix"),
    [
        pytest.param(None, "No such file", "leave --api-key out to make one", id="no file"),
        pytest.param("", "", "openssl rand -hex 24 > {}", id="empty"),
        pytest.param("two words here", ("14 ", "24 to 128"), "openssl rand -hex 24 > {}", id="words"),
        pytest.param("sk-*" + "a" * 24, "28 ", "openssl rand -hex 24 > {}", id="a wildcard of Caddy's"),
        pytest.param("{http.vars.x}" + "a" * 24, "37 ", "openssl rand -hex 24 > {}", id="a placeholder"),
        pytest.param("short", ("5 ", "24 to 128"), "openssl rand -hex 24 > {}", id="too short"),
    ],
)
def test_what_is_no_key(tmp_path: Path, text: str | None, cause: str | tuple[str, ...], fix: str) -> None:
    own = tmp_path / "key"
    if text is not None:
        own.write_text(text)
    with raises_problem(str(own), cause=cause, fix=fix.format(own)):
        credentials.choose_keys(str(own), "127.0.0.1", make=True)


def test_a_secret_reaches_the_process_and_no_text(tmp_path: Path) -> None:
    """And what is printed does the same in a shell."""
    file = tmp_path / "a key's file"
    file.write_text("s3cret\n")
    command = Command(("sh", "-c", 'echo "$KEY"'), secrets={"KEY": str(file)})
    assert "s3cret" not in str(command)
    assert process.run(command).lines == ("s3cret",)
    assert process.run(Command(("sh", "-c", str(command)))).lines == ("s3cret",)


@pytest.fixture(autouse=True)
def state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path))
    return tmp_path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_it_is_made_once_and_for_its_owner_alone() -> None:
    file = credentials.ensure_token()
    text = file.read_text()
    assert len(text) == 64
    assert mode(file) == 0o600
    assert credentials.ensure_token().read_text() == text


def test_one_that_was_left_open_is_closed() -> None:
    credentials.ensure_token().chmod(0o644)
    assert mode(credentials.require_token()) == 0o600


def test_a_brought_one_takes_its_place_only_when_it_is_kept() -> None:
    mine = credentials.ensure_token().read_text()
    brought = credentials.store_token("  another-token-of-a-cluster-of-mine\n", "x")
    assert mode(brought) == 0o600
    assert credentials.require_token().read_text() == mine
    assert (
        credentials.keep_token(brought).read_text()
        == credentials.require_token().read_text()
        == "another-token-of-a-cluster-of-mine"
    )


@pytest.mark.parametrize("text", ["", "short", "two words of a sentence", "x" * 300])
def test_what_is_no_token_is_a_problem(text: str) -> None:
    with raises_problem("standard input", fix="--token-file FILE"):
        credentials.store_token(text, "standard input")


def test_none_is_a_problem() -> None:
    with raises_problem(cause="/token", fix="medley ray-worker HEAD --token-file FILE"):
        credentials.require_token()
