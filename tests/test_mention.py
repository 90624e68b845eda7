import pytest

from medley.mention import Mention, is_near, is_plain, parts, refusal, typed
from medley.problem import Problem


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
    mention = typed(word)
    assert (mention.name, mention.target) == (name, target)
    assert parts(mention.target) == told


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
    with pytest.raises(Problem, match="is no host"):
        typed(word)


@pytest.mark.parametrize("word", BAD)
def test_a_name_that_is_not_plain(word: str) -> None:
    assert not is_plain(word)
    problem = refusal(Mention(word, "ssh config", "~/.ssh/config:7"))
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
    assert is_near(word) == near


def test_a_port_goes_into_what_ssh_is_told() -> None:
    assert Mention("box", "known_hosts", "f:1", port=2222).target == "ssh://box:2222"
