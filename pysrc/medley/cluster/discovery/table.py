"""Write cluster.toml for the surveyed hosts."""

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
    "The hosts of a cluster, for `medley up`. Written by `medley init`; change it as you like: "
    "only `medley init` writes it. A key that begins with # is not set."
)
_MORE = """\
# More keys of a host, below its [hosts.NAME]:
#
# kind = "spark"              # its kind of host, where medley does not recognize it
# link = "192.168.100.11"     # its link: an interface, an address or a network
# exclude = ["wlP9s9"]        # interfaces of it that are never used
# slots = 1                   # how many ranks it runs; default: one per GPU
# env = "/path/to/venv"       # an engine environment by name, or your own virtualenv
# image = "default"           # or an image; "default": the one of its kind, as JetPack 6 needs
# medley = "/path/to/medley"  # the command of medley, where ssh does not find it
"""


def cluster_text(hosts: Mapping[str, HostSurvey], head: str, why: Sequence[str], network: str | None) -> str:
    """Return a cluster.toml; `why` are comments on the shared `network`."""
    lines = [
        *_comment(_FIRST),
        "",
        "# The network of the cluster; default: the best one that all hosts share.",
        *(line for each in why for line in _comment(each)),
        f"# link = {json.dumps(network or '192.168.100.0/24')}",
        "",
        "# Interfaces that are never used, on any host.",
        '# exclude = ["wlan0"]',
        "",
        "# vllm or sglang.",
        'engine = "vllm"',
        "",
        *(line for name, each in hosts.items() for line in _host(name, each, is_head=name == head)),
    ]
    return "\n".join(lines) + "\n" + _MORE


def read_back(made: str) -> Cluster:
    return config.build(tomllib.loads(made), Cluster, "cluster.toml", made)


def _host(name: str, found: HostSurvey, *, is_head: bool) -> Iterator[str]:
    # JSON's strings of plain letters are TOML's too.
    yield f"[hosts.{name if _BARE.fullmatch(name) else json.dumps(name)}]"
    for each in found.comments:
        yield from _comment(each)
    if is_head:
        yield 'role = "head"  # the others join it, and it serves the models; only one host has it'
    if found.imaged:
        yield 'image = "default"  # runs the engine in a container: there is no lock for this kind'
    if found.target != name:
        yield f"ssh = {json.dumps(found.target)}  # the target of ssh"
    yield ""


def _comment(text: str) -> Iterable[str]:
    """Wrap a comment; TOML has no control characters in comments."""
    plain = "".join(letter if letter.isprintable() else " " for letter in text)
    return textwrap.wrap(
        plain,
        _WIDTH,
        initial_indent="# ",
        subsequent_indent="# ",
        break_long_words=False,
        break_on_hyphens=False,
    )
