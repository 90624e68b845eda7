"""A log is anybody's: no line of it takes an expression long, and none gets a command into a fix."""

import re
import re._parser as parser  # type: ignore[import-not-found] # what re itself reads expressions with
import shlex
import time
from collections.abc import Iterator, Sequence
from itertools import product
from random import Random
from typing import Any

import pytest

from medley.explain import context, error_lines, events, lines
from medley.explain.lines import SGLANG, VLLM, parse_line
from medley.explain.patterns import Failure, KnownFailures, load, sign
from medley.explain.root_cause import FailureReport
from medley.explain.scan import MAX_LINE_CHARS, Needles, scan_log
from medley.explain.scan_groups import SCAN_GROUPS
from medley.explain.scanned_log import FailureMatch, Log
from medley.explain.templates import GROUP
from medley.explain.user_patterns import UserPatterns
from tests.explain.test_explain import FAILURES, of
from tests.odd_input import COUNTS, MEBIBYTE, hold, texts

KNOWN = load(user=False)
ROWS = (*KNOWN.failures, *KNOWN.phases, *KNOWN.wordings)
LIMIT_S = 0.25
"""Of processor time for one expression in one line: most take a hundredth of it."""
_CATEGORY = {"CATEGORY_DIGIT": "1", "CATEGORY_SPACE": " ", "CATEGORY_WORD": "a", "CATEGORY_NOT_SPACE": "x"}
_CUTS = " .:=('\"[,/@"


def patterns() -> Iterator[tuple[str, str, "re.Pattern[str]"]]:
    """All that are searched in lines of a log: whose, the needle that such a line has, and the expression."""
    for known in (*FAILURES.values(), *KNOWN.phases):
        yield from ((known.name, each.needle, each.expression) for each in known.signs)
        yield from ((known.name, "", each) for each in (known.harmless, known.error) if each)
    yield from ((each.name, "", each.expression) for each in KNOWN.components)
    for turn in events.TRANSITIONS:
        yield from ((turn.kind, each.needle, each.expression) for each in turn.signs)
    for module in (context, error_lines, events, lines):
        for name, value in vars(module).items():
            for each in value if isinstance(value, tuple) else (value,):
                if isinstance(each, re.Pattern) and isinstance(each.pattern, str):
                    yield name, "", each


def written(tree: Any, random: Random) -> Iterator[str]:
    """A text that the expression finds, or nearly so."""
    for operation, value in tree:
        match str(operation):
            case "LITERAL":
                yield chr(value)
            case "NOT_LITERAL":
                yield "x" if value != ord("x") else "y"
            case "ANY":
                yield random.choice("a 1")
            case "IN":
                yield _of_set(value, random)
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                for _ in range(max(value[0], random.choice((0, 1, 2)) if value[1] else 0)):
                    yield from written(value[2], random)
            case "SUBPATTERN":
                yield from written(value[3], random)
            case "BRANCH":
                yield from written(random.choice(value[1]), random)
            case _:  # the beginning of a line, what stands before or after
                pass


def _of_set(items: Any, random: Random) -> str:
    if str(items[0][0]) == "NEGATE":
        return random.choice("xa1 .~")
    operation, value = random.choice(items)
    match str(operation):
        case "LITERAL":
            return chr(value)
        case "RANGE":
            return chr(value[0])
        case _:
            return _CATEGORY.get(str(value), "x")


def hostile(pattern: "re.Pattern[str]", needle: str, seed: int, most: int) -> Iterator[str]:
    """Lines of the greatest length: a part of what it finds again and again, and the needle at the end."""
    random = Random(seed)
    found = "".join(written(parser.parse(pattern.pattern), random))[:300]
    cuts = [0, *(at for at in range(1, len(found)) if {found[at - 1], found[at]} & set(_CUTS)), len(found)]
    room = MAX_LINE_CHARS - len(needle) - 1
    pairs = [(start, end) for nth, start in enumerate(cuts) for end in cuts[nth + 1 : nth + 6] if end > start]
    for start, end in random.sample(pairs, min(most, len(pairs))):
        yield (found[:start] + found[start:end] * room)[:room] + " " + needle
    for each in random.sample(" a1.:/-_([\"'", 4):
        yield found[:20] + each * (room - 20) + needle
        yield each * room + needle


@pytest.mark.parametrize(
    ("seeds", "most"),
    [
        pytest.param(range(1), 3, id="some"),
        pytest.param(range(12), 40, id="many", marks=pytest.mark.slow),
    ],
)
def test_no_expression_takes_long_for_a_line(seeds: Sequence[int], most: int) -> None:
    """One took over 100 s for 5.7 kB."""
    slow = []
    for name, needle, pattern in patterns():
        for text in (text for seed in seeds for text in hostile(pattern, needle, seed, most)):
            began = time.process_time()
            pattern.search(text)
            took = time.process_time() - began
            if took > LIMIT_S:
                slow.append(f"{name}: {took:.2f} s: {pattern.pattern}: {text[:60]}")
                break
    assert not slow, "\n".join(slow)


def test_an_expression_that_takes_long_is_given_up() -> None:
    """Whatever the limits above miss: a log of many such lines costs little more than one."""
    signs = (sign("a needle ", r"(?:a|b|ab)*c"),)
    slow = Failure(name="slow", what="w", cause="c", fix="f", signs=signs)
    text = b"\n".join(b"ab" * 14 + b" a needle %d" % number for number in range(200))
    began = time.process_time()
    scan_log(Log("x", iter([text])), Needles(KnownFailures((slow,))), UserPatterns(frozenset()))
    assert time.process_time() - began < 3


@pytest.mark.parametrize("count", COUNTS)
def test_odd_input_of_logs(count: int) -> None:
    samples = [
        f"ERROR 11-22 08:01:33 [core.py:1109] {known.signs[0].needle}: x" for known in FAILURES.values()
    ]
    longest = MEBIBYTE if count > 300 else MEBIBYTE // 16  # as many lines take long as one does
    hold(of, texts(samples, longest=longest), count, ())


@pytest.mark.parametrize(
    "file", ["/x$(touch y)", "/x`touch y`", "/x;touch y", "/x|sh", "/x\ttouch", "/a b", "'/x'$(y)'", "/x&y"]
)
def test_what_a_log_says_is_one_word_of_a_fix(file: str) -> None:
    fix = "sudo chown -R $USER {file}"
    known = Failure(name="k", what="w", cause="c", fix=fix, signs=(sign("xxx"),))
    assert (
        known.describe({"file": "/models/m-1.safetensors"})[2]
        == "sudo chown -R $USER /models/m-1.safetensors"
    )
    fix = known.describe({"file": file})[2]
    assert fix.startswith("sudo chown -R $USER '")
    assert fix.endswith("'")


def test_a_setting_in_what_a_log_says_does_not_open_its_quotes() -> None:
    """A clause of the fix in effect was left out up to a semicolon within the quotes."""
    evil = "./a --max-model-len 4096; touch evil #'"
    words = {name: evil for row in ROWS for name in GROUP.findall(row.fix) if name not in SCAN_GROUPS}
    words |= dict.fromkeys(("advice", "above", "remedy", "last_call", "distribution", "enabled"), evil)
    log = "vllm serve a/b --max-model-len 4096"
    broken, filled = [], set()
    for row, engine in product(ROWS, (None, VLLM, SGLANG)):
        match = FailureMatch(row, words, parse_line(log), 1, "log", None, engine)
        fix = FailureReport(match, settings=log, manager="dnf").problem().fix
        filled |= {row.name} if shlex.quote(evil) in fix else set()
        broken += [row.name] if "evil" in fix.replace(shlex.quote(evil), "") else []
    assert broken == []
    assert len(filled) > 50


@pytest.mark.parametrize("host", ["-oProxyCommand=touch x", "-oProxyCommand=x", "--rsync-path=x"])
def test_what_a_log_says_is_no_option_of_a_fix(host: str) -> None:
    fix = "then try: ssh {host} true"
    known = Failure(name="k", what="w", cause="c", fix=fix, signs=(sign("xxx"),))
    assert known.describe({"host": host})[2] == "then try: ssh ? true"


def test_no_group_of_a_fix_stands_in_quotes_of_its_own() -> None:
    """Those of the quoted word would end them, and what is between would be the shell's."""
    inside = re.compile(r"'[^' ,;]*[^']{0,80}\{\w+\}[^']{0,80}'|`[^`]*\{\w+\}[^`]*`|\"[^\"]*\{\w+\}[^\"]*\"")
    quoted = {
        known.name: found[0]
        for known in FAILURES.values()
        if (found := inside.search(re.sub(r"\w'\w", "", known.fix)))
    }
    assert quoted == {}


@pytest.mark.parametrize(
    ("log", "harm"),
    [
        pytest.param(
            "ImportError: libmagma.so.2: cannot open shared object file: No such file or directory\n"
            "/opt/$(touch${IFS}/tmp/x)/libmagma.so.2\n",
            "dirname /opt/$(",
            id="the place of a library",
        ),
        pytest.param(
            "importlib.metadata.PackageNotFoundError: No package metadata was found for git+https://evil.example/x\n",
            "git+https",
            id="the address of a package",
        ),
        pytest.param(
            "filelock._error.Timeout: The file lock '~/.ssh/id_ed25519' could not be acquired.\n",
            "rm -f ~/.ssh",
            id="a lock that is a key",
        ),
        pytest.param(
            "PermissionError: [Errno 13] Permission denied: '/etc'\n", "$USER /etc", id="the owner of /etc"
        ),
        pytest.param(
            "Permissions 0755 for '/usr/bin/sudo' are too open.\n", "600 /usr/bin", id="the mode of sudo"
        ),
        pytest.param(
            "ImportError: /tmp/evil.so: cannot allocate memory in static TLS block\n",
            "LD_PRELOAD=/tmp",
            id="a library of /tmp",
        ),
    ],
)
def test_a_fix_does_no_harm_to_what_a_log_names(log: str, harm: str) -> None:
    for report in of(log).problems:
        assert harm not in report.problem().fix
