"""Build the documentation site, strictly: `python -m tools.site` (docs/.site).

The builder is not among the project's packages. It comes from locks/docs.txt into a virtualenv that is kept
in ~/.cache between runs. A warning fails the build, and so does a page that fetches from another server.
"""

import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tools import architecture, decisions
from tools.documents import DOCS

LOCK = DOCS.parent / "locks" / "docs.txt"
SITE = DOCS / ".site"
_FETCHED = re.compile(r"""<(?!a\b)[a-z]+\b[^>]*?\b(?:src|href)=["']?((?:https?:)?//[^"'\s>]+)""")
_IMPORTED = re.compile(r"""(?:url\(|@import\s+)["']?((?:https?:)?//[^"')\s]+)""")
# The theme's script loads these from a CDN where a page has such elements.
_LOADS = re.compile(r"""class=["'](?:[^"']*\s)?(mermaid|glightbox|pyodide)\b""")


def build() -> None:
    """Build the site, or end with what is wrong."""
    shutil.rmtree(SITE, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "docs"
        shutil.copytree(DOCS, source)
        for page, title, table in (
            (architecture.PAGE, "Every module", architecture.modules()),
            (decisions.PAGE, "Where each is decided", decisions.tables()),
        ):
            with (source / page.relative_to(DOCS)).open("a", encoding="utf-8") as file:
                file.write(f"\n## {title}\n\n{table}\n")
        words = (str(builder()), "build", "--strict", "--clean", "--config-file", str(source / "mkdocs.yml"))
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        said = done.stdout + done.stderr
        if (source / SITE.name).exists():
            shutil.move(source / SITE.name, SITE)
    if done.returncode or "No issues found" not in said:
        sys.exit(f"{said.partition('Traceback')[0]}the site is not built")
    if found := [fault for page in sorted(SITE.rglob("*")) for fault in faults(page)]:
        sys.exit("\n".join(found))
    print(f"{len(list(SITE.rglob('*.html')))} pages in {SITE}")


def builder() -> Path:
    """The program that builds it, installed from its lock."""
    folder = Path.home() / ".cache" / "medley-tests" / f"docs-{_digest()}"
    program, done = folder / "bin" / "zensical", folder / "done"
    if not done.exists():
        subprocess.run((sys.executable, "-m", "venv", "--clear", folder), check=True)
        pip = (folder / "bin" / "pip", "install", "-q", "--require-hashes", "-r", LOCK)
        subprocess.run(pip, check=True)
        done.touch()
    return program


def _digest() -> str:
    """Of the lock and the Python that runs it."""
    return hashlib.sha256(LOCK.read_bytes() + sys.version.encode()).hexdigest()[:12]


def faults(page: Path) -> Iterator[str]:
    """What a page or a style sheet of the site fetches from elsewhere, a line each."""
    if page.suffix not in {".html", ".css", ".svg"}:
        return
    text = page.read_text(encoding="utf-8")
    for pattern in (_FETCHED, _IMPORTED, _LOADS):
        for found in pattern.finditer(text):
            yield f"{page.name}: it fetches {found[1]}"


if __name__ == "__main__":
    build()
