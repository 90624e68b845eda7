"""What `serve` and `plan` say of a model's own code and files, on hosts that one need not own."""

import json
from pathlib import Path

import pytest

from medley import storage
from medley.cli import UsageError
from medley.cli.plan import PlanVerb
from medley.cli.serve import ServeVerb
from medley.model.remote_code import read_folder_code
from tests.problems import raises_problem

NEMOTRON = "nemotron-3-super-120b-a12b-nvfp4"
SPARKS = ("--hosts", "spark:2")


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("MEDLEY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    for name in ("HF_HUB_CACHE", "HF_HUB_OFFLINE", "TIKTOKEN_ENCODINGS_BASE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    folder = tmp_path / "own"
    folder.mkdir()
    told = {"model_type": "whisper", "auto_map": {"AutoConfig": "configuration_x.X"}}
    (folder / "config.json").write_text(json.dumps(told))
    (folder / "configuration_x.py").write_text("1\n")
    (folder / "model.safetensors").touch()
    return folder


def serve(*words: str) -> int:
    _, status = ServeVerb.run(["medley serve", *words], exit=False)
    return int(status)


def plan(*words: str) -> int:
    _, status = PlanVerb.run(["medley plan", *words], exit=False)
    return int(status)


def test_a_plan_needs_no_trust_and_says_that_serve_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(NEMOTRON, *SPARKS) == 0
    said = capsys.readouterr().out
    assert "\nwarning: " in said
    assert "serve runs it only with --trust-remote-code" in said
    assert " --trust-remote-code\n" not in said.replace("with --trust-remote-code\n", "")
    with raises_problem(
        NEMOTRON,
        fix=(f"medley serve {NEMOTRON} --trust-remote-code", f"medley serve {NEMOTRON} --no-remote-code"),
    ):
        serve(NEMOTRON, "--dry-run", *SPARKS)


def test_without_its_code_there_is_no_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert serve(NEMOTRON, "--dry-run", *SPARKS, "--no-remote-code") == 0
    said = capsys.readouterr()
    assert "--trust-remote-code" not in said.out
    assert f"medley serve {NEMOTRON} --hosts 2 --no-remote-code" in said.err


def test_a_dry_run_shows_what_is_pinned(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = (str(own), "--dry-run", "--kind", "cpu")
    with raises_problem(
        str(own), cause=("1 Python file", "SHA-256 "), fix=f"medley serve {own} --no-remote-code"
    ):
        serve(*words)
    assert serve(*words, "--trust-remote-code") == 0
    said = capsys.readouterr()
    assert " --trust-remote-code" in said.out
    assert f"medley: --trust-remote-code: as you chose: 1 Python file of {own}, SHA-256 " in said.err
    with raises_problem(str(own), cause="000000000000"):
        serve(*words, "--trust-remote-code", "--code-revision", "0" * 12)


def test_the_code_of_a_draft_is_trusted_by_its_own_hash(
    own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draft = own.parent / "draft"
    draft.mkdir()
    (draft / "config.json").write_text(json.dumps({"auto_map": {"AutoModel": "own.Draft"}}))
    (draft / "own.py").write_text("2\n")
    words = (str(own), "--dry-run", "--kind", "cpu", "--trust-remote-code")
    flags = ("--", f'--speculative-config={{"model": "{draft}", "num_speculative_tokens": 2}}')
    code = read_folder_code(draft)
    assert code
    with raises_problem(
        str(draft),
        cause=f"{storage.hash_file(draft / 'own.py')}  own.py",
        fix=f"medley serve {own} --trust-remote-code --draft-code {code.fingerprint}",
    ):
        serve(*words, *flags)
    assert serve(*words, "--draft-code", code.fingerprint, *flags) == 0
    assert str(draft) in capsys.readouterr().out


@pytest.mark.parametrize(
    "words", [("--code-revision", "0" * 40), ("--trust-remote-code", "--no-remote-code")], ids=str
)
def test_switches_that_say_nothing_together(own: Path, words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="remote-code"):
        serve(str(own), "--dry-run", *words)


def test_the_files_of_a_model_are_in_its_plan(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert plan("gpt-oss-20b", *SPARKS, "--json") == 0
    table = json.loads(capsys.readouterr().out)
    assert "446a9538" in table["beside"][0]
    base = table["steps"][-1]["env"]["TIKTOKEN_ENCODINGS_BASE"]
    assert Path(base).parent == tmp_path / "cache" / "needs"
    assert not Path(base).exists(), "a plan fetches nothing"
    monkeypatch.setenv("TIKTOKEN_ENCODINGS_BASE", "/mine")
    assert plan("gpt-oss-20b", *SPARKS, "--json") == 0
    table = json.loads(capsys.readouterr().out)
    assert (table["beside"], table["steps"][-1]["env"]["TIKTOKEN_ENCODINGS_BASE"]) == ([], "/mine")
