"""A driver's libraries in made-up trees of each system: exactly those, or the Problem, and never a libc."""

from itertools import chain, product
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medley import config
from medley.environment import driver
from medley.environment.driver import find_libraries, find_problem
from medley.host.driver_libraries import DRIVER_LIBRARIES, OPTIONAL_LIBRARIES, DriverLibraries
from medley.host_schema import Driver
from tests.environment.driver_trees import Tree, begin, trees

TREES = trees()
HOSTS = config.load_hosts()
LIBC = (
    "libc",
    "libm",
    "libdl",
    "libpthread",
    "librt",
    "libstdc++",
    "libgcc_s",
    "ld-linux",
    "libz",
    "libresolv",
)
named = pytest.mark.parametrize("name", TREES)


def kind(tree: Tree) -> Driver:
    return HOSTS[tree.one("kind") or ""].driver


def found(tree: Tree) -> driver.Libraries:
    return find_libraries(kind(tree), tree.one("machine") or "", tree.look)


def is_libc(path: str) -> bool:
    return PurePosixPath(path).name.partition(".so")[0] in (*LIBC, "ld-linux-aarch64")


def pairs(tree: Tree, word: str) -> list[tuple[str, str]]:
    return [(name, path) for name, path in (rest.split() for rest in tree.all(word))]


@named
def test_each_library_is_the_drivers(name: str) -> None:
    tree = TREES[name]
    assert list(found(tree).paths.items()) == pairs(tree, "=")
    places = DriverLibraries(
        kind(tree).directories, kind(tree).shared_directories, tree.one("machine") or "", tree.look
    )
    assert [(each, places.find(each)) for each, _ in pairs(tree, "+")] == pairs(tree, "+")


@named
def test_its_version_is_that_of_its_files(name: str) -> None:
    tree = TREES[name]
    if name != "half-upgraded":
        assert found(tree).version == tree.one("version")


@named
def test_what_is_wrong_is_said(name: str, tmp_path: Path) -> None:
    tree = TREES[name]
    tree.make(tmp_path)
    problem = find_problem(found(tree), HOSTS[tree.one("kind") or ""], driver.detect_system(tmp_path))
    assert (problem.what if problem else None) == tree.one("problem")
    if problem:
        assert (tree.one("cause") or "") in problem.cause
        assert (tree.one("fix") or "") in problem.fix


@named
def test_the_same_is_found_on_a_disk(name: str, tmp_path: Path) -> None:
    """The tree's own way of following links is the system's."""
    tree, root = TREES[name], str(tmp_path.resolve())
    tree.make(tmp_path)
    kept = kind(tree)
    moved = Driver(
        directories=tuple(root + each for each in kept.directories),
        shared_directories=tuple(root + each for each in kept.shared_directories),
    )
    there = find_libraries(moved, tree.one("machine") or "")
    assert {each: path.removeprefix(root) for each, path in there.paths.items()} == found(tree).paths
    assert there.versions == found(tree).versions
    assert tuple(each.replace(root, "") for each in there.refusals) == found(tree).refusals


@named
def test_no_tree_gives_a_libc(name: str) -> None:
    tree = TREES[name]
    places = DriverLibraries(
        kind(tree).directories, kind(tree).shared_directories, tree.one("machine") or "", tree.look
    )
    every = {PurePosixPath(path).name for path in (*tree.files, *tree.links)} | {
        "libc.so.6",
        "libstdc++.so.6",
    }
    given_out = [seen for each in every if (path := places.find(each)) and (seen := tree.look(path))]
    assert not [real for real, _ in given_out if is_libc(real)]
    assert not [each for each in every if is_libc(each) and places.find(each)]


def test_every_folder_that_a_table_names_is_in_some_tree() -> None:
    """So that no kind of host is searched where nothing was ever tried."""
    tables = {folder for host in HOSTS.values() for folder in chain(*host.driver.to_table().values())}
    held = ((*tree.files, *tree.links, *(path for _, path in pairs(tree, "="))) for tree in TREES.values())
    tried = {str(PurePosixPath(path).parent) for path in chain(*held)}
    assert tables - tried == set()


FOLDERS = ("/own", "/shared", "/elsewhere", "/elsewhere/stubs")
FILES = (
    *DRIVER_LIBRARIES[:2],
    "libcuda.so.580.95.05",
    *OPTIONAL_LIBRARIES[:1],
    "libnvos.so",
    *(f"{each}.so.6" for each in LIBC),
)
paths = st.sampled_from([f"{folder}/{name}" for folder, name in product(FOLDERS, FILES)])


@given(
    files=st.dictionaries(paths, st.sampled_from(("x86_64", "aarch64", "i386", "empty", "text"))),
    links=st.dictionaries(paths, paths),
)
def test_whatever_a_host_holds_what_is_taken_is_a_library_of_that_name(
    files: dict[str, str], links: dict[str, str]
) -> None:
    tree = Tree({path: begin(sort) for path, sort in files.items() if path not in links}, links, ())
    places = DriverLibraries(("/own",), ("/shared",), "x86_64", tree.look)
    for name in FILES:
        path = places.find(name)
        if path:
            real, start = tree.look(path) or ("", b"")
            assert start == begin("x86_64")
            assert PurePosixPath(real).name.partition(".so")[0] == name.partition(".so")[0]
            assert is_libc(name) is is_libc(real) is False
            assert "stubs" not in real


@pytest.mark.parametrize(
    ("version", "cuda", "kind_name", "says"),
    [
        pytest.param("580.65.06", None, "rtx", None, id="the first of CUDA 13"),
        pytest.param("575.57.08", None, "rtx", "it is 575.57.08, CUDA 13 needs 580", id="the last before it"),
        pytest.param("540.4.0", None, "orin", None, id="JetPack 6's own, for CUDA 12.6"),
        pytest.param("510.47.03", None, "orin", "CUDA 12 needs 525", id="older than CUDA 12"),
        pytest.param("700.1", None, "rtx", None, id="a newer one"),
        pytest.param(
            "570.1", "12.8", "spark", "driver 570.1 runs CUDA 12.8 at most", id="as nvidia-smi says"
        ),
        pytest.param("570.1", "13.0", "spark", None, id="what it says counts, not its number"),
        pytest.param(None, None, "rtx", None, id="nothing is known"),
        pytest.param("450.1", None, "cpu", None, id="a host without a toolkit"),
    ],
)
def test_too_old(version: str | None, cuda: str | None, kind_name: str, says: str | None) -> None:
    problem = driver.find_version_problem("b", version, cuda, HOSTS[kind_name])
    assert (problem is None) == (says is None)
    assert not problem or (says or "") in problem.cause
