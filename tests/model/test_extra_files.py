from collections.abc import Iterator
from pathlib import Path

import pytest

from medley import config, storage
from medley.engine.launch import LaunchOrder, build_launch
from medley.engine.server_spec import ServerSpec
from medley.errors import Problem
from medley.model import extra_files
from medley.model.extra_files import NO_EXTRAS, ModelExtras
from medley.model.remote_code import Code
from medley.model.resolve import Weights
from medley.planner.placement import PlacementOptions
from medley.planner.plan import Plan
from medley.progress import SILENT
from medley.schema import EngineName, ExtraFile, Model
from tests.problems import raises_problem
from tests.web_server import Answering, answering

COMMIT, HASH = "1" * 40, "a" * 64
HUB = Code("org/x", {"a.py": HASH}, COMMIT)


def need(kind: str, name: str) -> ExtraFile:
    return ExtraFile.from_table(
        {"kind": kind, "what": "for it", "name": name, "sha256": HASH, "url": "http://example.org/x"}
    )


@pytest.mark.parametrize(
    ("engine", "flags"),
    [
        ("vllm", f"--trust-remote-code --revision {COMMIT} --code-revision {COMMIT}"),
        ("sglang", f"--trust-remote-code --revision {COMMIT}"),
    ],
)
def test_trusted_code_of_a_repository_is_held_to_its_commit(engine: EngineName, flags: str) -> None:
    found = list(ModelExtras(HUB).list_flags(engine))
    assert " ".join(word for flag in found for word in flag.build_argv()) == flags
    assert HUB.fingerprint in found[0].why
    assert COMMIT in found[0].why
    assert list(ModelExtras(HUB).list_reasons()) == [f"trusted code: {HUB.description}"]


def test_trusted_code_of_a_folder_has_no_revision() -> None:
    assert [flag.build_argv() for flag in ModelExtras(Code("/m", {"a.py": HASH})).list_flags("vllm")] == [
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
    found = ModelExtras(files=extra_files.require_usable_extras(model.needs, "vllm", trusted=True))
    places = {each.name: path for each, path in found.files}
    assert [flag.build_argv() for flag in found.list_flags("vllm")] == [
        ("--chat-template", str(places["c.jinja"])),
        ("--reasoning-parser-plugin", str(places["p.py"])),
    ]
    variables = {variable.name: variable.value for variable in found.list_variables()}
    assert variables["TIKTOKEN_ENCODINGS_BASE"] == str(places["t.tiktoken"].parent)
    assert len(set(map(str, places.values()))) == 3


def test_a_parser_is_code() -> None:
    parser = (need("reasoning-parser-plugin", "p.py"),)
    with raises_problem("p.py", cause="http://example.org/x", fix="--trust-remote-code"):
        extra_files.require_usable_extras(parser, "vllm", trusted=False)
    with raises_problem("p.py", "sglang", fix="--engine vllm"):
        extra_files.require_usable_extras(parser, "sglang", trusted=True)


def test_the_users_own_folder_of_encodings_wins() -> None:
    (variable,) = ModelExtras(HUB, encodings_folder="/mine").list_variables()
    assert (variable.name, variable.value) == ("TIKTOKEN_ENCODINGS_BASE", "/mine")


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_an_engine_can_import_no_code_that_is_not_trusted(engine: EngineName) -> None:
    """SGLang runs it without its flag, so the command has no folder for it; also after --no-remote-code."""
    for extras in (NO_EXTRAS, ModelExtras(is_code_refused=True), ModelExtras(HUB)):
        order = LaunchOrder(
            Weights("x", "org/x", None),
            ServerSpec("org/x", "x"),
            PlacementOptions(engine=engine),
            model_extras=extras,
        )
        launch = build_launch(
            order, Plan(), config.load_hosts()["spark"], environ={"HF_MODULES_CACHE": "/mine"}
        )
        folder = launch.command.env.get("HF_MODULES_CACHE")
        assert folder == (None if extras.code else "/dev/null/untrusted-code")


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_launch_has_it_and_says_why(engine: EngineName) -> None:
    model = config.load_models()["gpt-oss-20b"]
    found = ModelExtras(HUB, extra_files.require_usable_extras(model.needs, engine, trusted=False))
    order = LaunchOrder(
        Weights("gpt-oss-20b", "openai/gpt-oss-20b", model),
        ServerSpec("openai/gpt-oss-20b", "x"),
        PlacementOptions(engine=engine),
        model_extras=found,
    )
    started = build_launch(order, Plan(), config.load_hosts()["spark"])
    assert f" --revision {COMMIT}" in str(started.command)
    assert Path(started.command.env["TIKTOKEN_ENCODINGS_BASE"]).parent.name == "needs"
    assert any(HUB.fingerprint in reason for _, reason in started.list_reasons())


def test_a_table_cannot_trust() -> None:
    with pytest.raises(ValueError, match="--trust_remote_code may run other code"):
        Model(title="x", repository="a/b", args={"sglang": ("--trust_remote_code",)})
    assert all(
        "trust" not in word
        for model in config.load_models().values()
        for words in model.args.values()
        for word in words
    )


CONTENT = bytes(range(256)) * 40
OTHER = b"another file"


@pytest.fixture(autouse=True)
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Answering]:
    monkeypatch.setenv("MEDLEY_CACHE", str(tmp_path / "cache"))
    for name in ("HF_HUB_OFFLINE", "HF_TOKEN", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with answering({"/a.tiktoken": CONTENT, "/b.tiktoken": OTHER}) as found:
        yield found


def needs_need(server: Answering, name: str = "a.tiktoken", content: bytes = CONTENT) -> ExtraFile:
    return ExtraFile(
        kind="tiktoken",
        what="its tokens",
        name=name,
        sha256=storage.hash_bytes(content),
        url=f"{server.url}/{name}",
    )


def fetched(*found: ExtraFile, limit_s: float = 30) -> list[Path]:
    extra_files.fetch_extras(found, SILENT, limit_s=limit_s)
    return [path for _, path in extra_files.list_extra_paths(found)]


def test_a_file_is_fetched_once(server: Answering, tmp_path: Path) -> None:
    (path,) = fetched(needs_need(server))
    assert path.read_bytes() == CONTENT
    assert path.is_relative_to(tmp_path / "cache" / "needs")
    assert fetched(needs_need(server)) == [path]
    assert len(server.asked) == 1


def test_all_of_a_kind_lie_in_one_folder(server: Answering) -> None:
    """The engine is told one folder, and looks there for each by its name."""
    one, other = fetched(needs_need(server), needs_need(server, "b.tiktoken", OTHER))
    assert one.parent == other.parent
    assert sorted(path.name for path in one.parent.glob("[!.]*")) == ["a.tiktoken", "b.tiktoken"]


def test_a_file_that_was_spoiled_is_fetched_again(server: Answering) -> None:
    (path,) = fetched(needs_need(server))
    path.write_bytes(CONTENT[1:])
    assert fetched(needs_need(server)) == [path]
    assert path.read_bytes() == CONTENT


def test_a_wrong_file_is_refused_and_not_kept(server: Answering) -> None:
    server.contents["/a.tiktoken"] = OTHER
    with pytest.raises(Problem) as caught:
        fetched(needs_need(server))
    assert storage.hash_bytes(OTHER) in caught.value.cause
    assert storage.hash_bytes(CONTENT) in caught.value.cause
    ((_, path),) = extra_files.list_extra_paths((needs_need(server),))
    assert [each.name for each in path.parent.iterdir()] == [".lock"]


def test_what_was_cut_off_goes_on_from_there(server: Answering) -> None:
    server.cut = 4000
    with raises_problem("a.tiktoken", cause=(f"{server.url}/a.tiktoken: ", " 4000 ")):
        fetched(needs_need(server))
    (path,) = fetched(needs_need(server))
    assert path.read_bytes() == CONTENT
    assert server.asked[-1][1] == "bytes=4000-"


def test_a_server_that_knows_no_ranges_gives_it_whole(server: Answering) -> None:
    server.cut, server.ranges = 4000, False
    with raises_problem("a.tiktoken", cause=(f"{server.url}/a.tiktoken: ", " 4000 ")):
        fetched(needs_need(server))
    (path,) = fetched(needs_need(server))
    assert path.read_bytes() == CONTENT


def test_a_part_of_another_file_is_begun_anew(server: Answering) -> None:
    ((_, path),) = extra_files.list_extra_paths((needs_need(server),))
    path.parent.mkdir(parents=True)
    path.with_name(".a.tiktoken.part").write_bytes(b"x" * 5000)
    assert fetched(needs_need(server)) == [path]
    assert path.read_bytes() == CONTENT


def test_a_part_that_is_all_of_it_is_taken(server: Answering) -> None:
    ((_, path),) = extra_files.list_extra_paths((needs_need(server),))
    path.parent.mkdir(parents=True)
    path.with_name(".a.tiktoken.part").write_bytes(CONTENT)
    assert fetched(needs_need(server)) == [path]


def test_a_slow_server_is_given_up_in_time(server: Answering) -> None:
    server.pause_s = 0.1
    with pytest.raises(Problem) as caught:
        fetched(needs_need(server), limit_s=0.3)
    assert "too slow" in caught.value.cause


def test_a_file_that_does_not_end_is_given_up(server: Answering, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extra_files, "MAX_FILE_BYTES", 2000)
    with pytest.raises(Problem) as caught:
        fetched(needs_need(server))
    assert "is larger than" in caught.value.cause


def test_without_a_network_it_says_how_to_bring_it_by_hand(server: Answering) -> None:
    wanted = needs_need(server).replace(url="http://127.0.0.1:9/a.tiktoken")
    with pytest.raises(Problem) as caught:
        fetched(wanted)
    ((_, path),) = extra_files.list_extra_paths((wanted,))
    told = (str(wanted.url), str(path), wanted.sha256, "export TIKTOKEN_ENCODINGS_BASE=FOLDER")
    assert [each for each in told if each not in caught.value.fix] == []
    path.write_bytes(CONTENT)
    assert fetched(wanted) == [path]


def test_a_missing_file_is_a_problem(server: Answering) -> None:
    with pytest.raises(Problem) as caught:
        fetched(needs_need(server).replace(url=f"{server.url}/none"))
    assert "answered 404" in caught.value.cause


def test_one_of_the_hub_takes_its_token_and_others_do_not(
    server: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = "c" * 40
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    server.contents[f"/org/name/resolve/{commit}/p.jinja"] = OTHER
    wanted = ExtraFile(
        kind="chat-template",
        what="x",
        name="p.jinja",
        sha256=storage.hash_bytes(OTHER),
        repository="org/name",
        commit=commit,
    )
    fetched(wanted)
    fetched(needs_need(server))
    assert [token for *_, token in server.asked] == ["Bearer secret", None]
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(Problem) as caught:
        fetched(wanted.replace(sha256=storage.hash_bytes(CONTENT)))
    assert caught.value.cause == "HF_HUB_OFFLINE is set"


def test_a_place_of_the_users_own_wins(server: Answering) -> None:
    model = Model(title="x", repository="a/b", needs=(needs_need(server),))
    assert extra_files.list_extras(model, {}) == model.needs
    assert extra_files.list_extras(model, {"TIKTOKEN_ENCODINGS_BASE": "/mine"}) == ()
    assert extra_files.list_extras(None, {}) == ()


@pytest.mark.parametrize("name", ["gpt-oss-20b", "gpt-oss-120b"])
def test_the_encodings_of_gpt_oss(name: str) -> None:
    """By the names that openai_harmony looks for."""
    found = config.load_models()[name].needs
    assert [each.name for each in found] == ["o200k_base.tiktoken", "cl100k_base.tiktoken"]
    assert {each.kind for each in found} == {"tiktoken"}
