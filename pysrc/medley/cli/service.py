"""`medley service`: a head, a worker or a server that starts with the host."""

import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plumbum import cli

from medley.cli.rooted import require_root
from medley.cli.verb import Verb
from medley.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

_ROLES = "ROLE is head, worker or serve."


class Service(Verb):
    DESCRIPTION = "Have systemd start a head, a worker or a server with the host."
    DESCRIPTION_MORE = """
Examples:
    /medley service install head --dry-run
    /sudo medley service install worker spark-1
    /medley service show
    /sudo medley service remove worker

"""
    USAGE = "    {progname} SUBCOMMAND [SWITCHES] ...\n"

    def main(self) -> int:
        if self.nested_command:
            return 0
        self.help()
        return 0


@Service.subcommand("install")
class Install(Verb):
    USAGE = "    {progname} [SWITCHES] head|worker HEAD|serve MODEL [-- SWITCHES OF ITS VERB]\n"
    DESCRIPTION = "Write a unit of systemd's, start it, and have it start with the host."
    DESCRIPTION_MORE = """
The verb runs as the user who types this, by sudo, with that user's home, token and environments; try it by
hand first. It is started anew whenever it ends, also until its head is there. It is a file and two words to
systemd, which --dry-run prints; remove takes all of it back.

Examples:
    /medley service install head --dry-run
    /sudo medley service install head -- --link 192.168.100.0/24
    /sudo medley service install worker spark-1
    /sudo medley service install serve demo -- --port 9000 -- --max-num-seqs 8
    /sudo medley service install head --user ann --set MEDLEY_CACHE=/data/medley

"""
    user = cli.SwitchAttr("--user", str, argname="NAME", help="who it runs as; default: you, also by sudo")
    settings = cli.SwitchAttr("--set", str, list=True, argname="NAME=VALUE", help="a variable for it")
    dry_run = cli.Flag("--dry-run", help="print the unit; write and start nothing")

    def main(self, role: str, *words: str) -> None:
        from medley import own, service

        found = service.require_whole(role, words)
        given: Any = self.settings
        env = {**service.carried(_typed_in()), **_variables(given)}
        made = service.Service(found, words, self._user(), own.command(), env)
        if self.dry_run:
            print(f"medley: {made.file}:", file=sys.stderr)
            print(made.text, end="")
            for command in service.installed(made.name):
                print(f"medley: then: {command}", file=sys.stderr)
            return
        require_root("install a service")
        service.install(made)
        print(f"{made.name} starts, now and with this host; what it says: journalctl -fu {made.name}")

    def _user(self) -> str:
        from getpass import getuser

        asked: Any = self.user
        found: str = asked or os.environ.get("SUDO_USER") or getuser()
        if found == "root" and not asked and not self.dry_run:
            raise Problem(
                "nothing says who it is to run as",
                cause="root is logged in by itself, and has no token or environments of yours",
                fix="name the user: --user NAME, or --user root",
            )
        return found


@Service.subcommand("remove")
class Remove(Verb):
    USAGE = "    {progname} ROLE|NAME\n"
    DESCRIPTION = "End a service, and have it start no more."
    DESCRIPTION_MORE = f"""
{_ROLES} Of several servers NAME is one, as show has it. It can be said twice.

Examples:
    /sudo medley service remove worker
    /sudo medley service remove medley-serve-8000

"""

    def main(self, role: str) -> None:
        from medley import service

        require_root("remove a service")
        found = service.remove(role)
        print(f"removed {', '.join(found)}" if found else f"no service of medley's here is {role}")


@Service.subcommand("start")
class Start(Verb):
    USAGE = "    {progname}\n"
    DESCRIPTION = "Start what medley kept on this host before it was switched off."
    DESCRIPTION_MORE = """
For hosts without systemd, at boot: `@reboot /path/to/medley service start` in crontab(1). What runs is
left alone.

Examples:
    /medley service start

"""

    def main(self) -> None:
        from medley import units

        names = units.resume()
        print(f"started {', '.join(names)}" if names else "nothing that was kept here is to be started")


@Service.subcommand("show")
class Show(Verb):
    USAGE = "    {progname} [SWITCHES] [ROLE|NAME]\n"
    DESCRIPTION = "Show the services installed here: how they are, and the file of one."
    DESCRIPTION_MORE = """
Examples:
    /medley service show
    /medley service show worker
    /medley service show --json

"""
    as_json = cli.Flag("--json", help="print one JSON object: each service, and how it is")

    def main(self, role: str = "") -> None:
        from medley import service, systemd

        found = {name: systemd.state(name, system=True) for name in service.names(role or None)}
        if self.as_json:
            print(json.dumps({name: how and dataclasses.asdict(how) for name, how in found.items()}))
            return
        for name, how in found.items():
            print(f"{name}: {_said(how)}")
            if role:
                print(Path(service.FOLDER / f"{name}.service").read_text(encoding="utf-8"), end="")
        if not found:
            print("no service of medley's is installed here")


def _said(how: Any) -> str:  # noqa: ANN401 - systemd.Shown, which is imported when the verb runs
    if how is None:
        return "systemd does not know it"
    again = f", started anew {how.restarts} times" if how.restarts else ""
    ended = f", ended with {how.status} ({how.result})" if how.result != "success" else ""
    return f"{how.active} ({how.sub}){ended}{again}"


def _typed_in() -> "Mapping[str, str]":
    """The environment of who typed it, which is sudo's own; what sudo starts has little of it."""
    from medley import family

    if "SUDO_USER" not in os.environ:
        return os.environ
    return family.environments().get(os.getppid(), os.environ)


def _variables(given: list[str]) -> dict[str, str]:
    for each in given:
        if "=" not in each or not each.partition("=")[0].isidentifier():
            raise Problem(
                f"{each!r} is no variable", cause="it is to be NAME=VALUE", fix="--set MEDLEY_CACHE=/data"
            )
    return dict(each.split("=", 1) for each in given)
