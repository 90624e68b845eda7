import pytest

from medley.serving.community_recipe.document import MAX_RECIPE_BYTES, is_yes, read_document, read_table
from medley.serving.community_recipe.recipe_keys import list_host_entries
from tests.problems import raises_problem


def test_the_table_of_a_recipe_has_plain_values() -> None:
    text = "model: a/b\ndefaults:\n  port: 8000\n  eager: true\n  share: 0.80\n  sizes: [1, 2]\n  none:\n"
    found = read_document(text.encode(), "r.yaml")
    assert found["model"] == "a/b"
    assert read_table(found, "defaults", "r.yaml") == {
        "port": 8000,
        "eager": True,
        "share": 0.8,
        "sizes": "[1,2]",
        "none": None,
    }
    assert read_table(found, "env", "r.yaml") == {}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *((word, word) for word in ("12:30:00", "190:20:30.15", "1_000", "0b11", "2026-13-45", "=")),
        *((word, word) for word in ("yes", "No", "on", "OFF", "y")),
        ("010", 10),
        ("0x10", 16),
        ("0o10", 8),
        ("+5", 5),
        ("-5", -5),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("1.", 1.0),
        ("-.inf", float("-inf")),
        ("True", True),
        ("~", None),
        ("'010'", "010"),
    ],
)
def test_a_plain_value_is_what_yaml_1_2_has(text: str, value: object) -> None:
    read_value = read_document(f"a: {text}".encode(), "r.yaml")["a"]
    assert (read_value, type(read_value)) == (value, type(value))
    assert read_document(f"{{no: [{text}]}}".encode(), "r.yaml") == {"no": [value]}


@pytest.mark.parametrize("word", ["no", "Off", "false", "0", "''", ""])
def test_a_switch_is_also_off_in_other_words(word: str) -> None:
    recipe = read_document(f"model: a/b\nsolo_only: {word}".encode(), "r.yaml")
    assert not is_yes(recipe["solo_only"])
    assert list(list_host_entries(recipe)) == []
    recipe = read_document(b"model: a/b\nsolo_only: yes", "r.yaml")
    assert [entry.words for entry in list_host_entries(recipe)] == [("--hosts", "1")]


@pytest.mark.parametrize(
    ("raw", "cause"),
    [
        pytest.param(b"- a\n", "not a table", id="a list"),
        pytest.param(b"<html><body>\n: :", "<", id="a page of the web"),
        pytest.param(b"a: !!python/object/apply:os.system [id]", "could not determine", id="code in a tag"),
        pytest.param(b"a: &x [1]\nb: *x", "line 2 has the alias *x", id="an alias"),
        pytest.param(b"a: " + b"[" * 40 + b"]" * 40, "nests deeper than 16", id="a deep one"),
        pytest.param(b"a: " + b"[" * 5000, "nests deeper", id="one too deep for the reader"),
        pytest.param(b"a: b\n" * MAX_RECIPE_BYTES, "more than 128 KiB", id="a long one"),
        pytest.param(b"a: \xff", "utf-8", id="not UTF-8"),
        pytest.param(b'a: b\nc: "\\e[2J"', "line 2 has the control character U+001B", id="for a terminal"),
        pytest.param(b'a: "\\u202ex"', "U+202E", id="text that runs backwards"),
        pytest.param(b"a: !!int 12:30", "12:30", id="a number that is none"),
    ],
)
def test_what_is_not_a_recipe_is_refused(raw: bytes, cause: str) -> None:
    with raises_problem("r.yaml", cause=cause, fix="medley models import FILE"):
        read_document(raw, "r.yaml")


def test_a_list_where_a_table_should_be_is_named() -> None:
    with raises_problem("r.yaml", "'env'", cause="list"):
        read_table({"env": ["A=1"]}, "env", "r.yaml")
