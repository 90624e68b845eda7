import json
from pathlib import Path

import pytest

from medley import config, storage
from medley.errors import Problem
from medley.model import remote_code, trust
from medley.model.remote_code import Code
from medley.model.resolve import Weights
from medley.model.trust import Trust
from medley.schema import Model, RemoteCode
from tests.problems import raises_problem

ONE, TWO = storage.hash_bytes(b"1"), storage.hash_bytes(b"2")
FOLDER = Code("/models/x", {"a.py": ONE, "b.py": TWO})
COMMIT = "1" * 40
HUB = Code("org/x", {"a.py": ONE}, COMMIT)


@pytest.fixture(autouse=True)
def _state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path))


def require(code: Code, asked: str | None = None, listed: RemoteCode | None = None) -> None:
    trust.require_pinned(code, asked, trust.read_pin(code.where), listed)


def test_first_use_is_trusted_and_kept() -> None:
    assert trust.read_pin(FOLDER.where) is None
    require(FOLDER)
    trust.keep_pin(FOLDER)
    trust.keep_pin(HUB)
    kept = trust.read_pin(FOLDER.where)
    assert kept is not None
    assert (kept.files, kept.commit) == (FOLDER.files, None)
    assert getattr(trust.read_pin("org/x"), "commit", None) == COMMIT
    require(FOLDER)


def test_what_has_changed_is_a_problem_that_names_both() -> None:
    trust.keep_pin(FOLDER)
    now = FOLDER.replace(files={"a.py": ONE, "c.py": TWO})
    with raises_problem(
        FOLDER.where,
        cause=(FOLDER.fingerprint, now.fingerprint, ": b.py, c.py"),
        fix=f"--trust-remote-code --code-revision {now.fingerprint}",
    ):
        require(now)


def test_a_commit_that_is_a_command_is_quoted() -> None:
    """The folders of the hub's cache have the names that a hub gave them."""
    with raises_problem("the code of org/x", fix="--code-revision '$(id)'"):
        require(HUB.replace(commit="$(id)"), asked=COMMIT)


def test_naming_the_new_one_trusts_it() -> None:
    trust.keep_pin(FOLDER)
    now = FOLDER.replace(files={"a.py": TWO})
    require(now, asked=now.fingerprint[:12])
    trust.keep_pin(now)
    require(now)
    with pytest.raises(Problem):
        require(FOLDER)


def test_another_than_the_named_one_is_a_problem() -> None:
    with raises_problem(FOLDER.where, cause=(f"--code-revision says {'0' * 64}", FOLDER.fingerprint)):
        require(FOLDER, asked="0" * 64)


def test_one_commit_has_one_content() -> None:
    """Asked for by its name or not: else a hub could answer with anything."""
    trust.keep_pin(HUB)
    spoiled = HUB.replace(files={"a.py": TWO})
    for asked in (None, COMMIT):
        with raises_problem(HUB.where, cause=(HUB.fingerprint, spoiled.fingerprint, ": a.py")):
            require(spoiled, asked=asked)
    require(spoiled.replace(commit="2" * 40), asked="2" * 40)


def test_what_a_table_lists_must_be_so() -> None:
    require(HUB, listed=RemoteCode(needed=True, files={"a.py": ONE}))
    for file, has in (("a.py", ONE), ("z.py", "missing")):
        with raises_problem(f"{file} of {HUB.where}", cause=(TWO, has)):
            require(HUB, asked=COMMIT, listed=RemoteCode(needed=True, files={file: TWO}))


GIVEN = Trust(is_given=True)


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    for name in ("HF_HUB_CACHE", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def own(tmp_path: Path) -> Weights:
    """A folder with code of its own."""
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"auto_map": {"AutoConfig": "configuration_x.X"}}))
    (folder / "configuration_x.py").write_text("print('it runs')\n")
    return Weights("own", str(folder), None)


def test_code_that_nobody_trusts_is_shown_and_not_run(own: Weights) -> None:
    code = remote_code.read_folder_code(Path(own.target))
    assert code is not None
    for starts in (True, False):
        with raises_problem(
            own.target,
            cause=f"{code.files['configuration_x.py']}  configuration_x.py",
            fix=(
                f"medley serve {own.target} --trust-remote-code --code-revision {code.fingerprint}",
                f"medley serve {own.target} --no-remote-code",
            ),
        ):
            trust.require_trusted_code(own, Trust(), is_start=starts)
    assert trust.read_pin(own.target) is None


def test_first_use_pins_it_and_a_change_is_a_problem(own: Weights) -> None:
    seen = trust.require_trusted_code(own, GIVEN, is_start=False)
    assert seen is not None
    assert trust.read_pin(own.target) is None, "a dry run trusts nothing"
    assert trust.require_trusted_code(own, GIVEN, is_start=True) == seen
    assert trust.require_trusted_code(own, GIVEN, is_start=True) == seen
    (Path(own.target) / "configuration_x.py").write_text("print('other code')\n")
    with raises_problem(own.target, cause=(seen.fingerprint, ": configuration_x.py")):
        trust.require_trusted_code(own, GIVEN, is_start=True)
    now = remote_code.read_folder_code(Path(own.target))
    assert now is not None
    assert (
        trust.require_trusted_code(own, Trust(is_given=True, pin=now.fingerprint[:16]), is_start=True) == now
    )
    assert trust.require_trusted_code(own, GIVEN, is_start=True) == now


def test_who_wants_none_of_it_gets_none(own: Weights) -> None:
    assert trust.require_trusted_code(own, Trust(is_refused=True), is_start=True) is None


def test_trust_where_there_is_no_code_is_nothing(own: Weights) -> None:
    """So that no flag reaches the engine that would let it run what comes later."""
    (Path(own.target) / "config.json").write_text("{}")
    assert trust.require_trusted_code(own, GIVEN, is_start=True) is None
    assert trust.require_trusted_code(own, Trust(), is_start=True) is None


@pytest.mark.parametrize("word", ["abc", "main", "0123456789A"])
def test_a_pin_that_pins_nothing(own: Weights, word: str) -> None:
    for found, length in ((own, "12 digits"), (Weights("org/x", "org/x", None), "40 digits")):
        with raises_problem(f"--code-revision {word} ", cause=length):
            trust.require_trusted_code(found, Trust(is_given=True, pin=word), is_start=True)


def table(*, needed: bool) -> Weights:
    model = Model(title="x", repository="org/x", remote_code=RemoteCode(needed=needed))
    return Weights("x", "org/x", model)


SHIPPED = Weights("deepseek-v3", "deepseek-ai/DeepSeek-V3", config.load_shipped_models()["deepseek-v3"])


def test_a_table_that_says_so_is_enough_without_a_hub() -> None:
    for starts in (True, False):
        with raises_problem(
            "x ", fix=("medley serve x --trust-remote-code", "medley serve x --no-remote-code")
        ):
            trust.require_trusted_code(table(needed=True), Trust(), is_start=starts)
    assert trust.require_trusted_code(SHIPPED, Trust(), is_start=True) is None
    assert list(trust.list_warnings(table(needed=True), Trust())) == [
        "this model has code of its own, and serve runs it only with --trust-remote-code"
    ]
    for said in (GIVEN, Trust(is_refused=True)):
        assert list(trust.list_warnings(table(needed=True), said)) == []
    assert list(trust.list_warnings(SHIPPED, Trust())) == []


def test_a_table_of_the_users_cannot_say_that_engines_do_without_the_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else may have written it, for a repository of their own or under a name of medley's."""
    monkeypatch.setenv("MEDLEY_CONFIG", str(tmp_path))
    (tmp_path / "models").mkdir()
    for name in ("nice", "deepseek-v3"):
        text = f'title = "x"\nrepository = "evil/{name}"\nremote_code = {{ needed = false }}\n'
        (tmp_path / "models" / f"{name}.toml").write_text(text)
        weights = Weights(name, f"evil/{name}", config.load_models()[name])
        for starts in (True, False):
            with raises_problem(f"{name} has extra model code", fix="--trust-remote-code"):
                trust.require_trusted_code(weights, Trust(), is_start=starts)
        assert list(trust.list_warnings(weights, Trust()))
    same_repository = SHIPPED.replace(model=replace_repository(SHIPPED))
    assert trust.require_trusted_code(same_repository, Trust(), is_start=True) is None


def replace_repository(weights: Weights) -> Model:
    """Return a table of the user's for the repository of a known table."""
    return Model(title="mine", repository=weights.target, remote_code=RemoteCode(needed=False))


def test_a_plan_names_the_files_that_it_knows(own: Weights) -> None:
    (said,) = trust.list_warnings(own, Trust())
    assert "configuration_x.py" in said


@pytest.mark.parametrize(
    "words",
    [
        ("--trust-remote-code",),
        ("--trust_remote_code",),
        ("--trust-remote-code=true",),
        ("--trust",),
        ("--max-model-len", "9", "--tru"),
        ("--config", "FILE"),
        ("--config=FILE",),
    ],
)
def test_it_is_said_to_medley_and_not_to_the_engine(words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "flags.yaml").write_text("trust_remote_code: true\n")
    typed = tuple(word.replace("FILE", str(tmp_path / "flags.yaml")) for word in words)
    for said in (Trust(), GIVEN, Trust(is_refused=True)):
        with raises_problem(
            next(word for word in reversed(typed) if word.startswith("--")),
            fix="medley serve MODEL --trust-remote-code",
        ):
            trust.refuse_engine_flags(said, typed)


@pytest.mark.parametrize(
    "word",
    [
        "--revision=main",
        "--code_revision",
        "--tokenizer",
        "--hf-over",
    ],
)
def test_nothing_that_reads_code_from_elsewhere_goes_with_it(word: str) -> None:
    with raises_problem(f"{word} ", "--trust-remote-code", fix="--code-revision COMMIT"):
        trust.refuse_engine_flags(GIVEN, (word, "x"))
    trust.refuse_engine_flags(Trust(), (word, "x"))


def test_other_flags_go_with_it(tmp_path: Path) -> None:
    (tmp_path / "flags.yaml").write_text("max-model-len: 9\n")
    words = ("--max-model-len", "9", "--tokenizer-mode", "slow", "-O3", "--dtype=float32", "--tp", "2")
    trust.refuse_engine_flags(GIVEN, words)
    trust.refuse_engine_flags(Trust(), (*words, "--config", str(tmp_path / "flags.yaml")))
