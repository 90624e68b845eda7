import pytest

from medley.cluster.discovery.candidates import (
    HostMention,
    invalid_name_problem,
    is_local_name_or_address,
    is_valid_host_name,
    merge_mentions,
    parse_host,
    parse_selection,
    select_default,
    split_target,
)
from tests.problems import raises_problem


@pytest.mark.parametrize(
    ("word", "name", "target", "told"),
    [
        pytest.param("spark-2", "spark-2", "spark-2", (None, "spark-2", None), id="a name"),
        pytest.param(
            "nvidia@10.0.0.2", "10.0.0.2", "nvidia@10.0.0.2", ("nvidia", "10.0.0.2", None), id="a user"
        ),
        pytest.param(
            "ssh://me@box.lan:2222",
            "box.lan",
            "ssh://me@box.lan:2222",
            ("me", "box.lan", "2222"),
            id="a port",
        ),
    ],
)
def test_what_is_typed_is_taken_as_it_is(
    word: str, name: str, target: str, told: tuple[str | None, str, str | None]
) -> None:
    mention = parse_host(word)
    assert (mention.name, mention.target) == (name, target)
    assert split_target(mention.target) == told


BAD = [
    "",
    "a b",
    'a"b',
    "$(reboot)",
    "a;b",
    "a\nb",
    "-oProxyCommand=x",
    "a'b",
    "`x`",
    "a:22",
    "me@",
    "x" * 64,
    "ü",
]


@pytest.mark.parametrize("word", [*BAD, "$(x)@host", "ssh://host:x", "a@b@c"])
def test_what_is_no_host_is_refused(word: str) -> None:
    with raises_problem(
        repr(word[:60]), cause="ssh://USER@HOST:PORT", fix="medley init spark-1 nvidia@192.168.100.11"
    ):
        parse_host(word)


@pytest.mark.parametrize("word", BAD)
def test_a_name_that_is_not_plain(word: str) -> None:
    assert not is_valid_host_name(word)
    problem = invalid_name_problem(HostMention(word, "ssh config", "~/.ssh/config:7"))
    assert problem.what.startswith("~/.ssh/config:7: ")
    assert "\n" not in problem.what


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("spark-2", True),
        ("spark-2.local", True),
        ("192.168.1.7", True),
        ("box.example.com", False),
        ("8.8.8.8", False),
    ],
)
def test_what_may_stand_on_the_same_desk(word: str, near: bool) -> None:  # noqa: FBT001 - of a table
    assert is_local_name_or_address(word) == near


def test_a_port_goes_into_what_ssh_is_told() -> None:
    assert HostMention("box", "known_hosts", "f:1", port=2222).target == "ssh://box:2222"


ALIAS = HostMention("spark-2", "ssh config", "config:1", ("192.168.1.51",), is_likely=True)
KNOWN = HostMention("spark-2.lan", "known_hosts", "known:1", ("spark-2.lan", "192.168.1.51"))
NEAR = HostMention("192.168.100.11", "neighbor on enp1", "enp1", ("192.168.100.11",), is_likely=True)
NAS = HostMention("nas", "known_hosts", "known:2", ("nas",))
OWN = HostMention("192.168.1.50", "known_hosts", "known:3", ("192.168.1.50",))


def names(*mentions: HostMention) -> list[str]:
    found, _ = merge_mentions(mentions, "spark-1", ["192.168.1.50"])
    return [each.name for each in found]


def test_this_host_is_the_first_and_there_once() -> None:
    assert names() == ["spark-1"]
    assert names(OWN, HostMention("localhost", "known_hosts", "known:9"), NAS) == ["spark-1", "nas"]
    assert names(HostMention("spark-1", "ssh config", "c:1", ("192.168.100.10",))) == ["spark-1"]


def test_all_mentions_of_a_host_are_one() -> None:
    (_, one, two), _ = merge_mentions([KNOWN, NEAR, ALIAS], "spark-1", [])
    assert (one.name, one.target, one.sources) == ("spark-2", "spark-2", ("known_hosts", "ssh config"))
    assert one.description == "known_hosts, ssh config, 192.168.1.51"
    assert two.name == "192.168.100.11"


def test_a_later_mention_joins_two_earlier_ones() -> None:
    link = HostMention("both", "ssh config", "c:5", ("nas", "192.168.100.11"))
    assert names(NAS, ALIAS, NEAR, link) == ["spark-1", "both", "spark-2"]


def announce(name: str, address: str) -> HostMention:
    return HostMention(name, f"announced on enp1 at {address}", "enp1", (address,), is_announced=True)


@pytest.mark.parametrize(
    ("announced", "expected"),
    [
        pytest.param(("evil.local", "192.168.100.11"), ["evil.local"], id="a neighbor's address"),
        pytest.param(("evil.local", "192.168.1.51"), ["evil.local"], id="an address that ssh knows"),
        pytest.param(("spark-2.lan", "192.168.100.11"), [], id="a known name and a neighbor's address"),
        pytest.param(("nas", "192.168.1.51"), [], id="two hosts that ssh knows"),
        pytest.param(("spark-1.local", "192.168.100.11"), [], id="this host's name"),
        pytest.param(("evil.local", "192.168.1.50"), [], id="this host's address"),
        pytest.param(("192.168.100.11", "192.168.1.66"), [], id="an address as its name"),
    ],
)
def test_an_announcement_takes_no_place(announced: tuple[str, str], expected: list[str]) -> None:
    mentions = (KNOWN, NEAR, ALIAS, NAS)
    before, _ = merge_mentions(mentions, "spark-1", ["192.168.1.50"])
    for order in ((announce(*announced), *mentions), (*mentions, announce(*announced))):
        after, _ = merge_mentions(order, "spark-1", ["192.168.1.50"])
        same = [(each.name, each.target, each.addresses, each.is_likely) for each in after][: len(before)]
        assert same == [(each.name, each.target, each.addresses, each.is_likely) for each in before]
        assert [each.name for each in after][len(before) :] == expected


def test_a_known_name_at_another_address_is_said() -> None:
    (_, known), _ = merge_mentions([KNOWN, ALIAS, announce("spark-2.lan", "10.0.0.66")], "spark-1", [])
    assert known.description == "known_hosts, ssh config, announced on enp1 at 10.0.0.66, 192.168.1.51"


def test_a_host_announced_on_two_links_is_one() -> None:
    links = [announce("spark-3.local", address) for address in ("192.168.100.13", "192.168.1.53")]
    (_, one), _ = merge_mentions(links, "spark-1", [])
    assert (one.target, one.addresses) == ("spark-3.local", ("192.168.100.13", "192.168.1.53"))


def test_two_ports_of_an_address_are_two_hosts() -> None:
    ports = [HostMention("gate", "known_hosts", "k:1", (f"gate:{port}",), port) for port in (2201, 2202)]
    found, _ = merge_mentions([*ports, NAS], "spark-1", [])
    assert [each.target for each in found][1:] == ["ssh://gate:2201", "nas"]


def test_what_is_taken_where_nothing_is_said() -> None:
    found, _ = merge_mentions([ALIAS, NAS, NEAR], "spark-1", [])
    assert [each.name for each in select_default(found)] == ["spark-1", "spark-2", "192.168.100.11"]


def test_names_that_are_not_plain_are_refused_with_their_place() -> None:
    bad = [
        HostMention(name, "ssh config", f"config:{n}")
        for n, name in enumerate(("a b", "$(x)", "a\nb", 'a"b'))
    ]
    found, refused = merge_mentions([*bad, NAS], "spark-1", [])
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
    found, _ = merge_mentions([ALIAS, NAS], "spark-1", [])
    assert [each.name for each in parse_selection(answer, found)] == expected


@pytest.mark.parametrize(
    ("answer", "name", "cause"),
    [("4", "4 ", "1 to 3"), ("0", "0 ", "1 to 3"), ("1 $(x)", "'$(x)'", "ssh://USER@HOST:PORT")],
)
def test_an_answer_that_cannot_be_meant(answer: str, name: str, cause: str) -> None:
    found, _ = merge_mentions([ALIAS, NAS], "spark-1", [])
    with raises_problem(name, cause=cause):
        parse_selection(answer, found)


def test_nothing_to_take_is_asked_again() -> None:
    found, _ = merge_mentions([NAS], "no name", [])
    assert [each.name for each in found] == ["nas"]
    with raises_problem(cause="no default"):
        parse_selection("", found)
