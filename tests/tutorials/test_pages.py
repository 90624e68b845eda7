"""Pages are read into commands, and output is compared with its placeholders."""

import pytest

from tools.tutorials.pages import Step, difference, steps

PAGE = """\
```sh
not run
```
```console
spark-1$ medley up
one

two
spark-2$ hostname
```
```console
$ true
```
"""


def test_commands_are_read_in_their_order() -> None:
    assert list(steps(PAGE)) == [
        Step("spark-1", "medley up", ("one", "", "two")),
        Step("spark-2", "hostname", ()),
        Step("", "true", ()),
    ]


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        pytest.param(
            ("ready after … s: it answered '…'",),
            "ready after 31 s: it answered ' b c'\n",
            True,
            id="in a line",
        ),
        pytest.param(("…", "last"), "one\ntwo\nlast\n", True, id="lines before"),
        pytest.param(("…", "last", "…"), "last\n", True, id="no line is any number"),
        pytest.param(("first", "…", "last", ""), "first\n\nx\nlast\n", True, id="a blank line at the end"),
        pytest.param(("…", "last"), "one\nlast\nmore\n", False, id="a line more"),
        pytest.param(("1.0 of … GiB",), "1x0 of 2 GiB", False, id="a dot is a dot"),
        pytest.param((), "a word", False, id="nothing was shown"),
    ],
)
def test_placeholders(shown: tuple[str, ...], printed: str, same: bool) -> None:  # noqa: FBT001
    assert (difference(shown, printed) is None) == same
