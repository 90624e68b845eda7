"""Files beside the weights, fetched from a real server that can fail in every way."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from medley import config, fingerprint, needs
from medley.problem import Problem
from medley.tables import Model, Need
from medley.watch import SILENT
from tests.answering import Answering, answering

CONTENT = bytes(range(256)) * 40
OTHER = b"another file"


@pytest.fixture(autouse=True)
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Answering]:
    monkeypatch.setenv("MEDLEY_CACHE", str(tmp_path / "cache"))
    for name in ("HF_HUB_OFFLINE", "HF_TOKEN", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with answering({"/a.tiktoken": CONTENT, "/b.tiktoken": OTHER}) as found:
        yield found


def need(server: Answering, name: str = "a.tiktoken", content: bytes = CONTENT) -> Need:
    return Need(
        kind="tiktoken",
        what="its tokens",
        name=name,
        sha256=fingerprint.of_bytes(content),
        url=f"{server.url}/{name}",
    )


def fetched(*found: Need, limit_s: float = 30) -> list[Path]:
    needs.fetch(found, SILENT, limit_s=limit_s)
    return [path for _, path in needs.paths(found)]


def test_a_file_is_fetched_once(server: Answering, tmp_path: Path) -> None:
    (path,) = fetched(need(server))
    assert path.read_bytes() == CONTENT
    assert path.is_relative_to(tmp_path / "cache" / "needs")
    assert fetched(need(server)) == [path]
    assert len(server.asked) == 1


def test_all_of_a_kind_lie_in_one_folder(server: Answering) -> None:
    """The engine is told one folder, and looks there for each by its name."""
    one, other = fetched(need(server), need(server, "b.tiktoken", OTHER))
    assert one.parent == other.parent
    assert sorted(path.name for path in one.parent.glob("[!.]*")) == ["a.tiktoken", "b.tiktoken"]


def test_a_file_that_was_spoiled_is_fetched_again(server: Answering) -> None:
    (path,) = fetched(need(server))
    path.write_bytes(CONTENT[1:])
    assert fetched(need(server)) == [path]
    assert path.read_bytes() == CONTENT


def test_a_wrong_file_is_refused_and_not_kept(server: Answering) -> None:
    server.contents["/a.tiktoken"] = OTHER
    with pytest.raises(Problem) as caught:
        fetched(need(server))
    assert fingerprint.of_bytes(OTHER) in caught.value.cause
    assert fingerprint.of_bytes(CONTENT) in caught.value.cause
    ((_, path),) = needs.paths((need(server),))
    assert [each.name for each in path.parent.iterdir()] == [".lock"]


def test_what_was_cut_off_goes_on_from_there(server: Answering) -> None:
    server.cut = 4000
    with pytest.raises(Problem, match="cannot be fetched"):
        fetched(need(server))
    (path,) = fetched(need(server))
    assert path.read_bytes() == CONTENT
    assert server.asked[-1][1] == "bytes=4000-"


def test_a_server_that_knows_no_ranges_gives_it_whole(server: Answering) -> None:
    server.cut, server.ranges = 4000, False
    with pytest.raises(Problem, match="cannot be fetched"):
        fetched(need(server))
    (path,) = fetched(need(server))
    assert path.read_bytes() == CONTENT


def test_a_part_of_another_file_is_begun_anew(server: Answering) -> None:
    ((_, path),) = needs.paths((need(server),))
    path.parent.mkdir(parents=True)
    path.with_name(".a.tiktoken.part").write_bytes(b"x" * 5000)
    assert fetched(need(server)) == [path]
    assert path.read_bytes() == CONTENT


def test_a_part_that_is_all_of_it_is_taken(server: Answering) -> None:
    ((_, path),) = needs.paths((need(server),))
    path.parent.mkdir(parents=True)
    path.with_name(".a.tiktoken.part").write_bytes(CONTENT)
    assert fetched(need(server)) == [path]


def test_a_slow_server_is_given_up_in_time(server: Answering) -> None:
    server.pause_s = 0.1
    with pytest.raises(Problem) as caught:
        fetched(need(server), limit_s=0.3)
    assert "too slow" in caught.value.cause


def test_a_file_that_does_not_end_is_given_up(server: Answering, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "LARGEST_BYTES", 2000)
    with pytest.raises(Problem) as caught:
        fetched(need(server))
    assert "is larger than" in caught.value.cause


def test_without_a_network_it_says_how_to_bring_it_by_hand(server: Answering) -> None:
    wanted = need(server).model_copy(update={"url": "http://127.0.0.1:9/a.tiktoken"})
    with pytest.raises(Problem) as caught:
        fetched(wanted)
    ((_, path),) = needs.paths((wanted,))
    told = (str(wanted.url), str(path), wanted.sha256, "export TIKTOKEN_ENCODINGS_BASE=FOLDER")
    assert [each for each in told if each not in caught.value.fix] == []
    path.write_bytes(CONTENT)
    assert fetched(wanted) == [path]


def test_a_missing_file_is_a_problem(server: Answering) -> None:
    with pytest.raises(Problem) as caught:
        fetched(need(server).model_copy(update={"url": f"{server.url}/none"}))
    assert "answered 404" in caught.value.cause


def test_one_of_the_hub_takes_its_token_and_others_do_not(
    server: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = "c" * 40
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    server.contents[f"/org/name/resolve/{commit}/p.jinja"] = OTHER
    wanted = Need(
        kind="chat-template",
        what="x",
        name="p.jinja",
        sha256=fingerprint.of_bytes(OTHER),
        repository="org/name",
        commit=commit,
    )
    fetched(wanted)
    fetched(need(server))
    assert [token for *_, token in server.asked] == ["Bearer secret", None]
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(Problem) as caught:
        fetched(wanted.model_copy(update={"sha256": fingerprint.of_bytes(CONTENT)}))
    assert caught.value.cause == "HF_HUB_OFFLINE is set"


def test_a_place_of_the_users_own_wins(server: Answering) -> None:
    model = Model(title="x", repository="a/b", needs=(need(server),))
    assert needs.wanted(model, {}) == model.needs
    assert needs.wanted(model, {"TIKTOKEN_ENCODINGS_BASE": "/mine"}) == ()
    assert needs.wanted(None, {}) == ()


@pytest.mark.parametrize("name", ["gpt-oss-20b", "gpt-oss-120b"])
def test_the_encodings_of_gpt_oss(name: str) -> None:
    """By the names that openai_harmony looks for."""
    found = config.models()[name].needs
    assert [each.name for each in found] == ["o200k_base.tiktoken", "cl100k_base.tiktoken"]
    assert {each.kind for each in found} == {"tiktoken"}
