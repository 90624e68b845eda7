from pathlib import Path

import pytest

from medley import api_key, machine
from medley.command import Command
from medley.problem import Problem


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
    assert api_key.opens(address) is opens
    made = api_key.chosen(None, address, make=True)
    assert (made is not None) is opens
    assert api_key.chosen(api_key.NONE, address, make=True) is None


def test_it_is_made_once_for_its_owner_alone() -> None:
    file = api_key.chosen(None, "0.0.0.0", make=True)
    assert file == api_key.path()
    key = api_key.read(file)
    assert key.startswith("sk-")
    assert len(key) > 40
    assert file.stat().st_mode & 0o777 == 0o600
    assert api_key.chosen(None, "0.0.0.0", make=True) == file
    assert api_key.read(file) == key


def test_a_dry_run_makes_none() -> None:
    file = api_key.chosen(None, "0.0.0.0", make=False)
    assert file == api_key.path()
    assert not file.exists()


def test_ones_own_is_closed_to_others(tmp_path: Path) -> None:
    own = tmp_path / "key"
    own.write_text("my-own-secret\n")
    own.chmod(0o644)
    assert api_key.chosen(str(own), "127.0.0.1", make=True) == own
    assert own.stat().st_mode & 0o777 == 0o600
    assert api_key.read(own) == "my-own-secret"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        pytest.param(None, "cannot be read", id="no file"),
        pytest.param("", "holds no key", id="empty"),
        pytest.param("two words here", "holds no key", id="words"),
        pytest.param("short", "holds no key", id="too short"),
    ],
)
def test_what_is_no_key(tmp_path: Path, text: str | None, what: str) -> None:
    own = tmp_path / "key"
    if text is not None:
        own.write_text(text)
    with pytest.raises(Problem, match=what):
        api_key.chosen(str(own), "127.0.0.1", make=True)


def test_a_secret_reaches_the_process_and_no_text(tmp_path: Path) -> None:
    """And what is printed does the same in a shell."""
    file = tmp_path / "a key's file"
    file.write_text("s3cret\n")
    command = Command(("sh", "-c", 'echo "$KEY"'), secrets={"KEY": str(file)})
    assert "s3cret" not in str(command)
    assert machine.run(command).lines == ("s3cret",)
    assert machine.run(Command(("sh", "-c", str(command)))).lines == ("s3cret",)


def test_a_configuration_of_the_key_is_for_its_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path))
    file = api_key.config(8000)
    api_key.configure(file, 'sk-"quoted"')
    assert file.read_text() == 'api-key: "sk-\\"quoted\\""\n'
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_configuration_of_the_users_own_would_take_its_place() -> None:
    api_key.require_ours(("--dtype", "float32", "--config-format", "hf"))
    for words in (("--config", "x.yaml"), ("--config=x.yaml",)):
        with pytest.raises(Problem, match="one --config"):
            api_key.require_ours(words)
