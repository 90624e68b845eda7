"""Readings of counters and the rates between them, over a tree made as the kernel makes it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from medley import machine
from medley.facts.answers import lines
from medley.link import traffic
from medley.link.traffic import Rate, Reading, growth
from medley.problem import Problem
from medley.transcript import Answer, Transcript

Tree = Callable[..., Transcript]
ETHERNET, RDMA = False, True
SNMP = "Tcp: RtoAlgorithm RetransSegs InErrs\nTcp: 1 {} 0\n"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """The questions, asked of a real shell about files that a test writes."""

    def asked(at_s: float, files: dict[str, int], *, retransmits: int = 0) -> Transcript:
        for name, value in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{value}\n")
        questions = {
            question: question.replace("/sys/class", str(tmp_path))
            for question in (traffic.LINKS, traffic.PORTS)
        }
        said = machine.ask(questions.values())
        return {
            **{question: said[inside] for question, inside in questions.items()},
            traffic.CLOCK: Answer(f"{at_s}\n"),
            traffic.TCP: Answer(SNMP.format(retransmits)),
        }

    return asked


def link(name: str, index: int = 2, **counters: int) -> dict[str, int]:
    every = dict.fromkeys(("rx_errors", "tx_errors", "rx_dropped", "tx_dropped"), 0) | counters
    files = {f"net/{name}/statistics/{counter}": value for counter, value in every.items()}
    return {f"net/{name}/ifindex": index, **files}


def port(name: str, **counters: int) -> dict[str, int]:
    top = f"infiniband/{name}/ports/1"
    return {
        f"{top}/{'counters' if key.startswith('port_') else 'hw_counters'}/{key}": value
        for key, value in counters.items()
    }


def test_rates(tree: Tree) -> None:
    """By hand: 25 MB in 2 s are 100 Mb/s; 5 million words are 20 MB, so 80 Mb/s."""
    before = tree(
        100.0,
        {
            **link("eth0", rx_bytes=1000, tx_bytes=0, rx_dropped=7),
            **link("eth1", rx_bytes=5, tx_bytes=5),
            **port("rocep1s0f0", port_rcv_data=0, port_xmit_data=10, out_of_sequence=3, np_cnp_sent=1),
        },
        retransmits=4,
    )
    after = tree(
        102.0,
        {
            **link("eth0", rx_bytes=25_001_000, tx_bytes=250_000, rx_dropped=9),
            **port(
                "rocep1s0f0", port_rcv_data=5_000_000, port_xmit_data=10, out_of_sequence=8, np_cnp_sent=1
            ),
        },
        retransmits=10,
    )
    found = traffic.traffic(traffic.reading(before), traffic.reading(after))
    assert found.rates == (
        Rate("eth0", ETHERNET, 100.0, 1.0, {"rx_dropped": 2}, 25_251_000),
        Rate("eth1", ETHERNET, 0.0, 0.0, {}, 10),
        Rate("rocep1s0f0/1", RDMA, 80.0, 0.0, {"out_of_sequence": 5}, 20_000_040),
    )
    assert (found.seconds, found.tcp_retransmits) == (2.0, 6)
    assert [rate.quiet for rate in found.rates] == [False, True, False]


@pytest.mark.parametrize(
    ("was", "now", "expected"),
    [
        pytest.param(10, 10, 0, id="still"),
        pytest.param(10, 15, 5, id="grown"),
        pytest.param((1 << 32) - 6, 4, 10, id="32 bits wrapped"),
        pytest.param((1 << 64) - 6, 4, 10, id="64 bits wrapped"),
        pytest.param(3 << 30, 1 << 32, 1 << 30, id="past 32 bits, so it has more"),
        pytest.param(1 << 20, 100, 100, id="begun anew"),
        pytest.param(1 << 40, 100, 100, id="begun anew, with 64 bits"),
    ],
)
def test_growth(was: int, now: int, expected: int) -> None:
    assert growth(was, now) == expected


def test_a_new_link_of_an_old_name_has_no_rate() -> None:
    counters = {"rx_bytes": 5, "tx_bytes": 5}
    old = Reading(1.0, {"eth0": {"ifindex": 2, **counters}})
    new = Reading(2.0, {"eth0": {"ifindex": 9, **counters}, "eth1": {"ifindex": 3, **counters}}, {"a/1": {}})
    assert traffic.traffic(old, new).rates == ()


def test_time_has_to_pass() -> None:
    with pytest.raises(Problem, match="no time has passed"):
        traffic.traffic(Reading(2.0), Reading(2.0))


@pytest.mark.parametrize("said", [pytest.param("", id="nothing"), pytest.param("soon\n", id="a word")])
def test_without_a_clock_it_is_a_problem(said: str) -> None:
    with pytest.raises(Problem, match="counters cannot be read"):
        traffic.reading({traffic.CLOCK: Answer(said)})


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("eth0/statistics/rx_bytes\n", id="no value"),
        pytest.param("eth0/statistics/rx_bytes -5\n", id="below zero"),
        pytest.param(f"eth0/statistics/rx_bytes {'9' * 30}\n", id="more than any counter"),
        pytest.param("rx_bytes 5\n", id="of nothing"),
    ],
)
def test_what_is_no_counter_is_passed_over(text: str) -> None:
    asked = {traffic.CLOCK: Answer("1.0\n"), traffic.LINKS: Answer(text), traffic.TCP: Answer("Tcp: 1\n")}
    assert traffic.reading(asked) == Reading(1.0)


@pytest.mark.skipif(not Path("/sys/class/net").is_dir(), reason="Nix's sandbox has no /sys")
def test_this_host_answers() -> None:
    answers = machine.ask(traffic.QUESTIONS)
    assert lines(answers, traffic.CLOCK)
    assert "lo" in traffic.reading(answers).links
