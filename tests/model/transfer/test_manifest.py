import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from medley.model.transfer import Manifest, ManifestFile, ManifestLink, is_config_file, order_sources
from tests.problems import raises_problem


def test_each_takes_it_from_the_one_before() -> None:
    assert order_sources(("a", "b", "c", "d"), {"b"}) == {
        "a": ("b",),
        "c": ("a", "b"),
        "d": ("c", "a", "b"),
    }


def test_two_that_have_it_head_a_chain_each() -> None:
    assert order_sources(("a", "b", "c", "d", "e"), {"a", "b"}) == {
        "c": ("a", "b"),
        "d": ("b", "a"),
        "e": ("d", "b", "a"),
    }


def test_where_all_have_it_nobody_asks() -> None:
    assert order_sources(("a", "b"), {"a", "b"}) == {}


def test_where_none_has_it_is_a_problem() -> None:
    with raises_problem(cause=" a, b", fix="hf download ORG/NAME"):
        order_sources(("a", "b"), {"c"})


@given(some.sets(some.integers(0, 12), min_size=1), some.data())
def test_nobody_waits_for_itself(numbers: set[int], data: some.DataObject) -> None:
    """Each that lacks it is in one chain, all chains are as long, and no source asks those it serves."""
    hosts = [str(number) for number in sorted(numbers)]
    having = data.draw(some.sets(some.sampled_from(hosts), min_size=1))
    found = order_sources(hosts, having)
    assert set(found) == set(hosts) - having
    for host, sources in found.items():
        assert having < {*sources, host}
        for source in sources:
            assert host not in found.get(source, ())
    own = [len(sources) - len(having) for sources in found.values()]
    assert max(own, default=0) <= (len(found) + len(having) - 1) // len(having)


ONE, TWO = (hashlib.sha256(text).hexdigest() for text in (b"1", b"2"))
MODEL = Manifest(
    (
        ManifestFile("snapshots/c/readme.md", 5, (ONE,)),
        ManifestFile("blobs/b", 1500, (ONE, TWO)),
        ManifestFile("empty", 0, ()),
    ),
    (ManifestLink("snapshots/c/config.json", "../../blobs/b"),),
    piece_bytes=1024,
)


def test_it_comes_out_of_json_as_it_went_in() -> None:
    again = Manifest.parse(json.loads(json.dumps(MODEL.table)))
    assert again == MODEL
    assert again.digest == MODEL.digest


def test_its_pieces_are_its_bytes() -> None:
    assert [(piece.file.path, piece.offset, piece.size_bytes, piece.sha256) for piece in MODEL.pieces] == [
        ("snapshots/c/readme.md", 0, 5, ONE),
        ("blobs/b", 0, 1024, ONE),
        ("blobs/b", 1024, 476, TWO),
    ]
    assert MODEL.size_bytes == 1505 == sum(piece.size_bytes for piece in MODEL.pieces)
    assert str(MODEL.pieces[2]) == "piece 2 of 2 of blobs/b"


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(Manifest(MODEL.files[1:], MODEL.links, 1024), id="a file less"),
        pytest.param(Manifest(MODEL.files, (), 1024), id="a link less"),
        pytest.param(
            Manifest((*MODEL.files[1:], ManifestFile("snapshots/c/readme.md", 5, (TWO,))), MODEL.links, 1024),
            id="another hash",
        ),
    ],
)
def test_its_digest_is_over_all_of_it(other: Manifest) -> None:
    assert other.digest != MODEL.digest


@pytest.mark.parametrize(
    "path",
    [
        pytest.param("/etc/passwd", id="from the top"),
        pytest.param("../x", id="up"),
        pytest.param("a/../../x", id="down and up"),
        pytest.param("a//x", id="an empty part"),
        pytest.param("./x", id="a dot"),
        pytest.param("", id="nothing"),
        pytest.param("a/", id="a folder"),
        pytest.param("x\n", id="a new line"),
        pytest.param("x\0", id="a zero"),
        pytest.param("\x1b[2J", id="for the terminal"),
        pytest.param("x.medley-part", id="an unfinished file's"),
    ],
)
def test_paths_that_are_refused(path: str) -> None:
    with raises_problem(repr(path)):
        Manifest((ManifestFile(path, 0, ()),))
    with raises_problem(repr(path)):
        Manifest((), (ManifestLink(path, "x"),))


@pytest.mark.parametrize(
    "target",
    ["/etc", "..", "../..", "../../x", "", ".", "b/../../../x", "b/../x", "../a/./x", "../a//x", "x\n"],
)
def test_links_that_lead_out_are_refused(target: str) -> None:
    """Also those that come back after a name, which may be a link itself: its `..` is another."""
    with raises_problem("'a/b'", cause=repr(target)):
        Manifest((), (ManifestLink("a/b", target),))


@pytest.mark.parametrize("target", ["x", "../x", "../c/d/x", "c/x"])
def test_links_that_stay_inside(target: str) -> None:
    assert Manifest((), (ManifestLink("a/b", target),)).links[0].target == target


@pytest.mark.parametrize(
    ("files", "links", "named", "cause"),
    [
        pytest.param(["a", "a"], [], "a", "twice", id="twice"),
        pytest.param(["a"], [ManifestLink("a", "b")], "a", "twice", id="a file and a link"),
        pytest.param(["a", "a/b"], [], "a/b", "a ", id="through a file"),
        pytest.param(["a/b/c"], [ManifestLink("a", "d")], "a/b/c", "a ", id="through a link"),
    ],
)
def test_no_path_is_in_the_way_of_another(
    files: list[str], links: list[ManifestLink], named: str, cause: str
) -> None:
    with raises_problem(repr(named), cause=cause):
        Manifest(tuple(ManifestFile(path, 0, ()) for path in files), tuple(links))


@pytest.mark.parametrize(
    ("table", "cause"),
    [
        pytest.param({}, "piece_bytes, files", id="nothing"),
        pytest.param({"piece_bytes": 4096, "files": 3, "links": []}, "piece_bytes, files", id="no list"),
        pytest.param({"piece_bytes": 4096, "files": [["x", 5, "ab"]], "links": []}, "'ab'", id="half a hash"),
        pytest.param({"piece_bytes": 4096, "files": [["x", 5, "Z" * 64]], "links": []}, "'Z", id="no hash"),
        pytest.param(
            {"piece_bytes": 4096, "files": [["x", 5000, ONE]], "links": []}, "5000 bytes", id="a hash too few"
        ),
        pytest.param(
            {"piece_bytes": 4096, "files": [["x", 5, ONE + TWO]], "links": []}, "2 hashes", id="one too many"
        ),
        pytest.param(
            {"piece_bytes": 4096, "files": [["x", -5, ""]], "links": []}, "-5 bytes", id="less than nothing"
        ),
        pytest.param(
            {"piece_bytes": 4096, "files": [["x", "5", ONE]], "links": []}, "'5'", id="text for a size"
        ),
        pytest.param({"piece_bytes": 4096, "files": [], "links": [["x"]]}, "['x']", id="a link to nowhere"),
        pytest.param(
            {"piece_bytes": 1 << 40, "files": [], "links": []}, "67108864", id="pieces beyond memory"
        ),
        pytest.param({"piece_bytes": 0, "files": [], "links": []}, "67108864", id="pieces of nothing"),
    ],
)
def test_what_is_no_manifest_is_a_problem(table: dict[str, Any], cause: str) -> None:
    with raises_problem(cause=cause):
        Manifest.parse(table)


def test_by_which_file_an_engine_knows_a_model() -> None:
    assert [
        is_config_file(path) for path in ("config.json", "snapshots/c/config.json", "generation_config.json")
    ] == [
        *(True, True, False),
    ]
