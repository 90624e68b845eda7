"""A file that cannot be used is a Problem with its owner and the fix; what is optional is left out."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from medley import storage, unusable_file
from medley.unusable_file import UnusableFile, skip_unusable_file
from tests.problems import assert_problem, raises_problem

ANOTHER = "export MEDLEY_STATE=/path"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path / "state"))
    (tmp_path / "state").mkdir()
    return tmp_path / "state"


def fill_pipe(path: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("make", "cause", "fix"),
    [
        pytest.param(Path.mkdir, "it is a folder, not a file", "mv {0} {0}.old", id="a folder"),
        pytest.param(
            lambda path: path.symlink_to("/nowhere"),
            "a link to /nowhere, which leads",
            "rm {0}",
            id="dangling",
        ),
        pytest.param(lambda path: path.symlink_to(path.name), "which leads nowhere", "rm {0}", id="loop"),
        pytest.param(fill_pipe, "a pipe, a socket or a device", "rm {0}", id="a pipe, which would block"),
        pytest.param(
            lambda path: path.write_bytes(b"\xff"), "it is not text: byte 0", "mv {0} {0}.damaged", id="bytes"
        ),
    ],
)
def test_what_is_in_a_files_place(make: Callable[[Path], object], cause: str, fix: str, state: Path) -> None:
    file = state / "ray.json"
    make(file)
    with raises_problem(f"{file} cannot be read", cause=cause, fix=(fix.format(file), ANOTHER)):
        storage.read_text(file)


def test_what_is_not_there_is_none_and_empty(state: Path) -> None:
    assert storage.read_bytes(state / "a") is None
    assert storage.read_end(state / "a" / "b", 10) == b""
    assert storage.list_folder(state / "a") == []
    assert storage.read_modified_s(state / "a") == 0
    assert not storage.exists(state / "a" / "b")
    storage.remove_file(state / "a")


def test_a_file_in_the_place_of_a_folder(state: Path) -> None:
    folder = state / "units"
    folder.touch()
    assert storage.read_bytes(folder / "a") is None
    for use in (storage.list_folder, storage.make_folder):
        with raises_problem(
            str(folder), cause="it is a file, not a folder", fix=(f"mv {folder} {folder}.old", ANOTHER)
        ):
            use(folder)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_a_file_of_ones_own_that_is_closed(state: Path) -> None:
    (file := state / "ray.json").touch(0)
    with raises_problem(
        f"{file} cannot be read", cause="and has mode 0", fix=(f"chmod u+rwX {file}", ANOTHER)
    ):
        storage.read_text(file)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can leave a file of root's behind")
@pytest.mark.parametrize("closed", ["units", "units/a.json"], ids=["a folder", "a file"])
@pytest.mark.parametrize("use", [storage.read_text, storage.list_folder, storage.remove_file, storage.exists])
def test_files_of_root_in_ones_own_state(
    closed: str, use: Callable[[Path], object], state: Path, tmp_path: Path
) -> None:
    """As after `sudo -E medley`: the fix takes all of them back."""
    file = state / "units" / "a.json"
    storage.write_text(file, "{}")
    for path in (state, file.parent, file):
        os.chown(path, 65_534, 65_534)
    os.chown(state / closed, 0, 0)
    (state / closed).chmod(0o600 if closed.endswith("json") else 0o700)
    for up in (tmp_path, *tmp_path.parents[:-2]):
        up.chmod(up.stat().st_mode | 0o111)
    allowed = {storage.remove_file, storage.exists} if closed.endswith("json") else set()
    problem = problem_as(65_534, lambda: use(file.parent if use == storage.list_folder else file))
    if use in allowed or (use == storage.list_folder and closed.endswith("json")):
        assert problem is None  # the folder is one's own
        return
    assert problem
    assert_problem(
        problem,
        "cannot be",
        cause=("root (uid 0)", "uid 65534"),
        fix=(f"sudo chown -R 65534 {state}", ANOTHER),
    )


def problem_as(uid: int, use: Callable[[], object]) -> UnusableFile | None:
    """Do this in a fork that has become this user; return its Problem."""
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
        with os.fdopen(theirs, "w") as out:
            try:
                use()
            except UnusableFile as problem:
                out.write(f"{problem.what}\0{problem.cause}\0{problem.fix}")
        os._exit(0)
    os.close(theirs)
    os.waitpid(child, 0)
    with os.fdopen(ours) as said:
        what, _, rest = said.read().partition("\0")
    cause, _, fix = rest.partition("\0")
    return UnusableFile(what, cause=cause, fix=fix) if what else None


@pytest.mark.parametrize(
    ("number", "cause", "fix"),
    [
        pytest.param(errno.ENOSPC, "MiB are free", ("medley env clean; df -h {}", ANOTHER), id="full"),
        pytest.param(errno.EDQUOT, "MiB are free", ("medley env clean; df -h {}", ANOTHER), id="quota"),
        pytest.param(errno.EROFS, "Read-only file system", ANOTHER, id="read-only"),
        pytest.param(errno.EIO, "Input/output error", ANOTHER, id="a broken disk"),
    ],
)
def test_disks(number: int, cause: str, fix: str | tuple[str, ...], state: Path) -> None:
    error = OSError(number, os.strerror(number))
    known = [fix] if isinstance(fix, str) else fix
    assert_problem(
        storage.build_file_problem(state / "a", error, "written"),
        cause=cause,
        fix=[each.format(state) for each in known],
    )


def test_what_is_optional_is_left_out_with_one_line(state: Path) -> None:
    said: list[str] = []
    unusable_file.set_reporter(said.append)
    (state / "a").mkdir()
    assert not unusable_file.has_skipped_file()
    for _ in range(2):
        with skip_unusable_file():
            storage.read_text(state / "a")
    (line,) = said
    assert line.startswith(f"{state / 'a'} cannot be read, and is left out: it is a folder")
    assert line.endswith(f"; fix: mv {state / 'a'} {state / 'a'}.old")
    assert unusable_file.has_skipped_file()
    unusable_file.set_reporter(said.append)
    assert not unusable_file.has_skipped_file(), "another verb of the same process"


def test_a_log_that_cannot_be_written_costs_its_lines(state: Path) -> None:
    (state / "logs").touch()
    with storage.open_log(state / "logs" / "serve-8000.log") as keep:
        keep("lost")


@pytest.fixture(autouse=True)
def no_report() -> Iterator[None]:
    yield
    unusable_file.set_reporter(lambda _: None)
