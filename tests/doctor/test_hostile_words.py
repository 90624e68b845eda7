"""No word that a transcript's author chooses is a command of a fix that `doctor --from` prints."""

import json
import re
import shlex
from collections.abc import Mapping

import pytest

from medley.doctor.checks import Examination, ExaminedHost
from medley.doctor.examination import build_examination, examine_host
from medley.doctor.registry import run_checks
from medley.host import health
from medley.host.health import access, software
from medley.transcript import Answer, Transcript
from tests.doctor.faults import DROPS, FAULTS, Fault, packages, with_

# Some answers are divided at blanks; in JSON the last has a line break.
HOSTILE_WORDS = ("x; touch /tmp/P #", "x;touch${IFS}P", "$(touch P)", "x'; touch P #", "x\\ntouch P #")
_WORD = re.compile(r"[^\s\"',;=]+")
_QUOTED = re.compile(r"'[^']*'|\"[^\"$`]*\"")


def build_records(name: str, counter: str) -> str:
    """Return two records of a link that lost speed and has errors."""
    rows = (
        {"when": f"2026-11-0{day}T03:00:00+00:00", "links": {name: mbit}, "files": {counter: errors}}
        for day, mbit, errors in ((1, 100_000, 0), (2, 10_000, 100_000))
    )
    return "".join(f"{json.dumps(row)}\n" for row in rows)


EXTRA_FAULTS = (
    Fault(
        "speed",
        "slower link, errors",
        with_(
            "spark",
            overrides={health.SPEEDS_QUESTION: build_records("eth8", "net/eth9/statistics/rx_errors")},
        ),
    ),
)


def rebuild_case(case: Examination, answers: Mapping[str, Transcript]) -> Examination:
    """Return the case with other answers of its hosts."""
    hosts = {
        name: examine_host(name, answers[name], member=host.member, greeting=host.greeting)
        for name, host in case.hosts.items()
    }
    rebuilt_case = build_examination(hosts, case.network_options, head=case.head)
    return case.replace(
        hosts=hosts, fabric=rebuilt_case.fabric, network_problems=rebuilt_case.network_problems
    )


def list_fixes(case: Examination, rule_name: str) -> list[str]:
    results = run_checks(case)
    return [check.problem.fix for rule, check in results if check.problem and rule.name == rule_name]


def has_bare_word(fix: str) -> bool:
    """Return whether a hostile word is outside of quotes, where a shell would run it."""
    return "touch" in _QUOTED.sub("", fix)


def replace_word(word: str, hostile_word: str, host: ExaminedHost) -> Transcript:
    pattern = re.compile(rf"(?<![\w.-]){re.escape(word)}(?![\w.-])")
    return {
        question: Answer(pattern.sub(lambda _: hostile_word, answer.text), answer.status)
        for question, answer in host.answers.items()
    }


def list_texts(case: Examination, rule_name: str) -> list[str]:
    """Return the summaries, titles and causes of a rule."""
    checks = [check for rule, check in run_checks(case) if rule.name == rule_name]
    problems = [check.problem for check in checks if check.problem]
    return [
        *(check.summary for check in checks),
        *(text for each in problems for text in (each.what, each.cause)),
    ]


def test_each_title_and_cause_is_one_line() -> None:
    """A word of a host is no line of doctor's, such as another check that passed or a fix."""
    folded_texts = []
    for fault in FAULTS:
        case = fault.case()
        text = "\n".join(answer.text for host in case.hosts.values() for answer in host.answers.values())
        words = {word for line in list_texts(case, fault.rule) for word in _WORD.findall(line)}
        for word in words & {*_WORD.findall(text)}:
            answers = {name: replace_word(word, "x\\nfix\x9b", host) for name, host in case.hosts.items()}
            texts = list_texts(rebuild_case(case, answers), fault.rule)
            assert not [line for line in texts if not line.isprintable()], (word, texts)
            folded_texts += [line for line in texts if "x fix�" in line or "fix�" in line]
    assert folded_texts


@pytest.mark.parametrize(
    "fault", [*FAULTS, *EXTRA_FAULTS], ids=lambda fault: f"{fault.rule}: {fault.summary}"
)
def test_no_word_of_a_transcript_is_a_command_of_a_fix(fault: Fault) -> None:
    """Each word that a fix has from a transcript is hostile in turn."""
    case = fault.case()
    text = "\n".join(answer.text for host in case.hosts.values() for answer in host.answers.values())
    fix_words = {word for fix in list_fixes(case, fault.rule) for word in _WORD.findall(fix)}
    for word in fix_words & {*_WORD.findall(text), *_WORD.findall(text.replace("/", " "))}:
        for hostile_word in HOSTILE_WORDS:
            answers = {name: replace_word(word, hostile_word, host) for name, host in case.hosts.items()}
            fixes = list_fixes(rebuild_case(case, answers), fault.rule)
            assert not [fix for fix in fixes if has_bare_word(fix)], (word, hostile_word)


def test_the_name_of_an_environment_is_one_word() -> None:
    name = "vllm-cuda-$(touch${IFS}P)"
    case = with_("spark", overrides={software.PACKAGES_QUESTION: packages("torch-2.13.0+cpu", env=name)})()
    (fix,) = list_fixes(case, "kernels")
    assert shlex.quote(name) in fix


def test_a_chain_that_nft_takes_for_commands_is_in_no_fix() -> None:
    case = with_("spark", overrides={access.NFT_QUESTION: DROPS.replace("rack", "rack;flush")})()
    assert list_fixes(case, "firewall") == [
        "sudo nft list ruleset  # then change the rule that drops connections"
    ]
