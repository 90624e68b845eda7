import pytest

from medley.config import line

TEXT = """\
link = "10.0.0.0/24"

[hosts.spark-1]
role = "head"   # the first

[hosts."spark 2"]
ssh = '''
role = "no key"
'''
a.b = 1
inline = { c = 2 }

[[failure]]
name = 'first'
log = ['''
[[failure]]
name = 'no key'
''']
[[failure]]  # it's the second
name = "it's '''"
[[failure.sign]]
needle = "a"
[[failure.sign]]
needle = "b"
"""


@pytest.mark.parametrize(
    ("path", "number"),
    [
        pytest.param(("link",), 1, id="a key"),
        pytest.param(("hosts", "spark-1"), 3, id="a table"),
        pytest.param(("hosts", "spark-1", "role"), 4, id="a key of a table"),
        pytest.param(("hosts", "spark-1", "kind"), 3, id="a key that is missing"),
        pytest.param(("hosts", "spark 2", "ssh"), 7, id="a quoted table"),
        pytest.param(("hosts", "spark 2", "a", "b"), 10, id="a dotted key"),
        pytest.param(("hosts", "spark 2", "inline", "c"), 11, id="in an inline table"),
        pytest.param(("hosts", "spark 2", "ssh", 0), 7, id="a place in a list"),
        pytest.param(("hosts",), 3, id="a table that only has tables"),
        pytest.param(("hosts", "spark 2", "role"), 6, id="no key is in a string of several lines"),
        pytest.param(("failure", 0, "log", 0), 15, id="a key of the first of several tables"),
        pytest.param(("failure", 1), 19, id="the second of several tables"),
        pytest.param(("failure", 1, "name"), 20, id="a key of the second"),
        pytest.param(("failure", 1, "sign", 1, "needle"), 24, id="a key of the second in the second"),
        pytest.param(("other",), None, id="nowhere"),
    ],
)
def test_where_a_key_stands(path: tuple[str | int, ...], number: int | None) -> None:
    assert line(TEXT, path) == number
