"""Write cluster.toml for hosts that were looked at."""

import json
import re
import textwrap
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence

from medley import config
from medley.cluster import Cluster
from medley.cluster.discovery.visit import HostSurvey

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


def cluster_text(hosts: Mapping[str, HostSurvey], head: str, wire: Sequence[str], network: str | None) -> str:
    """Return a cluster.toml; `wire` are comments on the network that all share, `network` that network."""
    lines = [
        *_comment(_FIRST),
        "",
        "# The wire of all, as a network; not set, the best that all share is taken.",
        *(line for each in wire for line in _comment(each)),
        f"# link = {json.dumps(network or '192.168.100.0/24')}",
        "",
        "# Interfaces that are never taken, on any host.",
        '# exclude = ["wlan0"]',
        "",
        "# vllm or sglang.",
        'engine = "vllm"',
        "",
        *(line for name, each in hosts.items() for line in _host(name, each, is_head=name == head)),
    ]
    return "\n".join(lines) + "\n" + _MORE


def read_back(made: str) -> Cluster:
    """Build the cluster of such a text."""
    return config.build(tomllib.loads(made), Cluster, "cluster.toml", made)


def _host(name: str, found: HostSurvey, *, is_head: bool) -> Iterator[str]:
    # JSON's strings of plain letters are TOML's too.
    yield f"[hosts.{name if _BARE.fullmatch(name) else json.dumps(name)}]"
    for each in found.comments:
        yield from _comment(each)
    if is_head:
        yield 'role = "head"  # the others join it, and models are served here; one host has it'
    if found.imaged:
        yield 'image = "default"  # the engine out of a container: no lock can be made for this kind'
    if found.target != name:
        yield f"ssh = {json.dumps(found.target)}  # what ssh is told to connect to"
    yield ""


def _comment(said: str) -> Iterable[str]:
    """Wrap a comment; TOML has no control characters in comments."""
    plain = "".join(letter if letter.isprintable() else " " for letter in said)
    return textwrap.wrap(
        plain,
        _WIDTH,
        initial_indent="# ",
        subsequent_indent="# ",
        break_long_words=False,
        break_on_hyphens=False,
    )
