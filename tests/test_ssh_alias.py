import pytest

from medley import ssh_config
from medley.problem import Problem
from medley.ssh_alias import with_aliases

OWN = "Host nas\n    HostName 192.168.1.9\n"
TWO = {"spark-2": "nvidia@192.168.100.11"}
BLOCK = """\
# medley: begin (from `medley init --keys`, which replaces what stands in here)
Host spark-2
    HostName 192.168.100.11
    User nvidia
# medley: end
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", BLOCK, id="no config"),
        pytest.param(OWN, f"{OWN}\n{BLOCK}", id="behind what is there"),
        pytest.param(OWN.rstrip("\n"), f"{OWN}\n{BLOCK}", id="no end of the last line"),
        pytest.param(f"{OWN}\n{BLOCK}", f"{OWN}\n{BLOCK}", id="a second time"),
        pytest.param(f"{BLOCK}\n{OWN}", f"{BLOCK}\n{OWN}", id="where it was moved to"),
        pytest.param("Host spark-2\n", "Host spark-2\n", id="a name that is taken"),
        pytest.param(f"{BLOCK}{OWN}{BLOCK}", f"{BLOCK}{OWN}", id="twice by hand"),
    ],
)
def test_the_block_is_there_once(text: str, expected: str) -> None:
    assert with_aliases(text, TWO) == expected


def test_what_is_in_it_stays_and_what_is_newer_holds() -> None:
    once = with_aliases(OWN, TWO)
    more = with_aliases(once, {"thor-1": "ssh://me@10.0.0.3:2222"})
    moved = with_aliases(more, {"spark-2": "192.168.100.12"})
    found = {each.name: each.also for each in ssh_config.mentions(moved, "", lambda _: ())}
    assert found == {
        "nas": ("192.168.1.9",),
        "spark-2": ("192.168.100.12",),
        "thor-1": ("10.0.0.3:2222",),
    }
    assert moved.count("# medley: begin") == moved.count("# medley: end") == 1
    assert with_aliases(moved, {}) == moved


def test_a_name_that_is_not_plain_is_not_written() -> None:
    assert with_aliases(OWN, {"a b\nHost *": "10.0.0.1"}) == OWN


def test_half_a_block_is_a_problem() -> None:
    with pytest.raises(Problem, match="half of medley's block"):
        with_aliases(f"{OWN}# medley: begin\nHost a\n", TWO)
