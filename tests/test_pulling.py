import pytest

from medley.pulling import reference


@pytest.mark.parametrize(
    ("digests", "origin", "host"),
    [
        pytest.param({"a": "x"}, None, "a", id="one"),
        pytest.param({"a": "x", "b": "y", "c": "y"}, None, "b", id="the first of the most"),
        pytest.param({"a": "x", "b": "y"}, None, "a", id="two that differ"),
        pytest.param({"a": "x", "b": "y", "c": "y"}, "a", "a", id="as the user says"),
        pytest.param({"a": "x"}, "b", "a", id="the user's has none"),
    ],
)
def test_whose_copy_counts(digests: dict[str, str], origin: str | None, host: str) -> None:
    assert reference(digests, origin) == host
