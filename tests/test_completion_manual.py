"""The manual page: every verb and switch is on it, and troff has nothing to complain of."""

import re
import shutil
import subprocess

import pytest

from medley.completion import Switch, Verb, manual
from tests.test_completion_cli import TREE

ODD = Verb(
    ("odd",),
    "Begins with nothing.",
    more="\n.not a request\n'nor this: C:\\x …\n\nExamples:\n    medley odd -x\n\n",
    usage=("medley odd [SWITCHES]",),
    switches=(Switch(("-n", "--dry-run"), "start nothing", "N"),),
)


def page(verb: Verb = TREE) -> str:
    return manual.page(verb, "0.1.0")


def test_every_verb_and_switch_is_there() -> None:
    text = page()
    for verb in TREE.all():
        name = " ".join(verb.path).replace("-", r"\-")
        assert not name or f'.SS "medley {name}"\n' in text
        for switch in verb.switches:
            assert rf"\fB{', '.join(switch.names)}".replace("-", r"\-") in text


def test_text_is_no_request() -> None:
    lines = page(Verb((), "All.", verbs=(ODD,))).splitlines()
    assert r"\&.not a request" in lines
    assert r"\&'nor this: C:\ex \[u2026]" in lines
    start = lines.index(".nf")
    assert lines[start : start + 3] == [".nf", r"    medley odd \-x", ".fi"]
    assert lines[lines.index(r"\fB\-n, \-\-dry\-run N\fR") - 1] == ".TP"


def test_only_requests_that_a_manual_page_has() -> None:
    """Where nobody can render it, its shape is what can be told."""
    text = page()
    requests = set(re.findall(r"(?m)^[.'](\w*)", text))
    assert requests == {"TH", "SH", "SS", "PP", "TP", "br", "nf", "fi"}
    assert text.isascii()
    assert re.findall(r"(?m)^\.SH (.*)", text)[:4] == ["NAME", "SYNOPSIS", "DESCRIPTION", "VERBS"]
    assert text.count("\n.nf\n") == text.count("\n.fi\n")


def test_troff_renders_it() -> None:
    program = shutil.which("groff")
    if program is None:
        pytest.skip("there is no groff")
    said = subprocess.run(
        [program, "-man", "-ww", "-Tutf8", "-P-c"],
        input=page(),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    # Of itself it may miss a file: Nix's sandbox has no /etc/groff.
    assert [line for line in said.stderr.splitlines() if "<standard input>" in line] == []
    plain = re.sub(r".\x08", "", said.stdout)
    assert "medley collective-test" in plain
    assert "    medley serve demo       serve a tiny model" in plain
