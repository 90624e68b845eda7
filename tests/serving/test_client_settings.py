"""Settings name the server, its model and limits, never the key, and parse in each client's own format."""

import json
import os
import re
import shlex
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from medley.serving import client_settings
from medley.serving.client_settings import Client, ServerConnection, SettingsFile, read_clients
from tests.problems import raises_problem

ODD = "org/na me:1+2 (x)"
KEY = "sk-0123456789"
CLIENTS = read_clients()
ASKED = (
    "curl",
    "openai",
    "anthropic",
    "claude-code",
    "codex",
    "opencode",
    "aider",
    "open-webui",
    "continue",
    "cline",
)


def test_the_clients_of_the_how_to_are_there() -> None:
    assert {*ASKED, "n8n", "llm", "langchain"} <= set(CLIENTS)
    assert all(each.title and each.source and each.command for each in CLIENTS.values())


@pytest.fixture(params=["none", "file", "variable"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> ServerConnection:
    if request.param == "none":
        return ServerConnection("http://127.0.0.1:8000/v1", ODD, 32_768)
    file = tmp_path / "a key"
    file.write_text(KEY)
    named = file if request.param == "file" else None
    return ServerConnection("http://127.0.0.1:8000/v1", ODD, 32_768, "org/model", named, has_key=True)


@pytest.mark.parametrize("name", CLIENTS)
def test_settings_have_the_server_and_no_key(name: str, target: ServerConnection) -> None:
    filled = CLIENTS[name].fill_templates(target)
    text = "\n".join((filled.command, *(each.text for each in filled.files)))
    assert "http://127.0.0.1:8000" in text
    assert KEY not in text
    assert not re.search(r"@[A-Z_]+@", text), "each mark is filled"


@pytest.mark.parametrize("name", CLIENTS)
def test_what_is_typed_is_a_shell_s(name: str, target: ServerConnection) -> None:
    done = subprocess.run(
        ["bash", "-n", "-c", CLIENTS[name].fill_templates(target).command], capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")


PROGRAMS = (
    *("curl", "docker", "guidellm", "llama-benchy", "llm", "aider", "codex", "opencode", "claude"),
    *("python", "python3"),
)


@pytest.mark.parametrize("name", CLIENTS)
def test_no_program_gets_the_key_as_a_word(name: str, target: ServerConnection, tmp_path: Path) -> None:
    """Each user of the host can read the words of every process; its input and variables are its own."""
    (tmp_path / "bin").mkdir()
    for program in PROGRAMS:
        (tmp_path / "bin" / program).write_text(f'#!/bin/sh\necho "{program} $*" >>"{tmp_path}/words"\n')
        (tmp_path / "bin" / program).chmod(0o755)
    (tmp_path / "home/.continue").mkdir(parents=True)
    own = {"MEDLEY_API_KEY": KEY} if target.has_key and not target.key_file else {}
    variables = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "HOME": f"{tmp_path}/home", **own}
    subprocess.run(["bash", "-ec", CLIENTS[name].fill_templates(target).command], env=variables, check=True)
    words = (tmp_path / "words").read_text() if (tmp_path / "words").exists() else ""
    assert KEY not in words
    assert words or name in {"cline", "n8n", "continue"}


@pytest.mark.parametrize("name", [name for name, each in CLIENTS.items() if "<<'END'" in each.command])
def test_a_program_is_python(name: str, target: ServerConnection) -> None:
    program = CLIENTS[name].fill_templates(target).command.partition("<<'END'\n")[2].rpartition("\nEND")[0]
    compile(program, name, "exec")
    assert json.dumps(ODD)[1:-1] in program


@pytest.mark.parametrize("name", [name for name, each in CLIENTS.items() if "<<'END'" in each.command])
def test_no_python_imports_from_the_folder_where_it_is_typed(name: str, tmp_path: Path) -> None:
    server = ServerConnection("http://127.0.0.1:8000/v1", "m", 32_768)
    run = CLIENTS[name].fill_templates(server).command
    for program in ("python", "python3"):
        (tmp_path / program).symlink_to(sys.executable)
    modules = re.findall(r"^(?:from|import) (\w+)", run, re.MULTILINE)
    folder = tmp_path / "here"
    folder.mkdir()
    for module in {*modules, "socketserver"}:
        (folder / f"{module}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    variables = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    variables.pop("PYTHONSAFEPATH", None)
    done = subprocess.run(
        ["timeout", "60", "bash", "-c", f"trap 'kill $(jobs -p)' EXIT\n{run}"],
        env=variables,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not (tmp_path / "ran").exists()
    assert "ModuleNotFoundError" in done.stderr


@pytest.mark.parametrize(
    ("name", "file"), [(name, file) for name, each in CLIENTS.items() for file in each.files], ids=str
)
def test_a_file_parses(name: str, file: SettingsFile, target: ServerConnection) -> None:
    filled = next(each for each in CLIENTS[name].fill_templates(target).files if each.path == file.path)
    match Path(file.path).suffix:
        case ".json":
            table = json.loads(filled.text)
        case ".toml":
            table = tomllib.loads(filled.text)
        case _:
            table = yaml.safe_load(filled.text)
    assert ODD in json.dumps(table).encode().decode("unicode_escape")


HOSTILE_NAMES = (
    *("{file:~/.ssh/id_rsa}", "{env:HF_TOKEN}", "a{file:b}", "${{ secrets.X }}", "{{ $env.X }}", "={{ 1 }}"),
    *("$HOME", "${HOME}", "`id`", "a$(id)", 'a"b', "a'b", "a\\b", "a,target=http://evil", "a\nb", "a\rb"),
    *("a\x1bb", "", "-x", "!!python/name:x", "%(x)s", "~/x", "os.environ/X=1"),
)


@pytest.mark.parametrize("name", sorted({*CLIENTS} - {"curl", "open-webui"}))
@pytest.mark.parametrize("model", HOSTILE_NAMES, ids=ascii)
def test_a_name_that_a_client_could_expand_is_refused(name: str, model: str) -> None:
    """A server chooses the names of its models: opencode would send it the file that such a name has."""
    with raises_problem(repr(model), cause="http://127.0.0.1:8000/v1", fix="--served-model-name NAME"):
        CLIENTS[name].fill_templates(ServerConnection("http://127.0.0.1:8000/v1", model, 32_768))


@pytest.mark.parametrize("name", ["guidellm", "llama-benchy"])
def test_the_folder_of_a_tokenizer_is_a_plain_name_too(name: str) -> None:
    with raises_problem("'a,b=c' as a tokenizer"):
        CLIENTS[name].fill_templates(ServerConnection("http://127.0.0.1:8000/v1", "m", 32_768, "a,b=c"))


@pytest.mark.parametrize("model", HOSTILE_NAMES, ids=ascii)
def test_a_request_of_curl_has_any_name(model: str, tmp_path: Path) -> None:
    run = CLIENTS["curl"].fill_templates(ServerConnection("http://127.0.0.1:8000/v1", model)).command
    stub = f"curl() {{ printf '%s\\0' \"$@\" >{tmp_path}/words; }}\n"
    subprocess.run(["bash", "-c", stub + run], check=True)
    body = next(word for word in (tmp_path / "words").read_text().split("\0") if word.startswith("{"))
    assert json.loads(body)["model"] == model


@pytest.mark.parametrize("name", ["cline", "n8n"])
def test_a_file_s_name_cannot_end_a_comment(name: str, tmp_path: Path) -> None:
    """A user pastes what is printed."""
    target = ServerConnection(
        "http://a/v1", "m", 32_768, key_file=tmp_path / "k'\n: >ran #\r\x1bé\\", has_key=True
    )
    subprocess.run(["bash", "-c", CLIENTS[name].fill_templates(target).command], cwd=tmp_path, check=True)
    assert not (tmp_path / "ran").exists()


def test_limits_are_those_of_the_server() -> None:
    told = json.loads(
        CLIENTS["opencode"].fill_templates(ServerConnection("http://a/v1", "m", 8192)).files[0].text
    )
    assert told["provider"]["medley"]["models"]["m"]["limit"] == {"context": 8192, "output": 2048}
    assert ServerConnection("http://a/v1", "m", 262_144).output_tokens == 32_000


def test_the_key_s_command_prints_it(tmp_path: Path) -> None:
    (tmp_path / "a key").write_text(KEY)
    found = ServerConnection("http://a/v1", "m", key_file=tmp_path / "a key", has_key=True)
    assert (
        subprocess.run(shlex.split(found.key_command), capture_output=True, text=True, check=True).stdout
        == KEY
    )
    settings = json.loads(CLIENTS["claude-code"].fill_templates(found).files[0].text)
    assert settings["apiKeyHelper"] == found.key_command


def test_what_lacks_is_told() -> None:
    agent, small = CLIENTS["claude-code"], ServerConnection("http://a/v1", "smollm2", 8192)
    tools, context = agent.list_gaps(small, has_tools=False)
    assert "smollm2 calls none" in tools
    assert "--context 32768" in context
    assert agent.list_gaps(ServerConnection("http://a/v1", "m", 131_072), has_tools=True) == []
    assert agent.list_gaps(ServerConnection("http://a/v1", "m", None), has_tools=None) == []
    assert CLIENTS["curl"].list_gaps(small, has_tools=False) == []


@pytest.mark.parametrize(
    ("url", "has_key", "shows"),
    [
        ("http://spark-1:8000/v1", True, True),
        ("http://192.168.1.5:8000/v1", True, True),
        ("http://spark-1:8000/v1", False, False),
        ("https://spark-1:8000/v1", True, False),
        ("http://127.0.0.1:8000/v1", True, False),
        ("http://localhost:8000/v1", True, False),
    ],
)
def test_a_key_that_travels_unencrypted(url: str, has_key: bool, shows: bool) -> None:  # noqa: FBT001 - of the table
    assert ServerConnection(url, "m", has_key=has_key).is_key_exposed is shows


def test_an_unknown_client_is_refused() -> None:
    with raises_problem("'emacs'", cause="medley knows curl", fix="medley connect openai"):
        client_settings.find_client("emacs")


def written(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Client, Path]:
    monkeypatch.setenv("HOME", str(folder))
    filled = CLIENTS[name].fill_templates(ServerConnection("http://127.0.0.1:8000/v1", "m", 8192))
    return filled, client_settings.resolve_settings_path(filled.files[0], folder)


def test_json_is_merged_and_the_file_before_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled, path = written("opencode", tmp_path, monkeypatch)
    own = '{"theme": "dark", "provider": {"other": {"npm": "x"}}}'
    path.write_text(own)
    backup = client_settings.write_settings(filled.files[0], path)
    assert backup
    assert backup.read_text() == own
    found = json.loads(path.read_text())
    assert (found["theme"], set(found["provider"])) == ("dark", {"other", "medley"})
    assert client_settings.write_settings(filled.files[0], path) is None, (
        "nothing differs, so nothing is kept"
    )
    path.write_text("{}")
    other = client_settings.write_settings(filled.files[0], path)
    assert other
    assert (other != backup, backup.read_text()) == (True, own)


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644])
def test_a_file_and_its_backup_keep_the_mode_of_the_file_before(
    mode: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled, path = written("opencode", tmp_path, monkeypatch)
    path.write_text("{}")
    path.chmod(mode)
    backup = client_settings.write_settings(filled.files[0], path)
    assert backup
    assert [stat.S_IMODE(file.stat().st_mode) for file in (path, backup)] == [mode, mode]


def test_a_new_file_is_only_its_owner_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled, path = written("opencode", tmp_path, monkeypatch)
    assert client_settings.write_settings(filled.files[0], path) is None
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("text", ["{ // mine\n}", "[]"])
def test_json_that_cannot_be_merged_is_left_alone(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled, path = written("opencode", tmp_path, monkeypatch)
    path.write_text(text)
    with raises_problem(str(path)):
        client_settings.write_settings(filled.files[0], path)
    assert path.read_text() == text


def test_a_file_with_other_settings_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled, path = written("llm", tmp_path, monkeypatch)
    client_settings.write_settings(filled.files[0], path)
    assert client_settings.write_settings(filled.files[0], path) is None
    path.write_text("- model_id: mine\n")
    with raises_problem(str(path), cause="other settings"):
        client_settings.write_settings(filled.files[0], path)
    filled, path = written("codex", tmp_path, monkeypatch)
    path.parent.mkdir()
    path.write_text("old = 1\n")
    assert client_settings.write_settings(filled.files[0], path), "this file is medley's own"


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled, path = written("opencode", tmp_path, monkeypatch)
    path.mkdir()
    with raises_problem(str(path)):
        client_settings.write_settings(filled.files[0], path)
    assert stat.S_ISDIR(path.stat().st_mode)


def test_a_value_that_is_replaced_is_named(tmp_path: Path) -> None:
    path = tmp_path / "opencode.json"
    own = {"model": "anthropic/claude", "provider": {"x": 1}}
    path.write_text(json.dumps(own))
    file = SettingsFile("opencode.json", '{"model": "medley/a", "provider": {"medley": 2}}', "json")
    assert client_settings.describe_replaced_settings(file, path) == ['model: "anthropic/claude"']
    assert client_settings.write_settings(file, path)
    text = path.read_text()
    assert client_settings.describe_replaced_settings(file, path) == []
    assert client_settings.write_settings(file, path) is None, "a second time changes nothing"
    assert path.read_text() == text


def test_a_certificate_of_medleys_own_is_trusted(tmp_path: Path) -> None:
    target = ServerConnection("https://127.0.0.1:8000/v1", "m", authority=tmp_path / "root.crt")
    for client in client_settings.read_clients().values():
        first = client.fill_templates(target).command.splitlines()[0]
        assert f"SSL_CERT_FILE={tmp_path / 'root.crt'}" in first
        assert "root.crt" not in client.fill_templates(target.replace(authority=None)).command
