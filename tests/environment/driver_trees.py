"""Made-up trees of hosts, each a text: what lies where, and what is to be found there.

# what it is modelled on
kind orin                  the table of hosts/ that says where to look
machine aarch64
PATH                       a library of the machine
PATH i386                  one of another; `empty` is a file without bytes, `text` one that is no library
PATH -> TARGET             a link, as it stands on the host
= NAME PATH                what is loaded, in order
+ NAME PATH                what a library that is loaded may need besides
version 580.95.05          of the driver
problem WORDS              of the Problem's first line; `cause WORDS` and `fix WORDS` of the others
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from medley.host.driver_libraries import BEGIN_BYTES, LibraryFile

TREES = Path(__file__).parents[1] / "environment" / "drivers"
_SORTS = {"x86_64": (2, 62), "aarch64": (2, 183), "i386": (1, 3), "arm": (1, 40)}
_MOST_LINKS = 40


@dataclass(frozen=True)
class Tree:
    """A file is its first bytes; a link is its target."""

    files: Mapping[str, bytes]
    links: Mapping[str, str]
    said: tuple[tuple[str, str], ...]

    def all(self, word: str) -> list[str]:
        return [rest for each, rest in self.said if each == word]

    def one(self, word: str) -> str | None:
        return next(iter(self.all(word)), None)

    def look(self, path: str) -> LibraryFile | None:
        """As the real one does, within this tree."""
        real = self._real(path, _MOST_LINKS)
        if real in self.files:
            return real, self.files[real]
        return (real, b"") if path in self.links else None

    def _real(self, path: str, left: int) -> str:
        at = PurePosixPath("/")
        for part in path.split("/"):
            at = at.parent if part == ".." else at / part
            target = self.links.get(str(at))
            if target is not None and left:
                left -= 1
                at = PurePosixPath(self._real(str(at.parent / target), left))
        return str(at)

    def make(self, root: Path) -> None:
        """The same on disk, as if `root` were /."""
        for path, begin in self.files.items():
            there = root / path.lstrip("/")
            there.parent.mkdir(parents=True, exist_ok=True)
            there.write_bytes(begin)
        for path, target in self.links.items():
            there = root / path.lstrip("/")
            there.parent.mkdir(parents=True, exist_ok=True)
            there.symlink_to(f"{root}{target}" if target.startswith("/") else target)


def begin(sort: str) -> bytes:
    """The first bytes of a file of this sort."""
    if sort == "empty":
        return b""
    if sort == "text":
        return b"/* GNU ld script */\nINPUT(libc.so.6)"[:BEGIN_BYTES]
    bits, machine = _SORTS[sort]
    return bytes((0x7F, *b"ELF", bits, 1, 1, *bytes(9), 3, 0, machine, 0))


def parse(text: str) -> Tree:
    files, links, said = dict[str, bytes](), dict[str, str](), list[tuple[str, str]]()
    lines = [line.split(" #")[0].split() for line in text.splitlines() if line and line[0] != "#"]
    machine = next(words[1] for words in lines if words[0] == "machine")
    for first, *rest in lines:
        if not first.startswith("/"):
            said.append((first, " ".join(rest)))
        elif rest[:1] == ["->"]:
            links[first] = rest[1]
        else:
            files[first] = begin(rest[0] if rest else machine)
    return Tree(files, links, tuple(said))


def trees() -> dict[str, Tree]:
    return {path.stem: parse(path.read_text(encoding="utf-8")) for path in sorted(TREES.glob("*.txt"))}
