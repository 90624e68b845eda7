import pytest

from medley.cli.cluster_options import without

SWITCHES = {"--detach": 0, "--cluster": 1}


@pytest.mark.parametrize(
    ("words", "left"),
    [
        ("serve demo", "serve demo"),
        ("serve --detach demo --restart", "serve demo --restart"),
        ("serve --cluster desk.toml demo", "serve demo"),
        ("serve --cluster=desk.toml demo --detach", "serve demo"),
        ("serve demo -- --cluster x --detach", "serve demo -- --cluster x --detach"),
        ("serve --clusters demo", "serve --clusters demo"),
    ],
)
def test_what_is_typed_elsewhere(words: str, left: str) -> None:
    assert without(words.split(), SWITCHES) == left.split()
