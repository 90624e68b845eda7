"""What can be typed after `medley`: a tree of verbs and their switches, and what each of their words may be.

`bash`, `zsh` and `fish` write it as a script that is text alone, so that Tab starts no Python; `manual` as
a page.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class Offer:
    """What a word may be: these, a host of cluster.toml, a file; nothing of it, where nobody can know."""

    words: tuple[str, ...] = ()
    hosts: bool = False
    files: bool = False

    def __or__(self, other: "Offer") -> "Offer":
        words = dict.fromkeys((*self.words, *other.words))
        return Offer(tuple(words), self.hosts or other.hosts, self.files or other.files)


NOTHING = Offer()
FILES = Offer(files=True)
HOSTS = Offer(hosts=True)


@dataclass(frozen=True)
class Switch:
    """One switch as it is typed: its names with their dashes, and its argument if it takes one."""

    names: tuple[str, ...]
    about: str
    argument: str | None = None
    offer: Offer = NOTHING
    repeats: bool = False


HELP = Switch(("-h", "--help"), "show what there is, with examples")


@dataclass(frozen=True)
class Verb:
    """`medley` itself, a verb, or a verb of a verb: `path` is what is typed after `medley` to have it."""

    path: tuple[str, ...]
    about: str
    more: str = ""
    usage: tuple[str, ...] = ()
    switches: tuple[Switch, ...] = ()
    offer: Offer = NOTHING
    verbs: tuple["Verb", ...] = ()

    @property
    def name(self) -> str:
        return self.path[-1] if self.path else "medley"

    @property
    def typed(self) -> tuple[Switch, ...]:
        """Its switches, and that of all verbs."""
        return (*self.switches, HELP)

    def all(self) -> "Iterator[Verb]":
        """The verb itself, and every one below it."""
        yield self
        for verb in self.verbs:
            yield from verb.all()


HOST_NAMES = r"""
for file in "${MEDLEY_CLUSTER-}" cluster.toml \
    "${MEDLEY_CONFIG:-${XDG_CONFIG_HOME:-$HOME/.config}/medley}/cluster.toml"; do
    [ -f "$file" ] || continue
    sed -n -e 's/^ *\[hosts\.\([A-Za-z0-9_-]*\)\].*/\1/p' \
        -e 's/^ *\[hosts\."\([A-Za-z0-9._-]*\)"\].*/\1/p' "$file"
    break
done
""".strip()
"""The hosts of the table that medley would take, in POSIX shell. A shell may expand what it is offered, and
the table may be a stranger's: what is no name of a host is left out."""
