import pytest

from medley.mention import Mention
from medley.problem import Problem
from medley.prospects import chosen, default, prospects

ALIAS = Mention("spark-2", "ssh config", "config:1", ("192.168.1.51",), likely=True)
KNOWN = Mention("spark-2.lan", "known_hosts", "known:1", ("spark-2.lan", "192.168.1.51"))
NEAR = Mention("192.168.100.11", "neighbour on enp1", "enp1", ("192.168.100.11",), likely=True)
NAS = Mention("nas", "known_hosts", "known:2", ("nas",))
OWN = Mention("192.168.1.50", "known_hosts", "known:3", ("192.168.1.50",))


def names(*mentions: Mention) -> list[str]:
    found, _ = prospects(mentions, "spark-1", ["192.168.1.50"])
    return [each.name for each in found]


def test_this_host_is_the_first_and_there_once() -> None:
    assert names() == ["spark-1"]
    assert names(OWN, Mention("localhost", "known_hosts", "known:9"), NAS) == ["spark-1", "nas"]
    assert names(Mention("spark-1", "ssh config", "c:1", ("192.168.100.10",))) == ["spark-1"]


def test_all_mentions_of_a_host_are_one() -> None:
    (_, one, two), _ = prospects([KNOWN, NEAR, ALIAS], "spark-1", [])
    assert (one.name, one.target, one.by) == ("spark-2", "spark-2", ("known_hosts", "ssh config"))
    assert one.shown == "known_hosts, ssh config, 192.168.1.51"
    assert two.name == "192.168.100.11"


def test_a_later_mention_joins_two_earlier_ones() -> None:
    link = Mention("both", "ssh config", "c:5", ("nas", "192.168.100.11"))
    assert names(NAS, ALIAS, NEAR, link) == ["spark-1", "both", "spark-2"]


def test_two_ports_of_an_address_are_two_hosts() -> None:
    ports = [Mention("gate", "known_hosts", "k:1", (f"gate:{port}",), port) for port in (2201, 2202)]
    found, _ = prospects([*ports, NAS], "spark-1", [])
    assert [each.target for each in found][1:] == ["ssh://gate:2201", "nas"]


def test_what_is_taken_where_nothing_is_said() -> None:
    found, _ = prospects([ALIAS, NAS, NEAR], "spark-1", [])
    assert [each.name for each in default(found)] == ["spark-1", "spark-2", "192.168.100.11"]


def test_names_that_are_not_plain_are_refused_with_their_place() -> None:
    bad = [
        Mention(name, "ssh config", f"config:{n}") for n, name in enumerate(("a b", "$(x)", "a\nb", 'a"b'))
    ]
    found, refused = prospects([*bad, NAS], "spark-1", [])
    assert [each.name for each in found] == ["spark-1", "nas"]
    assert [each.what.partition(": ")[0] for each in refused] == [
        "config:0",
        "config:1",
        "config:2",
        "config:3",
    ]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param("", ["spark-1", "spark-2"], id="the default"),
        pytest.param("3", ["nas"], id="a number"),
        pytest.param("3, 1 3", ["nas", "spark-1"], id="numbers, one twice"),
        pytest.param("nas 2", ["nas", "spark-2"], id="a name and a number"),
        pytest.param("1 me@10.0.0.9", ["spark-1", "10.0.0.9"], id="a host of which nothing was known"),
    ],
)
def test_an_answer_names_hosts(answer: str, expected: list[str]) -> None:
    found, _ = prospects([ALIAS, NAS], "spark-1", [])
    assert [each.name for each in chosen(answer, found)] == expected


@pytest.mark.parametrize(
    ("answer", "what"), [("4", "no number 4"), ("0", "no number 0"), ("1 $(x)", "is no host")]
)
def test_an_answer_that_cannot_be_meant(answer: str, what: str) -> None:
    found, _ = prospects([ALIAS, NAS], "spark-1", [])
    with pytest.raises(Problem, match=what):
        chosen(answer, found)


def test_nothing_to_take_is_asked_again() -> None:
    found, _ = prospects([NAS], "no name", [])
    assert [each.name for each in found] == ["nas"]
    with pytest.raises(Problem, match="no host is chosen"):
        chosen("", found)
