import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from medley import storage
from tests.problems import raises_problem


def test_it_is_what_sha256sum_says(tmp_path: Path) -> None:
    """So that a user can see for himself what was pinned."""
    for name, text in (("b.py", "2\n"), ("a.py", "1\n")):
        (tmp_path / name).write_text(text)
    files = {name: storage.hash_file(tmp_path / name) for name in ("b.py", "a.py")}
    said = subprocess.run(
        "sha256sum a.py b.py | sha256sum",
        shell=True,
        check=True,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert storage.hash_checksums(files) == said.stdout.split()[0]


def test_another_name_or_content_is_another() -> None:
    one = storage.hash_bytes(b"1")
    assert storage.hash_checksums({"a": one}) != storage.hash_checksums({"b": one})
    assert storage.hash_checksums({"a": one}) != storage.hash_checksums({"a": storage.hash_bytes(b"2")})


HOLD = """
import sys
from pathlib import Path
from medley import storage
with storage.lock_file(Path(sys.argv[1])) as got:
    print(got, flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("environ", "cache", "state"),
    [
        pytest.param({}, "{home}/.cache/medley", "{home}/.local/state/medley", id="usual"),
        pytest.param({"XDG_CACHE_HOME": "/c", "XDG_STATE_HOME": "/s"}, "/c/medley", "/s/medley", id="XDG"),
        pytest.param(
            {"XDG_CACHE_HOME": "c", "XDG_STATE_HOME": ""},
            "{home}/.cache/medley",
            "{home}/.local/state/medley",
            id="XDG that is relative or empty",
        ),
        pytest.param(
            {"MEDLEY_CACHE": "/c", "MEDLEY_STATE": "/s", "XDG_CACHE_HOME": "/x"}, "/c", "/s", id="own"
        ),
    ],
)
def test_folders(environ: dict[str, str], cache: str, state: str) -> None:
    home = Path.home()
    assert (str(storage.find_cache_folder(environ)), str(storage.find_state_folder(environ))) == (
        cache.format(home=home),
        state.format(home=home),
    )


@pytest.mark.parametrize(("secret", "mode"), [(False, 0o644), (True, 0o600)], ids=["open", "secret"])
def test_write(tmp_path: Path, mode: int, *, secret: bool) -> None:
    path = tmp_path / "new" / "token"
    storage.write_text(path, "one", secret=secret)
    storage.write_text(path, "two", secret=secret)
    assert path.read_text() == "two"
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert [each.name for each in path.parent.iterdir()] == ["token"]


def test_a_write_that_fails_leaves_what_was(tmp_path: Path) -> None:
    path = tmp_path / "file"
    storage.write_text(path, "before")
    with pytest.raises(UnicodeEncodeError):
        storage.write_text(path, "after \ud800")
    assert path.read_text() == "before"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    file = tmp_path / "file"
    with raises_problem(
        str(file / "below"), cause=f"{file} is a file, not a folder", fix=f"mv {file} {file}.old"
    ):
        storage.make_folder(file / "below")


def test_the_fix_names_the_variable_of_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    for variable in ("MEDLEY_STATE", "MEDLEY_CACHE"):
        with monkeypatch.context() as patch:
            patch.setenv(variable, str(tmp_path / "file" / "medley"))
            place = storage.find_state_folder() if variable == "MEDLEY_STATE" else storage.find_cache_folder()
            with raises_problem(str(place / "units"), fix=f"export {variable}=/path"):
                storage.make_folder(place / "units")


def hold(path: Path) -> "subprocess.Popen[str]":
    env = os.environ | {"PYTHONPATH": str(Path(storage.__file__).parents[1])}
    command = [sys.executable, "-c", HOLD, str(path)]
    process = subprocess.Popen(command, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout
    assert process.stdout.readline() == "True\n"
    return process


def test_a_lock_is_held_once_and_ends_with_its_holder(tmp_path: Path) -> None:
    path = tmp_path / "locks" / "one"
    process = hold(path)
    with storage.lock_file(path) as got:
        assert not got
    process.kill()
    process.communicate()
    with storage.lock_file(path) as got:
        assert got


def test_a_lock_is_waited_for_even_when_its_file_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "one"
    process = hold(path)
    waits = threading.Event()
    got = threading.Event()

    def wait() -> None:
        with storage.lock_file(path, on_wait=waits.set):
            got.set()

    thread = threading.Thread(target=wait)
    thread.start()
    assert waits.wait(10)
    assert not got.is_set()
    path.unlink()
    process.communicate("")
    thread.join(10)
    assert got.is_set()
    assert path.exists(), "it locked the file of that name, not the one that was removed"


def test_sizes(tmp_path: Path) -> None:
    assert storage.measure_free_bytes(tmp_path / "not" / "there") > 0
    (tmp_path / "a").write_bytes(b"x" * 100_000)
    (tmp_path / "b").hardlink_to(tmp_path / "a")
    assert 100_000 <= storage.measure_disk_usage(tmp_path) < 150_000


def test_remove(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "file").touch()
    storage.remove_folder(folder)
    storage.remove_folder(folder)
    assert not folder.exists()


@pytest.mark.parametrize("make", [Path.touch, os.mkfifo], ids=["a file", "a pipe"])
def test_remove_takes_what_is_in_a_folders_place(make: Callable[[Path], None], tmp_path: Path) -> None:
    """Python 3.11's rmtree opened a pipe, and waited for a writer."""
    make(tmp_path / "folder")
    storage.remove_folder(tmp_path / "folder")
    assert list(tmp_path.iterdir()) == []


def test_a_link_is_made_once_and_replaced_at_once(tmp_path: Path) -> None:
    path = tmp_path / "new" / "link"
    storage.replace_link(path, "/a")
    first = path.lstat().st_ino
    storage.replace_link(path, "/a")
    assert path.lstat().st_ino == first
    (path.parent / f".link.{os.getpid()}").symlink_to("/left/by/one/that/was/killed")
    storage.replace_link(path, "/b")
    assert str(path.readlink()) == "/b"
    path.unlink()
    path.write_text("a file in its place")
    storage.replace_link(path, "/c")
    assert str(path.readlink()) == "/c"
    assert [each.name for each in path.parent.iterdir()] == ["link"]


def test_a_log_keeps_lines_as_they_come_and_the_log_before_it(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "serve.log"
    for text in ("old", "new"):
        with storage.open_log(path) as keep:
            keep(text)
            when, _, rest = path.read_text().partition(" ")
            assert rest == f"{text}\n"
            assert time.strptime(when, "%Y-%m-%dT%H:%M:%S")
    assert path.with_name("serve.log.1").read_text().endswith(" old\n")


def test_a_disk_that_is_full_costs_lines_and_not_the_server(tmp_path: Path) -> None:
    """/dev/full says what a full disk does; a log's writer once ended the server with a traceback."""
    (tmp_path / "logs").mkdir()
    log = tmp_path / "logs" / "serve-8000.log"
    with storage.open_log(log) as keep:
        keep("first")
        os.dup2(os.open("/dev/full", os.O_WRONLY), handle_of(log))
        keep("lost")
    assert log.read_text().endswith(" first\n")


def handle_of(path: Path) -> int:
    links = Path("/proc/self/fd")
    return next(int(each.name) for each in links.iterdir() if each.exists() and each.samefile(path))


def test_sockets_are_in_the_runtime_folder_of_their_owner(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    runtime = tmp_path_factory.mktemp("r")
    tmp_path = tmp_path_factory.mktemp("s")
    environ = {"MEDLEY_STATE": str(tmp_path / "state"), "XDG_RUNTIME_DIR": str(runtime)}
    assert storage.find_socket_folder(environ).parent == runtime
    other = {**environ, "MEDLEY_STATE": str(tmp_path / "other")}
    assert storage.find_socket_folder(other) != storage.find_socket_folder(environ), (
        "two states may use the same port"
    )
    missing = {**environ, "XDG_RUNTIME_DIR": str(tmp_path / "missing")}
    assert storage.find_socket_folder(missing) == tmp_path / "state" / "run"


def test_a_long_path_makes_way_for_one_that_a_socket_can_have(tmp_path: Path) -> None:
    """A socket's path has 107 bytes at most."""
    found = storage.find_socket_folder({"MEDLEY_STATE": str(tmp_path / ("long" * 20))})
    assert len(os.fsencode(found / "65535" / "control.sock")) < 108


def test_the_state_folder_is_its_owners_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path / "state"))
    (tmp_path / "state").mkdir(mode=0o755)
    storage.write_text(tmp_path / "state" / "logs" / "a.log", "a command with a webhook\n")
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    storage.write_text(tmp_path / "other" / "a", "b")
    assert (tmp_path / "other").stat().st_mode & 0o077


def test_the_folder_that_the_state_links_to_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path / "state"))
    (tmp_path / "disk").mkdir(mode=0o755)
    (tmp_path / "between").symlink_to("disk")
    (tmp_path / "state").symlink_to(tmp_path / "between")
    storage.write_text(tmp_path / "state" / "logs" / "a.log", "a command with a webhook\n")
    assert (tmp_path / "disk").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "disk/logs/a.log").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
@pytest.mark.parametrize("foreign", ["disk", "state"])
def test_a_state_that_links_to_another_users_folder_is_refused(
    foreign: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path / "state"))
    (tmp_path / "disk").mkdir(mode=0o755)
    (tmp_path / "state").symlink_to(tmp_path / "disk")
    os.chown(tmp_path / foreign, 65534, -1, follow_symlinks=False)
    with raises_problem(
        f"{tmp_path / 'state'} is not yours",
        cause=str(tmp_path / "disk"),
        fix="export MEDLEY_STATE=/path/of/your/own",
    ):
        storage.write_text(tmp_path / "state" / "token", "hidden", secret=True)
    assert (tmp_path / "disk").stat().st_mode & 0o777 == 0o755
    assert not (tmp_path / "disk" / "token").exists()


def test_a_private_folder_is_its_owners_alone(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir(mode=0o777)
    assert storage.make_private_folder(folder).stat().st_mode & 0o777 == 0o700
    (tmp_path / "link").symlink_to(folder)
    with raises_problem(f"{tmp_path / 'link'} is not yours", fix="export MEDLEY_STATE=/path/of/your/own"):
        storage.make_private_folder(tmp_path / "link")
