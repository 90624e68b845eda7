import pytest

from medley.known_hosts import mentions

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
    found = mentions(text, "~/.ssh/known_hosts")
    assert [(each.name, each.target, each.also) for each in found] == expected


def test_a_name_has_its_line_and_is_not_taken_unasked() -> None:
    (found,) = mentions(f"\n{HASHED}\na$b {KEY}\n", "known")
    assert (found.name, found.where, found.likely) == ("a$b", "known:3", False)
