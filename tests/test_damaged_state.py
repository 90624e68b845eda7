"""A damaged file in the state or cache is a Problem or left out, in whatever way it is damaged: a sample.

benchmarks/damaged_state.py runs every verb on every file.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from medley import process
from tests import damaged_state
from tests.damaged_state import CLOSED, CONTENTS, OF_FOLDERS, PLACES, PORT, Place

FILES = (
    f"state/serving/{PORT}.json",
    f"state/units/medley-serve-{damaged_state.OTHER_PORT}.state",
    *("state/ray.json", "state/ray-container", "state/device-history.jsonl"),
    "state/bench/20261122-134510-demo-ab12.json",
)
FOLDERS = ("state/serving", "state/units", "state/bench")
VERBS = ("status", "bench history")
WRITE = "from tests import damaged_state; damaged_state.write_all()"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A state and a cache with every file, and no damage; its server is another process."""
    place = Place(tmp_path_factory.mktemp("whole"))
    (place.root / "home").mkdir()
    subprocess.run((sys.executable, "-c", WRITE), env=place.environ, check=True, capture_output=True)
    folder, kept = place.root / "state" / "serving", place.root / "kept"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in place.environ.items():
            patch.setenv(name, value)
        with damaged_state.noted_servers({PORT: place.root / "run"}):
            shutil.copytree(folder, kept)
    shutil.copytree(kept, folder, dirs_exist_ok=True)
    with subprocess.Popen(("sleep", "600")) as server:
        damaged_state.name_process(folder / f"{PORT}.json", server.pid)
        yield place
        server.kill()


@pytest.fixture
def place(whole: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    (answers := whole.root / "answers").mkdir(exist_ok=True)
    monkeypatch.setattr(process, "ask_host", damaged_state.asking_once(answers))
    return Place(tmp_path / "copy")


@pytest.mark.parametrize("damage", [*CONTENTS, *PLACES, *CLOSED])
def test_damaged_files_end_no_verb_with_a_traceback(damage: str, whole: Place, place: Place) -> None:
    assert {verb: found for verb in VERBS if (found := faults(whole, place, FILES, damage, verb))} == {}


@pytest.mark.parametrize("damage", [*OF_FOLDERS, *CLOSED])
def test_damaged_folders_end_no_verb_with_a_traceback(damage: str, whole: Place, place: Place) -> None:
    assert {verb: found for verb in VERBS if (found := faults(whole, place, FOLDERS, damage, verb))} == {}


@pytest.mark.parametrize("verb", [*VERBS, "facts --transcript", "models rm demo --yes"])
def test_a_state_and_a_cache_that_are_closed_as_a_whole(verb: str, whole: Place, place: Place) -> None:
    """As where `sudo -E medley` came first, and made both."""
    assert not faults(whole, place, ("state", "cache"), "closed", verb)


@pytest.mark.parametrize("verb", ["check", "facts", "status"])
def test_tables_of_ones_own_that_are_closed_leave_medleys(verb: str, whole: Place, place: Place) -> None:
    (whole.root / "home" / ".config" / "medley" / "hosts").mkdir(parents=True, exist_ok=True)
    assert not faults(whole, place, ("home/.config/medley",), "closed", verb)
    (place.root / "home" / ".config" / "medley").chmod(0)
    end = damaged_state.run(verb.split(), place.environ, place.root / "home")
    (place.root / "home" / ".config" / "medley").chmod(0o700)
    assert end.status == 0
    assert ("hosts cannot be listed, and is left out: " in end.output) == (verb != "status")


def faults(whole: Place, place: Place, names: Iterable[str], damage: str, verb: str) -> str:
    """Damage these files of a copy, and return what is wrong with the end of a verb, or nothing."""
    if place.root.exists():
        shutil.rmtree(place.root)
    without = shutil.ignore_patterns("models", "answers", "kept")
    shutil.copytree(whole.root, place.root, symlinks=True, ignore=without)
    for name in names:
        damaged_state.damages(place.root / name)[damage](place.root / name)
    end = damaged_state.run(verb.split(), place.environ, place.root / "home")
    for name in names:
        if damage in CLOSED:
            (place.root / name).chmod(0o700)
    return f"{end.faults}: {end.output}" if end.faults else ""
