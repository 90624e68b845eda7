"""Every known failure has a log that shows it, and one that looks like it and must not match."""

from pathlib import Path

import pytest

from medley.explain import KNOWN, Explained, Log, explained

LOGS = Path(__file__).parent / "logs"
NAMES = [each.name for each in KNOWN]


def of(*texts: str) -> Explained:
    return explained(Log(f"log-{at}", [text.encode()]) for at, text in enumerate(texts))


def names(found: Explained) -> list[str]:
    return [each.hit.known.name for each in found.problems]


def read(path: Path) -> Explained:
    return explained([Log(path.name, [path.read_bytes()])])


@pytest.mark.parametrize("name", NAMES)
def test_is_named(name: str) -> None:
    found = read(LOGS / f"{name}.txt")
    assert names(found)[:1] == [name]
    table = found.problems[0].table
    assert all(table[key] for key in ("what", "cause", "fix", "line", "confidence", "file", "line_number"))
    said = f"{table['what']} {table['cause']} {table['fix']}"
    assert "?" not in said


def test_a_length_can_be_typed() -> None:
    """vLLM says the model's as a fraction."""
    line = "ValueError: User-specified max_model_len (99999) is greater than the derived max_model_len "
    found = of(f"{line}(max_position_embeddings=2048.0 or model_max_length=None in model's config.json).")
    assert found.first
    assert "--context 2048;" in found.first.problem().fix


@pytest.mark.parametrize("name", NAMES)
def test_is_not_mistaken(name: str) -> None:
    assert name not in names(read(LOGS / "not" / f"{name}.txt"))


@pytest.mark.parametrize("file", sorted((LOGS / "healthy").glob("*.txt")), ids=lambda file: file.stem)
def test_a_healthy_log_is_healthy(file: Path) -> None:
    found = read(file)
    assert not names(found)
    assert not found.unknown


def test_logs_and_index_agree() -> None:
    listed = {
        line.split("|")[1].strip()
        for line in (LOGS / "README.md").read_text().splitlines()
        if line[:2] == "| "
    }
    listed -= {"failure", "log"}
    assert len(NAMES) == len(set(NAMES))
    assert {file.stem for file in LOGS.glob("*.txt")} == set(NAMES)
    assert {file.stem for file in (LOGS / "not").glob("*.txt")} == set(NAMES)
    assert set(NAMES) <= listed


def test_needles_are_selective() -> None:
    """Each is looked for without what varies from line to line."""
    needles = {shape.needle for each in KNOWN for shape in each.shapes}
    assert not [
        needle for needle in needles if len(needle.translate(str.maketrans("", "", "0123456789abcdef"))) < 3
    ]
