import subprocess
from pathlib import Path

import pytest

from medley.cluster import ssh
from tests.problems import assert_problem

ODD = ["two words", "'", '"', "$(touch /tmp/never)", "`x`", "a;b", "new\nline", "ä", "\\", "*", "!x", ""]


@pytest.mark.parametrize("word", ODD, ids=[*map(ascii, ODD)])
def test_words_reach_the_program_as_they_are(tmp_path: Path, word: str) -> None:
    """ssh hands its last argument to the login shell: so does this."""
    program = tmp_path / "odd $name"
    program.write_text('#!/bin/sh\nprintf "<%s>" "$@"\n')
    program.chmod(0o755)
    text = ssh.build_script([("no-such-program",), (str(program), word)], ["agent", word])
    said = subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=True)
    assert said.stdout == f"<{word}><agent><{word}>"


def test_without_a_program_it_says_so() -> None:
    text = ssh.build_script([("no-such-program", "it's")], ["agent"])
    said = subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=False)
    assert said.returncode == 127
    assert said.stderr.startswith(ssh.MISSING_MESSAGE)
    assert ssh.connection_problem("a", "a", said.stderr.splitlines(), 127).fix.startswith("install it there")


def test_the_command_asks_nobody_and_trusts_no_unknown_key() -> None:
    argv = ssh.build_ssh_command("me@host", [("medley",)], ["agent"]).argv
    assert argv[:2] == ("ssh", "-T")
    assert argv[-3:-1] == ("--", "me@host")
    for option in ("BatchMode=yes", "StrictHostKeyChecking=yes", "ForwardAgent=no"):
        assert option in argv


@pytest.mark.parametrize(
    ("said", "cause", "fix"),
    [
        pytest.param(
            "ssh: connect to host spark-2 port 22: Connection refused",
            "Connection refused", "sudo systemctl enable --now ssh", id="refused",
        ),
        pytest.param(
            "ssh: connect to host spark-2 port 22: No route to host",
            "No route to host", "ping 10.0.0.2", id="no way",
        ),
        pytest.param(
            "Connection timed out during banner exchange",
            "timed out", "--without spark-2", id="hangs",
        ),
        pytest.param(
            "me@10.0.0.2: Permission denied (publickey).",
            "Permission denied (publickey).", "ssh-copy-id me@10.0.0.2", id="no key",
        ),
        pytest.param(
            "Host key verification failed.",
            "Host key verification failed.", "ssh me@10.0.0.2 true", id="unknown",
        ),
        pytest.param(
            "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.",
            "Host key verification failed.", "ssh-keygen -R 10.0.0.2", id="changed",
        ),
        pytest.param(
            "ssh: Could not resolve hostname spark-2: Name or service not known",
            "Could not resolve hostname spark-2", 'set ssh = "USER@ADDRESS" in cluster.toml', id="no name",
        ),
        pytest.param("bash: line 1: oops", "oops", "ssh me@10.0.0.2 true", id="something else"),
    ],
)  # fmt: skip
def test_why_a_host_cannot_be_reached(said: str, cause: str, fix: str) -> None:
    found = ssh.connection_problem("spark-2", "me@10.0.0.2", said.splitlines(), 255)
    assert_problem(found, "spark-2", cause=cause, fix=fix)
    assert ("ssh-keygen" in found.fix) == ("ssh-keygen" in fix)


def test_one_that_says_nothing() -> None:
    assert_problem(
        ssh.connection_problem("a", "a", [], None), "a ", cause="ssh a", fix=("ssh a true", "--without a")
    )
