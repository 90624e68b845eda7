"""The text of cluster.toml, with what a reader needs to change it by hand."""

import json
import re
import textwrap
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from medley import config
from medley.cluster import Cluster

_WIDTH = 100
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_FIRST = (
    "The hosts of a cluster, for `medley up`. Written by `medley init`; change what you like: "
    "medley reads it and never writes it by itself. A key that begins with # is not set."
)
_MORE = """\
# What else a host may have, below its [hosts.NAME]:
#
# kind = "spark"              # its kind of host, where medley does not recognise it by itself
# link = "192.168.100.11"     # its wire: an interface, an address or a network
# exclude = ["wlP9s9"]        # interfaces of it that are never taken
# slots = 1                   # how many ranks it takes; else one for each GPU
# env = "/path/to/venv"       # an engine environment by name, or a virtualenv of your own
# image = "default"           # or an image; "default": its kind's own, as JetPack 6 needs
# medley = "/path/to/medley"  # how medley is started there, where ssh does not find it
"""


@dataclass(frozen=True)
class Row:
    """A host of it; `about` is said in a comment."""

    name: str
    target: str
    head: bool
    about: str
    parts: tuple[str, ...] = ()
    """Further comments, each on lines of its own."""
    imaged: bool = False
    """There are no wheels for it, and an image there is."""


def text(rows: Sequence[Row], wire: Sequence[str], network: str | None) -> str:
    """`wire` is what is said of the wire that all share, `network` that network."""
    lines = [
        *_comment(_FIRST),
        "",
        "# The wire of all, as a network; not set, the best that all share is taken.",
        *(line for each in wire for line in _comment(each)),
        f"# link = {_string(network or '192.168.100.0/24')}",
        "",
        "# Interfaces that are never taken, on any host.",
        '# exclude = ["wlan0"]',
        "",
        "# vllm or sglang.",
        'engine = "vllm"',
        "",
        *(line for row in rows for line in _row(row)),
    ]
    return "\n".join(lines) + "\n" + _MORE


def read_back(made: str) -> Cluster:
    """The cluster that such a text says."""
    return config.build(tomllib.loads(made), Cluster, "cluster.toml", made)


def _row(row: Row) -> Iterator[str]:
    yield f"[hosts.{row.name if _BARE.fullmatch(row.name) else _string(row.name)}]"
    for each in (row.about, *row.parts):
        yield from _comment(each)
    if row.head:
        yield 'role = "head"  # the others join it, and models are served here; one host has it'
    if row.imaged:
        yield 'image = "default"  # the engine out of a container: no lock can be made for this kind'
    if row.target != row.name:
        yield f"ssh = {_string(row.target)}  # what ssh is told to connect to"
    yield ""


def _comment(said: str) -> Iterable[str]:
    """In lines; TOML has no control characters in comments."""
    plain = "".join(letter if letter.isprintable() else " " for letter in said)
    return textwrap.wrap(
        plain,
        _WIDTH,
        initial_indent="# ",
        subsequent_indent="# ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _string(word: str) -> str:
    """JSON's strings of plain letters are TOML's too."""
    return json.dumps(word)
