"""No page, message or table uses a word that docs/contributing/style.md forbids."""

import pytest

from tools.language import READ, faults, found, paths, prose, texts


@pytest.mark.parametrize("place", READ)
def test_no_forbidden_word(place: str) -> None:
    files = list(paths(place))
    assert files
    assert [each for path in files for each in faults(path)] == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("the wire that all hosts share", ["wire"], id="a word of ours"),
        pytest.param("this is no file", ["is no file"], id="a noun negated"),
        pytest.param("there is no file, and it is no longer here", [], id="plain negations"),
        pytest.param("quantised Neighbours", ["Neighbours", "quantised"], id="British spelling"),
        pytest.param("a colored, wired network; ready at once", ["at once"], id="whole words only"),
    ],
)
def test_what_is_found(text: str, words: list[str]) -> None:
    assert sorted(word for _, word, _ in found(text)) == sorted(words)


def test_code_in_a_page_is_not_prose() -> None:
    page = "Say `wire` here.\n\n```console\n$ wire\n```\n\n    wire\n\nand a wire\n"
    assert [(at, word) for at, word, _ in found(prose(page))] == [(8, "wire")]


def test_docstrings_and_keys_of_a_module_are_not_messages() -> None:
    module = '"""A wire."""\nKEY = "wire"\nTEXT = f"{KEY} is the wire of all"\n'
    assert [line for line, text in texts(module) if list(found(text))] == [3]
