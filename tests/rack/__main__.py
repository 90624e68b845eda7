"""The rack as a command: hosts to play with, that stay until they are taken down."""

import os
import re
import sys
from pathlib import Path
from typing import Any, NoReturn

try:
    from plumbum import cli
except ModuleNotFoundError:
    sys.exit("python -m tests.rack needs the clone's virtualenv: .venv/bin/python -m tests.rack")

from medley.cli import UsageError, Verb
from medley.errors import Problem
from tests.rack import running_racks, ssh
from tests.rack.init import HOME
from tests.rack.rack import Rack, found
from tests.rack.rack import up as bring_up
from tests.rack.spec import Link, Spec


class Racks(Verb):
    PROGNAME = "python -m tests.rack"
    DESCRIPTION = "Hosts made of namespaces on this machine: own network, /tmp, $HOME, /dev/shm, processes."
    DESCRIPTION_MORE = """
Examples:
    python -m tests.rack up 4        host1 … host4 on one switch
    python -m tests.rack x host1 ping -c1 host2
    python -m tests.rack x host1     a shell on it
    python -m tests.rack ls          what is up, in running tests too
    python -m tests.rack down"""
    USAGE = "    {progname} up|ls|x|down [SWITCHES] ...\n"

    def main(self, *words: str) -> int:
        if self.nested_command:
            return 0
        if words:
            raise UsageError(f"{self.PROGNAME}: there is no {words[0]!r}\n  see:   {self.PROGNAME} --help")
        self.help()
        return 0


class Named(Verb):
    name = cli.SwitchAttr(
        "--name", str, default="rack", argname="NAME", help="which rack, where there are several"
    )


@Racks.subcommand("up")
class Up(Named):
    DESCRIPTION = "Bring so many hosts up; they stay until `down`."
    DESCRIPTION_MORE = """
Examples:
    python -m tests.rack up 2
    python -m tests.rack up 2 --cpus host2=0.3 --sshd
    python -m tests.rack up 4 --link lan --link fast:host1,host2,host3:400     400 Mbit/s
    python -m tests.rack up 2 --link lan --cable cx7:host1,host2:2000"""

    links = cli.SwitchAttr(
        "--link", str, list=True, argname="LINK", help="a switch: NAME[:HOST,HOST…[:MBIT]]"
    )
    cables = cli.SwitchAttr("--cable", str, list=True, argname="CABLE", help="NAME:HOST,HOST[:MBIT]")
    cpus = cli.SwitchAttr(
        "--cpus", str, list=True, argname="HOST=CORES", help="the cores that a host may use"
    )
    sshd = cli.Flag("--sshd", help="start sshd on each; keys are in place")

    def main(self, hosts: int) -> None:
        if racks(self.name):
            raise Problem(f"{self.name} is up already", cause="it has a keeper", fix=f"{Racks.PROGNAME} down")
        try:
            made = [*(link(text) for text in self.links), *(link(text, direct=True) for text in self.cables)]
            spec = Spec(hosts, tuple(made) or (Link(),), dict(map(cores, self.cpus)), name=self.name)
        except ValueError as error:
            raise UsageError(f"{self.PROGNAME}: {error}\n  see:   {self.PROGNAME} --help") from error
        rack = bring_up(spec, detached=True)
        if self.sshd:
            ssh.serve(rack)
        show(rack)


@Racks.subcommand("ls")
class Ls(Verb):
    DESCRIPTION = "Print every rack that is up, with its hosts, their addresses and process 1."

    def main(self) -> None:
        for rack in racks():
            show(rack)


@Racks.subcommand("x")
class X(Named):
    DESCRIPTION = "Run a command on a host, or a shell; it starts in this folder, if the host sees it."
    USAGE = "    {progname} [--name NAME] HOST [COMMAND...]\n"

    def _parse_args(self, argv: list[str]) -> Any:
        """What follows HOST is the command's own, switches too."""
        host = 0
        while argv[host : host + 1] and argv[host].startswith("-"):
            host += 2 if argv[host] == "--name" else 1
        return super()._parse_args([*argv[: host + 1], "--", *argv[host + 1 :]])

    def main(self, host: str, *words: str) -> NoReturn:
        rack = next(iter(racks(self.name)), None)
        if rack is None:
            raise Problem(f"{self.name} is not up", cause="it has no keeper", fix=f"{Racks.PROGNAME} up 2")
        argv = words or (os.environ.get("SHELL", "/bin/sh"),)
        here = Path.cwd()
        seen = Path(f"/proc/{rack[host].first_process}/root{here}").is_dir()
        command = rack[host].command(argv, folder=str(here) if seen else HOME)
        sys.stdout.flush()
        os.execvpe(command.argv[0], command.argv, command.build_environment(os.environ))


@Racks.subcommand("down")
class Down(Named):
    DESCRIPTION = "Take a rack down, and everything that runs on it."

    def main(self) -> None:
        for rack in racks(self.name):
            rack.down()
            print(f"{rack.spec.name} is down")


def racks(name: str | None = None) -> list[Rack]:
    return [found(keeper) for keeper in running_racks.keepers() if name in {None, keeper.spec.name}]


def show(rack: Rack) -> None:
    print(f"{rack.spec.name}: {len(rack.hosts)} of {rack.spec.hosts} hosts, kept by {rack.keeper}")
    for host in rack.hosts:
        plugs = "  ".join(f"{p.interface} {p.address} {p.link.name}" for p in host.ports)
        print(f"  {host.name:<8} process 1 is {host.first_process:<8} {plugs}")


def link(text: str, *, direct: bool = False) -> Link:
    name, hosts, mbit, *rest = [*text.split(":"), "", ""][: max(3, text.count(":") + 1)]
    if rest or not re.fullmatch(r"\d*", mbit):
        raise ValueError(f"{text} is not NAME:HOST,HOST:MBIT")
    named = tuple(host for host in hosts.split(",") if host)
    return Link(name, named, mbit=int(mbit) if mbit else None, direct=direct)


def cores(text: str) -> tuple[str, float]:
    host, _, number = text.partition("=")
    return host, float(number)


def main() -> int:
    try:
        return int(Racks.run(exit=False)[1])
    except UsageError as usage:
        print(usage, file=sys.stderr)
        return 2
    except Problem as problem:
        print(f"rack: {problem}", file=sys.stderr)
        return problem.status


if __name__ == "__main__":
    sys.exit(main())
