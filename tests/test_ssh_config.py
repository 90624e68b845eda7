from collections.abc import Iterator

import pytest

from medley.ssh_config import lines, mentions

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
def test_hosts_are_named_by_it(text: str, expected: list[tuple[str, tuple[str, ...]]]) -> None:
    assert [(each.name, each.also) for each in mentions(text, "config", included)] == expected


def test_a_file_that_includes_itself_ends() -> None:
    assert [each.name for each in mentions("Include loop", "config", included)] == ["looped"]


def test_a_name_has_its_file_and_line() -> None:
    found = mentions("\nHost a\nInclude deeper\n", "~/.ssh/config", included)
    assert [each.where for each in found] == ["~/.ssh/config:2", "deeper:3"]
    assert [line.where for line in lines("Host a\n\nUser b", "f", included)] == ["f:1", "f:3"]


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
    assert mentions(text, "config", included)[0].likely == likely
