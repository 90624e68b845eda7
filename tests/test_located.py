import pytest

from medley.located import line

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
        pytest.param(("other",), None, id="nowhere"),
    ],
)
def test_where_a_key_stands(path: tuple[str | int, ...], number: int | None) -> None:
    assert line(TEXT, path) == number
