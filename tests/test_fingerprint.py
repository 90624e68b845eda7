import subprocess
from pathlib import Path

from medley import fingerprint


def test_it_is_what_sha256sum_says(tmp_path: Path) -> None:
    """So that a user can see for himself what was pinned."""
    for name, text in (("b.py", "2\n"), ("a.py", "1\n")):
        (tmp_path / name).write_text(text)
    files = {name: fingerprint.of_file(tmp_path / name) for name in ("b.py", "a.py")}
    said = subprocess.run(
        "sha256sum a.py b.py | sha256sum",
        shell=True,
        check=True,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert fingerprint.of_all(files) == said.stdout.split()[0]


def test_another_name_or_content_is_another() -> None:
    one = fingerprint.of_bytes(b"1")
    assert fingerprint.of_all({"a": one}) != fingerprint.of_all({"b": one})
    assert fingerprint.of_all({"a": one}) != fingerprint.of_all({"a": fingerprint.of_bytes(b"2")})
