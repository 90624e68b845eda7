from pathlib import Path

import pytest

from medley import beside, config
from medley.beside import Beside
from medley.engine import Serving
from medley.engines import ENGINES
from medley.launch import BARE, launch
from medley.plan import Plan
from medley.problem import Problem
from medley.remote_code import Code
from medley.tables import Engine, Model, Need
from medley.weights import Weights

COMMIT, HASH = "1" * 40, "a" * 64
HUB = Code("org/x", {"a.py": HASH}, COMMIT)


def need(kind: str, name: str) -> Need:
    return Need.model_validate(
        {"kind": kind, "what": "for it", "name": name, "sha256": HASH, "url": "http://example.org/x"}
    )


@pytest.mark.parametrize(
    ("engine", "flags"),
    [
        ("vllm", f"--trust-remote-code --revision {COMMIT} --code-revision {COMMIT}"),
        ("sglang", f"--trust-remote-code --revision {COMMIT}"),
    ],
)
def test_trusted_code_of_a_repository_is_held_to_its_commit(engine: str, flags: str) -> None:
    found = list(Beside(HUB).flags(engine))
    assert " ".join(word for flag in found for word in flag.argv()) == flags
    assert HUB.fingerprint in found[0].why
    assert COMMIT in found[0].why
    assert list(Beside(HUB).why()) == [f"trusted code: {HUB.named}"]


def test_trusted_code_of_a_folder_has_no_revision() -> None:
    assert [flag.argv() for flag in Beside(Code("/m", {"a.py": HASH})).flags("vllm")] == [
        ("--trust-remote-code",)
    ]


def test_files_become_flags_and_variables() -> None:
    model = Model(
        title="x",
        repository="a/b",
        needs=(
            need("tiktoken", "t.tiktoken"),
            need("chat-template", "c.jinja"),
            need("reasoning-parser-plugin", "p.py"),
        ),
    )
    found = Beside(files=beside.files(model.needs, "vllm", trusted=True))
    places = {each.name: path for each, path in found.files}
    assert [flag.argv() for flag in found.flags("vllm")] == [
        ("--chat-template", str(places["c.jinja"])),
        ("--reasoning-parser-plugin", str(places["p.py"])),
    ]
    ((variable),) = found.variables()
    assert (variable.name, variable.value) == ("TIKTOKEN_ENCODINGS_BASE", str(places["t.tiktoken"].parent))
    assert len(set(map(str, places.values()))) == 3


def test_a_parser_is_code() -> None:
    parser = (need("reasoning-parser-plugin", "p.py"),)
    with pytest.raises(Problem, match="nobody said that it may run"):
        beside.files(parser, "vllm", trusted=False)
    with pytest.raises(Problem, match="a parser for vLLM"):
        beside.files(parser, "sglang", trusted=True)


def test_the_users_own_folder_of_encodings_wins() -> None:
    (variable,) = Beside(base="/mine").variables()
    assert (variable.name, variable.value) == ("TIKTOKEN_ENCODINGS_BASE", "/mine")


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_launch_has_it_and_says_why(engine: Engine) -> None:
    model = config.models()["gpt-oss-20b"]
    found = Beside(HUB, beside.files(model.needs, engine, trusted=False))
    started = launch(
        ENGINES[engine],
        Weights("gpt-oss-20b", "openai/gpt-oss-20b", model),
        config.hosts()["spark"],
        Plan(),
        Serving("openai/gpt-oss-20b", "x"),
        tools=BARE,
        environ={},
        beside=found,
    )
    assert f" --revision {COMMIT}" in str(started.command)
    assert Path(started.command.env["TIKTOKEN_ENCODINGS_BASE"]).parent.name == "needs"
    assert any(HUB.fingerprint in reason for _, reason in started.why())


def test_a_table_cannot_trust() -> None:
    with pytest.raises(ValueError, match="trusted by the user alone"):
        Model(title="x", repository="a/b", args={"sglang": ("--trust_remote_code",)})
    assert all(
        "trust" not in word
        for model in config.models().values()
        for words in model.args.values()
        for word in words
    )
