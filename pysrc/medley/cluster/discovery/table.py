"""Write cluster.toml for the surveyed hosts."""

import json
import re
import textwrap
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence

from medley import config
from medley.cluster.cluster_file import Cluster
from medley.cluster.discovery.visit import HostSurvey

_MAX_LINE_CHARS = 100
_BARE_KEY_PATTERN = re.compile(r"[A-Za-z0-9_-]+")
_HEADER = (
    "The hosts of a cluster, for `medley up`. Written by `medley init`; change it as you like: "
    "only `medley init` writes it. A key that begins with # is not set."
)
_MORE_KEYS = """\
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


def format_cluster(
    hosts: Mapping[str, HostSurvey], head: str, notes: Sequence[str], network: str | None
) -> str:
    """Return a cluster.toml; `notes` are comments on the shared `network`."""
    lines = [
        *_format_comment(_HEADER),
        "",
        "# The network of the cluster; default: the best one that all hosts share.",
        *(line for note in notes for line in _format_comment(note)),
        f"# link = {json.dumps(network or '192.168.100.0/24')}",
        "",
        "# Interfaces that are never used, on any host.",
        '# exclude = ["wlan0"]',
        "",
        "# vllm or sglang.",
        'engine = "vllm"',
        "",
        *(
            line
            for name, survey in hosts.items()
            for line in _format_host(name, survey, is_head=name == head)
        ),
    ]
    return "\n".join(lines) + "\n" + _MORE_KEYS


def parse_cluster(text: str) -> Cluster:
    return config.build_table(tomllib.loads(text), Cluster, "cluster.toml", text)


def _format_host(name: str, survey: HostSurvey, *, is_head: bool) -> Iterator[str]:
    # JSON's strings of plain letters are TOML's too.
    yield f"[hosts.{name if _BARE_KEY_PATTERN.fullmatch(name) else json.dumps(name)}]"
    for comment in survey.comments:
        yield from _format_comment(comment)
    if is_head:
        yield 'role = "head"  # the others join it, and it serves the models; only one host has it'
    if survey.is_container_only:
        yield 'image = "default"  # runs the engine in a container: there is no lock for this kind'
    if survey.target != name:
        yield f"ssh = {json.dumps(survey.target)}  # the target of ssh"
    yield ""


def _format_comment(text: str) -> Iterable[str]:
    """Return the lines of a wrapped comment; TOML has no control characters in comments."""
    plain = "".join(letter if letter.isprintable() else " " for letter in text)
    return textwrap.wrap(
        plain,
        _MAX_LINE_CHARS,
        initial_indent="# ",
        subsequent_indent="# ",
        break_long_words=False,
        break_on_hyphens=False,
    )
