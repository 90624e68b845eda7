"""Type the commands of docs/tutorials/two-sparks.md on two simulated hosts.

The hosts have the names of the page, and their cable that of a Spark's port. What differs: they have no GPU,
so their kind is `cpu`; the model is the demo in a folder, cut in two stages; a switch answers each question.
"""

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager

from medley import config
from medley.command import Command
from medley.model import demo
from tests.rack import ssh
from tests.rack.cluster import MEDLEY
from tests.rack.host import Host
from tests.rack.rack import Rack, up
from tests.rack.spec import Link, Spec
from tools.tutorials.pages import CHAT, TUTORIALS, Step

PAGE = TUTORIALS / "two-sparks.md"
HOSTS = {"spark-1": "host1", "spark-2": "host2"}
CABLE = Link.cable("cable", *HOSTS.values(), mtu=9000, interface="enp1s0f0np0")
MODEL, FOLDER = "gpt-oss-120b", "/tmp/home/gpt-oss-120b"
BY_HAND = {"# pull the cable out": Rack.cut, "# put the cable back": Rack.mend}
AS_ROOT = "sudo $(command -v medley)"
LIMIT_S = 200


@contextmanager
def sparks(name: str) -> Iterator[Rack]:
    """Two hosts as they come: ssh works, and their cable has no address."""
    with up(Spec(2, (Link("lan"), CABLE), name=name)) as rack:
        ssh.serve(rack)
        for host in rack.hosts:
            _arrive(host)
        yield rack


def _arrive(host: Host) -> None:
    host.says("hostname", next(new for new, old in HOSTS.items() if old == host.name))
    for file in ("/etc/hosts", "/tmp/home/.ssh/known_hosts"):
        text = host.path(file).read_text()
        for new, old in HOSTS.items():
            text = re.sub(rf"\b{old}\b(?!\.)", new, text)
        host.path(file).write_text(text)
    host.says("ip", "route", "add", "default", "via", "10.78.0.9")
    host.says("ip", "address", "flush", "dev", str(CABLE.interface))
    if host.name == "host1":
        made = config.load_models()["demo"].made
        assert made
        demo.make_model(made, host.path(FOLDER))


def typed(rack: Rack, step: Step) -> str:
    """Do what the page says; return what the command printed, in the words of the page."""
    if by_hand := BY_HAND.get(step.command):
        by_hand(rack, CABLE.name)
        return ""
    command, _, first = step.command.partition(" | head -")
    finished = rack[HOSTS[step.host]].run(Command(_words(command)), limit_s=LIMIT_S)
    lines = finished.lines[: int(first) if first else None]
    printed = "\n".join(lines).replace(FOLDER, MODEL).replace(f"medley {CHAT} ", "medley chat ")
    return re.sub(r"\bcpu(?=[,:])", "spark", printed)


def _words(command: str) -> tuple[str, ...]:
    first, *words = shlex.split(command.replace(AS_ROOT, "medley"))
    if first != "medley":
        return (first, *words)
    verb = words[0]
    if verb in {"pull", "serve"}:
        words = [FOLDER if word == MODEL else word for word in words]
    more = {"init": ["--yes"], "link": ["--yes"] if "setup" in words else [], "serve": ["--pp", "2"]}.get(
        verb, []
    )
    return (*MEDLEY, CHAT if verb == "chat" else verb, *words[1:], *more)
