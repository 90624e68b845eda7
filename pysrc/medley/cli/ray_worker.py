"""`medley ray-worker`: join the Ray cluster of another host."""

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from plumbum import cli

from medley.cli.verb import Verb
from medley.problem import Problem

if TYPE_CHECKING:
    from medley.part import Part
    from medley.wire import Wire


class RayWorker(Verb):
    DESCRIPTION = "Join the Ray cluster whose head is HEAD, a host's name or address."
    DESCRIPTION_MORE = """
Ray, Python and engine must be the head's own; that is compared first. The token comes from a file or standard
input (-), and is kept for the next time.

Examples:
    /medley ray-worker spark-1 --token-file token
    /ssh spark-1 cat .local/state/medley/token | medley ray-worker spark-1 --token-file -
    /medley ray-worker spark-1                  with the token it was given before

"""
    USAGE = "    {progname} [SWITCHES] HEAD\n"
    token_file = cli.SwitchAttr(
        "--token-file", str, argname="FILE", help="the head's token; - is standard input"
    )
    kind = cli.SwitchAttr("--kind", str, argname="KIND", help="take this host for that kind; see hosts/")
    slots = cli.SwitchAttr(
        "--slots", cli.Range(1, 64), argname="N", help="ranks this host takes; default: one for each GPU"
    )
    dry_run = cli.Flag("--dry-run", help="print the command, and why it is as it is; start nothing")
    as_json = cli.Flag("--json", help="print one JSON object: head, address, slots; or the command")

    def main(self, head: str) -> None:
        from medley import joining, membership, ray, token
        from medley.cli.progress import watch
        from medley.cli.reasons import show
        from medley.part import part

        if not self.dry_run:
            membership.require_none()
        secret = self._token()
        ports = ray.Ports()
        address = membership.require_listening(head, ports.gcs)
        here = _wire(address)
        at = f"{address}:{ports.gcs}"
        ours = part(kind=self.kind, slots=self.slots, path=os.environ.get("PATH", ""), watch=watch())
        found = membership.ask(ours.environment, secret, "read", at)
        joining.require_alike(ours.terms(), found["note"], at)
        secret = token.keep(secret)
        start = ray.worker(ours.place(secret), ours.node(here), ports, to=at, more=ours.on(here))
        if self.dry_run:
            show(start.command, start.why(), as_json=self.as_json)
            return
        place = str(ours.environment.path)
        noted = membership.Membership("worker", at, here.address, here.interface, place, str(secret))
        with watch().stage(f"join {at}"), membership.begun(start.command, noted):
            membership.require_reach(ours.environment, secret, here.address, at)
        self._say(ours, here, at)

    def _say(self, ours: "Part", here: "Wire", at: str) -> None:
        if self.as_json:
            print(json.dumps({"head": at, "address": here.address, "slots": ours.slots}))
        else:
            print(
                f"joined {at} as {here.address} ({here.interface}) with {ours.slots} slot(s); "
                "medley ray-stop leaves it"
            )

    def _token(self) -> Path:
        from medley import token

        if self.token_file is None:
            return token.present()
        if self.token_file == "-":  # noqa: S105 - a file's name
            return token.brought(sys.stdin.read(), "standard input")
        try:
            return token.brought(Path(self.token_file).read_text(encoding="utf-8"), self.token_file)
        except (OSError, UnicodeDecodeError) as error:
            raise Problem(
                f"{self.token_file} cannot be read",
                cause=str(error),
                fix="name the copy of the head's token, or - for standard input",
            ) from error


def _wire(address: str) -> "Wire":
    from medley import machine, wire

    question = wire.route_question(address)
    return wire.towards(address, machine.ask([question])[question].text)
