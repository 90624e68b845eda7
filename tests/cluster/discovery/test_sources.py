import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from medley.cluster.discovery.sources import (
    ANNOUNCED_COMMAND,
    NEIGHBOR_COMMAND,
    find_neighbor_links,
    list_neighbors,
    list_ssh_mentions,
    parse_known_hosts,
    parse_ssh_config,
    read_config_lines,
)
from medley.host.facts.network import Route
from medley.transcript import Answer
from tests.host.recordings import recorded

KEY = "ssh-ed25519 AAAAC3Nz"
HASHED = f"|1|F1E1KeoE/eEWhi10WpGv4OdiO6Y=|3988QV0VE8wmZL7suNrYQLITLCg= {KEY}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", [], id="nothing"),
        pytest.param(f"spark-2 {KEY}\n", [("spark-2", "spark-2", ("spark-2",))], id="a name"),
        pytest.param(f"{HASHED}\n", [], id="hashed"),
        pytest.param(f"@cert-authority *.lan {KEY}\n@revoked a {KEY}\n", [], id="marked"),
        pytest.param(f"*.lan,!a.lan {KEY}\n", [], id="patterns"),
        pytest.param("# a remark of words\nspark-2\n", [], id="a remark, and half a line"),
        pytest.param(
            f"10.0.0.2,spark-2 {KEY}\n",
            [("spark-2", "spark-2", ("10.0.0.2", "spark-2"))],
            id="and its address",
        ),
        pytest.param(
            f"[box]:2222 {KEY}\n", [("box", "ssh://box:2222", ("box:2222",))], id="at a port of its own"
        ),
        pytest.param(f"[box]:x,[box] {KEY}\n", [], id="no port"),
        pytest.param(f"fe80::1%eth0,[fe80::2]:22 {KEY}\n", [], id="IPv6"),
        pytest.param(f"10.0.0.3 {KEY}\n", [("10.0.0.3", "10.0.0.3", ("10.0.0.3",))], id="an address alone"),
        pytest.param(f"a {KEY}\na ssh-rsa AAAA\n", [("a", "a", ("a",))], id="two sorts of key"),
    ],
)
def test_hosts_are_named_by_it(text: str, expected: list[tuple[str, str, tuple[str, ...]]]) -> None:
    found = parse_known_hosts(text, "~/.ssh/known_hosts")
    assert [(each.name, each.target, each.aliases) for each in found] == expected


def test_a_name_has_its_line_and_is_not_taken_unasked() -> None:
    (found,) = parse_known_hosts(f"\n{HASHED}\na$b {KEY}\n", "known")
    assert (found.name, found.place, found.is_likely) == ("a$b", "known:3", False)


SPARK = recorded("spark-pair-a")
DESK = recorded("rtx-vpn-docker")


def seen(*rows: tuple[str, str, str]) -> dict[str, Answer]:
    table = [
        {"dst": address, "dev": interface, "lladdr": "0:0", "state": [state]}
        for address, interface, state in rows
    ]
    return {NEIGHBOR_COMMAND: Answer(json.dumps(table))}


def test_links_are_those_that_a_cluster_could_use() -> None:
    assert find_neighbor_links(DESK) == {"enp5s0": False}
    assert find_neighbor_links(SPARK)["enp1s0f1np1"]
    assert not find_neighbor_links(SPARK)["enP7s7"]


@pytest.mark.parametrize(
    ("row", "by", "likely"),
    [
        pytest.param(("192.168.100.11", "enp1s0f1np1", "REACHABLE"), "enp1s0f1np1", True, id="fast"),
        pytest.param(("192.168.1.50", "enP7s7", "STALE"), "enP7s7", False, id="of a home's network"),
        pytest.param(("192.168.1.50", "enP7s7", "DELAY"), "enP7s7", False, id="just asked again"),
        pytest.param(("192.168.1.50", "enP7s7", "FAILED"), None, False, id="gone"),
        pytest.param(("192.168.1.50", "enP7s7", "INCOMPLETE"), None, False, id="never there"),
        pytest.param(("172.17.0.2", "docker0", "REACHABLE"), None, False, id="a container"),
        pytest.param(("fe80::1", "enP7s7", "REACHABLE"), None, False, id="IPv6"),
        pytest.param(("$(x)", "enP7s7", "REACHABLE"), None, False, id="no address"),
    ],
)
def test_neighbors_on_a_link(row: tuple[str, str, str], by: str | None, likely: bool) -> None:  # noqa: FBT001 - of a table
    found = list_neighbors(seen(row), SPARK)
    assert [(each.name, each.source, each.is_likely) for each in found] == (
        [(row[0], f"neighbor on {by}", likely)] if by else []
    )


def test_tunnels_and_containers_have_no_neighbors_of_ours() -> None:
    rows = [("100.100.1.1", "tailscale0", "REACHABLE"), ("172.17.0.2", "docker0", "STALE")]
    assert list_neighbors(seen(*rows, ("10.8.0.9", "wg0", "REACHABLE")), DESK) == ()


def test_the_way_out_is_no_host_of_a_cluster() -> None:
    way_out = Route("default", "enP7s7", gateway="192.168.1.1")
    routed = SPARK.replace(net=SPARK.net.replace(routes=(way_out,)))
    rows = [("192.168.1.1", "enP7s7", "REACHABLE"), ("192.168.1.2", "enP7s7", "REACHABLE")]
    assert [each.name for each in list_neighbors(seen(*rows), routed)] == ["192.168.1.2"]


AVAHI = """\
+;enP7s7;IPv4;spark-2;SSH Remote Terminal;local
=;enP7s7;IPv4;spark-2;SSH Remote Terminal;local;spark-2.local;192.168.1.51;22;
=;enP7s7;IPv6;spark-2;SSH Remote Terminal;local;spark-2.local;fe80::1;22;
=;docker0;IPv4;x;SSH Remote Terminal;local;x.local;172.17.0.2;22;
=;enP7s7;IPv4;odd;SSH Remote Terminal;local;a\\032b.local;192.168.1.52;22;
=;enP7s7
"""


def test_hosts_that_announce_ssh() -> None:
    found = list_neighbors({ANNOUNCED_COMMAND: Answer(AVAHI)}, SPARK)
    assert [(each.name, each.aliases, each.place) for each in found] == [
        ("spark-2.local", ("192.168.1.51",), "enP7s7"),
        ("a b.local", ("192.168.1.52",), "enP7s7"),
    ]


@pytest.mark.parametrize("text", ["", "[", "{}", "[1]", '[{"dst": 1}]'], ids=repr)
def test_an_answer_that_is_none_names_nobody(text: str) -> None:
    assert list_neighbors({NEIGHBOR_COMMAND: Answer(text), ANNOUNCED_COMMAND: Answer(text)}, SPARK) == ()


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh" / "conf.d").mkdir(parents=True)
    return tmp_path / ".ssh"


def test_without_files_nobody_is_named(folder: Path) -> None:
    folder.rename(folder.with_name("gone"))
    assert list(list_ssh_mentions()) == []


def test_includes_are_relative_to_the_folder_or_whole(folder: Path) -> None:
    (folder / "conf.d" / "b").write_text("Host b\n")
    (folder / "conf.d" / "a").write_text("Host a\n")
    (folder / "home").write_text("Host of-home\n")
    whole = folder / "whole"
    whole.write_text("Host whole\n")
    (folder / "config").write_text(f"Include conf.d/*\nInclude {whole} ~/.ssh/home nowhere/*\nHost last\n")
    (folder / "known_hosts").write_text("nas ssh-ed25519 AAAA\n")
    found = list(list_ssh_mentions())
    assert [each.name for each in found] == ["a", "b", "whole", "of-home", "last", "nas"]
    assert found[0].place == f"{folder}/conf.d/a:1"
    assert found[-1].place == "~/.ssh/known_hosts:1"


def test_bytes_that_are_no_text_harm_nobody(folder: Path) -> None:
    (folder / "config").write_bytes(b"# B\xfcro\nHost a\n")
    (folder / "conf.d" / "folder").mkdir()
    (folder / "known_hosts").write_bytes(b"\xff\xfe\n")
    assert [each.name for each in list_ssh_mentions()] == ["a"]


FILES = {
    "conf.d/*": [("conf.d/a", "Host inner\n HostName 10.0.0.9\n"), ("conf.d/b", "Include deeper\n")],
    "deeper": [("deeper", "\n\nHost deep\n")],
    "loop": [("loop", "Include loop\nHost looped\n")],
}


def included(pattern: str) -> Iterator[tuple[str, str]]:
    yield from FILES.get(pattern, [])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", [], id="nothing"),
        pytest.param("# Host a\n\n", [], id="a remark"),
        pytest.param("Host spark-1\n", [("spark-1", ())], id="a name alone"),
        pytest.param("host=a\nhostname = 10.0.0.1\n", [("a", ("10.0.0.1",))], id="small letters and ="),
        pytest.param("Host a b\n\tUser x\n", [("a", ()), ("b", ())], id="two names"),
        pytest.param("Host * !z spark-? a\n", [("a", ())], id="patterns"),
        pytest.param("Host a # the first\n", [("a", ())], id="a remark behind"),
        pytest.param('Host "a b"\n', [("a b", ())], id="quoted"),
        pytest.param('Host "a b\n', [('"a b', ())], id="a quote without its end"),
        pytest.param("Host $(reboot)\n", [("$(reboot)", ())], id="a shell's"),
        pytest.param("Host a\n HostName %h.lan\n", [("a", ("a.lan",))], id="%h"),
        pytest.param("Host a\n HostName h\n Port 2222\n", [("a", ("h:2222",))], id="a port"),
        pytest.param("Host g\n HostName git.example\n User git\n", [], id="a server of repositories"),
        pytest.param("Host a\nMatch host a\n HostName x\n", [("a", ())], id="what Match says is not read"),
        pytest.param(
            "Host a\n User x\nHost a\n HostName 10.0.0.1\n HostName 10.0.0.2\n",
            [("a", ("10.0.0.1",))],
            id="two blocks of one name, and the first value",
        ),
        pytest.param(
            "Host a\n HostName 10.0.0.1\nHost a b\n HostName 10.0.0.2\n",
            [("a", ("10.0.0.1",)), ("b", ("10.0.0.2",))],
            id="the first block holds",
        ),
        pytest.param(
            "Include conf.d/*\nHost last\n",
            [("inner", ("10.0.0.9",)), ("deep", ()), ("last", ())],
            id="Include, and Include in it",
        ),
        pytest.param("Include nowhere\nHost a\n", [("a", ())], id="Include of nothing"),
    ],
)
def test_hosts_are_named_by_the_config(text: str, expected: list[tuple[str, tuple[str, ...]]]) -> None:
    assert [(each.name, each.aliases) for each in parse_ssh_config(text, "config", included)] == expected


def test_a_file_that_includes_itself_ends() -> None:
    assert [each.name for each in parse_ssh_config("Include loop", "config", included)] == ["looped"]


def test_a_name_has_its_file_and_line() -> None:
    found = parse_ssh_config("\nHost a\nInclude deeper\n", "~/.ssh/config", included)
    assert [each.place for each in found] == ["~/.ssh/config:2", "deeper:3"]
    assert [where for where, _, _ in read_config_lines("Host a\n\nUser b", "f", included)] == ["f:1", "f:3"]


@pytest.mark.parametrize(
    ("text", "likely"),
    [
        pytest.param("Host a\n", True, id="a bare name"),
        pytest.param("Host a\nHostName 192.168.1.4\n", True, id="a private address"),
        pytest.param("Host a\nHostName a.example.com\n", False, id="a public name"),
        pytest.param("Host a\nProxyJump b\n", False, id="behind another"),
    ],
)
def test_who_is_taken_where_nothing_is_said(text: str, likely: bool) -> None:  # noqa: FBT001 - of a table
    assert parse_ssh_config(text, "config", included)[0].is_likely == likely
