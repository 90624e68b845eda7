"""Whatever a transcript holds, reading it gives facts or a Problem, and never another error."""

import json
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medley import config
from medley.errors import Problem
from medley.host.facts import QUESTIONS, Facts, read_facts
from medley.host.kind import Kind, match_kind
from medley.host.redact import Redactor
from medley.host.summary import describe_facts
from medley.transcript import Answer, Transcript, format_transcript, parse_transcript

RECORDED = {
    path.stem: path.read_text()
    for path in sorted((Path(__file__).parents[2] / "host" / "recorded").glob("*.txt"))
}
HOSTS = dict(config.load_hosts())  # read once

bounded = settings(max_examples=25, deadline=None)
names = st.sampled_from(sorted(RECORDED))
# What programs print, and what they never should: other digits, numbers without end, no text at all.
words = st.sampled_from(
    ["²", "٣", "9" * 5000, "-1", "nan", "1e999", "null", "", "%", "[N/A]", "\x00", "::", "1.2.3.4/99"]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | words | st.text(max_size=8),
    lambda more: st.lists(more, max_size=3) | st.dictionaries(st.text(max_size=8), more, max_size=3),
    max_leaves=6,
)
keys = st.sampled_from(
    [
        *("ifname", "operstate", "flags", "mtu", "link_type", "linkinfo", "info_kind", "master", "addr_info"),
        *("family", "local", "prefixlen", "secondary", "dst", "dev", "gateway", "nexthops", "metric"),
    ]
)


def read(said: str) -> Facts | None:
    """All that medley facts does with a transcript; None where that is a Problem."""
    try:
        answers = parse_transcript(said)
        parse_transcript(format_transcript(Redactor().transcript(answers)))
        found = read_facts(answers)
    except Problem:
        return None
    assert list(describe_facts(found, chosen(found)))
    return found


def chosen(found: Facts) -> Kind | Problem:
    try:
        return match_kind(found, HOSTS)
    except Problem as problem:
        return problem


@pytest.mark.parametrize("name", RECORDED)
def test_whole(name: str) -> None:
    assert read(RECORDED[name]) is not None


@bounded
@given(names, st.floats(0, 1))
def test_truncated(name: str, part: float) -> None:
    said = RECORDED[name]
    read(said[: int(len(said) * part)])


@bounded
@given(names, names, st.integers(0, 1 << 32))
def test_interleaved(one: str, other: str, seed: int) -> None:
    """As two shells that print to one terminal."""
    left = [RECORDED[name].splitlines() for name in (one, other)]
    random, mixed = Random(seed), list[str]()
    while any(left):
        lines = random.choice([each for each in left if each])
        for _ in range(random.randint(1, 12)):
            mixed += lines[:1]
            del lines[:1]
    read("\n".join(mixed))


@bounded
@given(names, st.integers(0, 1 << 32), words | st.text(max_size=12))
def test_a_word_is_another(name: str, seed: int, word: str) -> None:
    """In every answer, one word."""
    random = Random(seed)

    def spoilt(answer: Answer) -> Answer:
        said = answer.text.split(" ")
        said[random.randrange(len(said))] = word
        return Answer(" ".join(said), answer.status)

    read(
        format_transcript(
            {question: spoilt(answer) for question, answer in parse_transcript(RECORDED[name]).items()}
        )
    )


def replaced(value: object, key: str, new: object) -> object:
    """JSON with another value wherever it has this key."""
    if isinstance(value, list):
        return [replaced(each, key, new) for each in value]
    if isinstance(value, dict):
        return {k: new if k == key else replaced(each, key, new) for k, each in value.items()}
    return value


@bounded
@given(st.sampled_from(["spark-pair-a", "rtx-vpn-docker", "cpu-rack"]), keys, values)
def test_json_of_another_shape(name: str, key: str, new: object) -> None:
    answers: Transcript = {
        question: Answer(json.dumps(replaced(json.loads(answer.text), key, new)), answer.status)
        if answer.text.startswith("[{")
        else answer
        for question, answer in parse_transcript(RECORDED[name]).items()
    }
    found = read(format_transcript(answers))
    assert found is not None  # the network is no reason to know nothing of the rest
    assert found.cpu.threads > 0


@bounded
@given(st.lists(st.text(max_size=20) | words, min_size=len(QUESTIONS), max_size=len(QUESTIONS)))
def test_nonsense(said: list[str]) -> None:
    read(format_transcript({question: Answer(each) for question, each in zip(QUESTIONS, said, strict=True)}))
