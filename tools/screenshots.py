"""Pictures of medley in a terminal, for README.md and docs/: `python -m tools.screenshots [NAME…]`.

Each command really runs, on a terminal of 100 columns, and what it shows becomes docs/pictures/NAME.svg. The
host is named desk there, the home is `~`, and the hosts of `doctor` are recorded. `serve` and `status` run
a small model.
"""

import fcntl
import os
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

from tools.documents import DOCS

ROOT = DOCS.parent
PICTURES = DOCS / "pictures"
RECORDED = ROOT / "tests" / "host" / "recorded"
HOST = "desk"
COLUMNS, ROWS = 100, 60
LIMIT_S = 600
_CONTROL = re.compile(
    r"\x1b\[([?\d;]*)([A-Za-z])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\r\n|\r|\n|[^\x1b\r\n]+|\x1b"
)
_FONTS = re.compile(r"\s*@font-face \{\{.*?\}\}", re.DOTALL)


@dataclass(frozen=True)
class Scene:
    """What is typed, and what is done around it, which is not shown."""

    typed: str
    until: str | None = None
    """What it shows when it has shown enough; it then gets a Ctrl-C. None: it ends by itself."""
    before: str | None = None
    after: str | None = None


SCENES: Mapping[str, Scene] = {
    "help": Scene("medley --help"),
    "plan": Scene("medley plan gpt-oss-120b --hosts spark:2"),
    "doctor": Scene("medley doctor --from spark-1.txt spark-2.txt"),
    "error": Scene("medley serve qwen3-235b"),
    "serve": Scene("medley serve smollm2", until="Ctrl-C ends it"),
    "status": Scene("medley status", before="medley serve smollm2 --detach", after="medley stop"),
}


def screen(shown: str) -> str:
    """What a terminal has at last of what a program wrote: lines with their colors."""
    lines, at, fresh, style = [""], 0, False, ""
    for found in _CONTROL.finditer(shown):
        number, letter = found[1] or "", found[2]
        if found[0] in {"\n", "\r\n"}:
            at, fresh = at + 1, True
            lines += [""] * (at + 1 - len(lines))
        elif found[0] == "\r":
            fresh = True
        elif letter == "A":
            at = max(0, at - int(number or 1))
        elif letter == "K":
            lines[at] = ""
        elif letter == "m" and fresh:
            style += found[0]
        elif letter == "m" or not found[0].startswith("\x1b"):
            # A program that goes back writes the whole line again.
            lines[at] = style + found[0] if fresh else lines[at] + found[0]
            fresh, style = False, ""
    return "\n".join(lines).rstrip()


def picture(typed: str, shown: str) -> str:
    """An SVG of a terminal; the fonts are the reader's own, because a picture fetches nothing."""
    console = Console(
        record=True, width=COLUMNS, file=StringIO(), force_terminal=True, color_system="truecolor"
    )
    console.print(Text.assemble(("$ ", "bold green"), (typed, "bold")))
    console.print(Text.from_ansi(screen(shown)))
    console.print()  # the picture cuts off the lower ends of its last line
    return console.export_svg(title="medley", code_format=_FONTS.sub("", CONSOLE_SVG_FORMAT))


def public(shown: str, home: Path) -> str:
    """The text with paths as a reader has them; an error where it still names this machine."""
    cache = Path.home() / ".cache" / "medley"
    for path, name in ((home, "~"), (cache.resolve(), "~/.cache/medley"), (ROOT, "~/medley")):
        shown = shown.replace(str(path), name)
    for private in (str(Path.home()), str(Path.home().resolve()), os.uname().nodename):
        if re.search(rf"(?<![\w.-]){re.escape(private)}(?![\w.-])", shown):
            raise SystemExit(f"the picture would show {private!r}:\n{shown}")
    return shown


def shown(scene: Scene, home: Path) -> str:
    """All that a command writes to its terminal."""
    own, other = os.openpty()
    fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    process = subprocess.Popen(
        _words(scene.typed, "setsid", "--ctty", "--wait"),
        stdin=other,
        stdout=other,
        stderr=other,
        cwd=home,
        env=_environment(home),
    )
    os.close(other)
    text, deadline = "", time.monotonic() + LIMIT_S
    for some in _read(own, deadline):
        text += some
        if scene.until and scene.until in text:
            text += "".join(_read(own, time.monotonic() + 1))
            os.write(own, b"\x03")
            break
    for _ in _read(own, deadline):
        pass
    os.close(own)
    process.wait(30)
    return text


def _read(terminal: int, deadline: float) -> Iterator[str]:
    """What comes from a terminal until its program ends or the time is over."""
    while (left := deadline - time.monotonic()) > 0:
        if select.select([terminal], [], [], min(left, 0.2))[0]:
            try:
                some = os.read(terminal, 65536)
            except OSError:  # the program has ended
                return
            yield some.decode(errors="replace")


def _words(typed: str, *before: str) -> list[str]:
    """A command on a host of another name."""
    user = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    inside = f"hostname {HOST}; exec {' '.join(before)} {typed}"
    return ["unshare", *user, "--uts", "sh", "-c", inside]


def _environment(home: Path) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
    return {
        "HOME": str(home),
        "PATH": path,
        "TERM": "xterm-256color",
        "COLORTERM": "truecolor",
        "LANG": "C.UTF-8",
    }


@contextmanager
def a_home() -> Iterator[Path]:
    """A home that has nothing but the transcripts of two hosts, and the engines that are built here."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / ".cache").mkdir()
        (home / ".cache" / "medley").symlink_to(Path.home() / ".cache" / "medley")
        shutil.copy(RECORDED / "spark-mtu-mismatch.txt", home / "spark-1.txt")
        shutil.copy(RECORDED / "spark-pair-b.txt", home / "spark-2.txt")
        yield home


def drawn(scene: Scene) -> str:
    """The picture of a scene."""
    with a_home() as home:
        _run(scene.before, home)
        try:
            text = public(shown(scene, home), home)
        finally:
            _run(scene.after, home)
    return picture(scene.typed, text)


def _run(typed: str | None, home: Path) -> None:
    if typed:
        subprocess.run(_words(typed), cwd=home, env=_environment(home), check=True)


def main() -> None:
    # A shell's background job ignores it, and so would what it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    PICTURES.mkdir(exist_ok=True)
    for name in sys.argv[1:] or SCENES:
        (PICTURES / f"{name}.svg").write_text(drawn(SCENES[name]), encoding="utf-8")
        print(f"docs/pictures/{name}.svg")


if __name__ == "__main__":
    main()
