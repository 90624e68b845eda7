"""Events are kept in order, bounded, and survive a damaged line."""

import json
import sys
import threading
from pathlib import Path

import pytest

from medley import process, storage
from medley.cluster import events
from medley.command import Command
from tests.problems import raises_problem


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(events, "_command_started_s", {})


def test_events_are_kept_in_order_and_a_damaged_line_costs_itself_alone() -> None:
    events.record_event("start", "demo on port 8000", "medley serve demo")
    with events.get_events_file().open("a", encoding="utf-8") as kept:
        kept.write('{"at_s": 1, "kind"\n')
    events.record_event("fault", "demo on port 8000", "the engine is stuck:\n no token for 120 s")
    found = list(events.read_events())
    assert [(each.kind, each.text) for each in found] == [
        ("start", "medley serve demo"),
        ("fault", "the engine is stuck: no token for 120 s"),
    ]


def test_the_file_stays_bounded_and_keeps_the_newest() -> None:
    for number in range(4000):
        events.get_events_file().parent.mkdir(parents=True, exist_ok=True)
        with events.get_events_file().open("a", encoding="utf-8") as kept:
            kept.write(f'{{"at_s": {number}, "kind": "end", "subject": "s", "text": "{"x" * 200}"}}\n')
    events.record_event("end", "s", "the last")
    assert events.get_events_file().stat().st_size < 600_000
    assert list(events.read_events())[-1].text == "the last"


def told(path: Path, count: int = 1) -> list[str]:
    """What the command wrote, once it has ended."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join(40)
    lines = path.read_text().splitlines() if path.exists() else []
    assert len(lines) == count, lines
    return lines


def test_a_fault_and_a_recovery_run_the_command_and_other_events_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    said = '"$MEDLEY_EVENT|$MEDLEY_EVENT_SUBJECT|$MEDLEY_EVENT_TEXT|$(cat)"'
    monkeypatch.setenv(events.COMMAND_VARIABLE, f"echo {said} >>{out}")
    for kind in ("start", "ready", "restart", "end", "upgrade"):
        events.record_event(kind, "a on port 1", "x")
    told(out, 0)
    events.record_event("fault", "a on port 1", "no token for 120 s: `id` $HOME '\"")
    events.record_event("fault", "a on port 1", "again within ten seconds")
    (line,) = told(out)
    kind, subject, text, whole = line.split("|")
    assert (kind, subject, text) == ("fault", "a on port 1", "no token for 120 s: `id` $HOME '\"")
    assert json.loads(whole)["text"] == text
    events.record_event("recovery", "a on port 1", "answers again")
    events.record_event("fault", "b on port 2", "another server")
    told(out, 3)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("HF_TOKEN=hf_tulipsTulips0123 on spark-1", "HF_TOKEN=HIDDEN on spark-1"),
        (
            "Qwen/Qwen3-8B at spark-2.lan: http://ann:tulips@10.0.0.2/v1",
            "Qwen/Qwen3-8B at spark-2.lan: http://HIDDEN@10.0.0.2/v1",
        ),
        (
            "Authorization: Bearer tulips1\nCUDA error on spark-1",
            "Authorization: HIDDEN CUDA error on spark-1",
        ),
        (
            "a request failed: prompt: 'about tulips'\nNCCL error",
            "a request failed: prompt: HIDDEN NCCL error",
        ),
        ("the peer has the token plain-tulips-of-state", "the peer has the token HIDDEN"),
        (f"{'x' * 3990} sk-tulips0123456789abcdef", f"{'x' * 3990} HIDDEN"),
        (
            "no token for 120 s; medley serve demo --restart",
            "no token for 120 s; medley serve demo --restart",
        ),
    ],
    ids=["key", "login", "header", "prompt", "told", "end", "plain"],
)
def test_the_command_gets_no_secret(
    text: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    storage.write_text(storage.find_state_folder() / "token", "plain-tulips-of-state", secret=True)
    monkeypatch.setenv(
        events.COMMAND_VARIABLE, f'echo "$MEDLEY_EVENT_SUBJECT|$MEDLEY_EVENT_TEXT|$(cat)" >>{out}'
    )
    events.record_event("fault", "demo of sk-tulips0123456789abcdef", text)
    subject, told_text, whole = told(out)[0].split("|")
    assert (subject, told_text) == ("demo of HIDDEN", shown)
    assert "tulips" not in whole
    assert json.loads(whole)["text"] == shown


def test_a_command_that_fails_is_one_event_and_breaks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = tmp_path / "noted"
    waits = f"while ! test -e {noted}; do sleep 0.05; done"
    monkeypatch.setenv(events.COMMAND_VARIABLE, f"{waits}; echo no such topic >&2; exit 7")
    for number in range(3):
        events.record_event("fault", f"c{number} on port 3", "x")
    noted.touch()  # so no command ends before all are noted
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join(40)
    found = [each.text for each in events.read_events() if "--on-event" in each.subject]
    assert found == ["it ended with 7: no such topic"]


@pytest.mark.parametrize(
    "text",
    ["a\0b", "half \ud800 of a pair", "x" * 300_000],
    ids=["NUL", "a surrogate", "larger than execve takes"],
)
def test_odd_words_lose_no_notice(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    monkeypatch.setenv(events.COMMAND_VARIABLE, f'echo "$MEDLEY_EVENT" >>{out}')
    events.record_event("fault", text, text)
    assert told(out) == ["fault"]
    assert [each.kind for each in events.read_events()] == ["fault"]


def test_damaged_counts_end_nothing() -> None:
    events.record_event("start", "a", "b")
    events.get_events_file().with_name("events.counts").write_text('{"start": "many"}')
    events.record_event("start", "a", "b")
    assert events.read_counts()["start"] == 1


def test_a_fault_that_ends_the_process_is_reported_first(tmp_path: Path) -> None:
    out = tmp_path / "out"
    program = "from medley.cluster import events; events.record_event('fault', 'd on port 4', 'x')"
    command = Command(
        (sys.executable, "-c", program),
        {"MEDLEY_STATE": str(tmp_path), events.COMMAND_VARIABLE: f"sleep 0.5; echo told >{out}"},
    )
    assert process.run(command, limit_s=30).status == 0
    assert out.read_text() == "told\n"


def test_counts_only_grow_also_where_events_are_forgotten() -> None:
    events.record_event("fault", "e on port 5", "x")
    events.get_events_file().write_text("")
    events.record_event("fault", "e on port 5", "y")
    assert events.read_counts()["fault"] == 2
    assert events.read_counts()["start"] == 0


def test_the_last_are_followed_by_new_ones() -> None:
    for number in range(5):
        events.record_event("end", "f", str(number))
    followed = events.follow_events(2, follow=True)
    assert [next(followed).text for _ in range(2)] == ["3", "4"]
    threading.Timer(0.3, events.record_event, ("start", "f", "5")).start()
    assert next(followed).text == "5"


def test_the_text_of_a_command_is_kept_in_a_file_of_its_owner(tmp_path: Path) -> None:
    """A webhook's address is in no variable, so that it is in no unit, log or command line."""
    text = f"echo $MEDLEY_EVENT >>{tmp_path}/out"
    file = events.write_command_file(text)
    assert file.stat().st_mode & 0o777 == 0o600
    assert text not in str(file)
    assert file == events.write_command_file(text), "a server that restarts makes no second one"


def test_a_command_in_a_file_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notify").write_text(f'echo "$MEDLEY_EVENT of $MEDLEY_EVENT_SUBJECT" >>{tmp_path}/out\n')
    Path("notify").chmod(0o600)
    file = events.write_command_file("./notify")
    assert file == tmp_path / "notify"
    monkeypatch.chdir("/")
    monkeypatch.setenv(events.COMMAND_VARIABLE, str(file))
    events.record_event("fault", "a on port 1", "x")
    assert told(tmp_path / "out") == ["fault of a on port 1"]
    program = tmp_path / "program"
    program.write_text(f"#!{sys.executable}\nopen('{tmp_path}/out', 'a').write('by Python\\n')\n")
    program.chmod(0o700)
    monkeypatch.setenv(events.COMMAND_VARIABLE, str(events.write_command_file(str(program))))
    events.record_event("recovery", "a on port 1", "x")
    assert told(tmp_path / "out", 2)[-1] == "by Python"


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a module of a stranger that leaves `ran`."""
    folder = tmp_path / "stranger"
    folder.mkdir()
    (folder / "json.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    monkeypatch.chdir(folder)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    return folder


NOTIFY = "import json, os; print(json.dumps(os.environ['MEDLEY_EVENT']))"


@pytest.mark.parametrize("form", ["file", "file here", "text", "text of a variable"])
def test_the_command_imports_nothing_from_the_folder_where_it_is_typed(
    form: str, stranger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, file = f'{sys.executable} -c "{NOTIFY}" >>{tmp_path}/out', tmp_path / "own=1" / "notify"
    if form == "file here":
        file = stranger / "notify"
    if form.startswith("file"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        word = "./notify" if form == "file here" else str(file)
    else:
        word = text
    command = word if form == "text of a variable" else str(events.write_command_file(word))
    monkeypatch.setenv(events.COMMAND_VARIABLE, command)
    events.record_event("fault", "a on port 1", "x")
    assert told(tmp_path / "out") == ['"fault"']
    assert not (tmp_path / "ran").exists()


def test_relative_paths_of_a_command_are_those_of_the_folder_where_it_is_typed(
    stranger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (stranger / "notify.py").write_text(NOTIFY)
    with raises_problem("notify.py in the command", fix=str(stranger / "notify.py")):
        events.write_command_file(f"{sys.executable} notify.py")
    text = f"{sys.executable} ./notify.py >>../out; echo $MEDLEY_EVENT_TEXT >>../out"
    monkeypatch.setenv(events.COMMAND_VARIABLE, str(events.write_command_file(text)))
    monkeypatch.chdir("/")
    events.record_event("fault", "a on port 1", "x")
    assert told(tmp_path / "out", 2) == ['"fault"', "x"]
    assert not (tmp_path / "ran").exists()


def test_a_file_that_others_can_write_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notify, out = tmp_path / "notify", tmp_path / "out"
    notify.write_text(f"touch {out}\n")
    notify.chmod(0o666)
    with raises_problem(str(notify), fix=f"chmod go-w {notify} {tmp_path}"):
        events.write_command_file(str(notify))
    # Nor where it has become so since the server's start.
    monkeypatch.setenv(events.COMMAND_VARIABLE, str(notify))
    events.record_event("fault", "a on port 1", "x")
    told(out, 0)
    assert [each.subject for each in events.read_events()][-1] == "command of --on-event"


def test_a_file_that_is_missing_is_a_problem_at_once(tmp_path: Path) -> None:
    with raises_problem(f"{tmp_path}/none"):
        events.write_command_file(f"{tmp_path}/none")
