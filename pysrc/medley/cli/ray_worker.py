"""`medley ray-worker`: join the Ray cluster of another host."""

import json
import os
from socket import gethostname
from typing import TYPE_CHECKING, Any

from plumbum import cli

from medley.cli.reasons import show, tell
from medley.cli.taking_part import TakingPart
from medley.cli.token_file import TokenFile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from medley.fabric import End
    from medley.facts import Facts
    from medley.part import Part
    from medley.wiring import Wiring


class RayWorker(TakingPart, TokenFile):
    DESCRIPTION = "Join the Ray cluster whose head is HEAD, a host's name or address."
    DESCRIPTION_MORE = """
Ray, Python and engine must be the head's own; that is compared first. The token comes from a file or standard
input (-), and is kept for the next time.

Examples:
    /medley ray-worker spark-1 --token-file token
    /ssh spark-1 cat .local/state/medley/token |
    /    medley ray-worker spark-1 --token-file -
    /medley ray-worker spark-1                    with the token it has already
    /medley ray-worker spark-1 --image default    in a container of the head's image

"""
    USAGE = "    {progname} [SWITCHES] HEAD\n"
    as_json = cli.Flag("--json", help="print one JSON object: head, address, slots; or the command")

    def main(self, head: str) -> None:
        from medley import joining, membership, ray, reach, token, tools
        from medley.cli.progress import watch
        from medley.launch import BARE
        from medley.part import part
        from medley.recognised import answers, recognised

        if not self.dry_run:
            membership.require_none()
        secret = self.token()
        ports = ray.Ports()
        engine: Any = self.engine
        said = answers()
        found, kind = recognised(self.kind, said)
        named = f"{reach.require_listening(head, ports.gcs, found.net)}:{ports.gcs}"
        image = self.imaged((found, kind), engine, dry_run=False)
        chosen = BARE if image else tools.ready(kind, self.own, engine=engine, joins=True, watch=watch())
        path = os.environ.get("PATH", "")
        ours = part(found, kind, chosen, slots=self.slots, path=path, engine=engine, imaged=image)
        there = membership.ask(ours.environment, secret, "read", named)
        joining.require_alike(ours.terms(), there["note"], named)
        wired = self._wired(found, there)
        tell(wired)
        secret = token.keep(secret)
        # By the wire that both are on, whatever address of the head was typed.
        at = f"{there['note']['address']}:{ports.gcs}"
        start = ray.worker(ours.place(secret), ours.node(wired), ports, to=at, more=ours.on(wired))
        start = ours.started(start)
        if self.dry_run:
            show(start.command, start.why(), as_json=self.as_json)
            return
        end = wired.end
        noted = ours.membership("worker", at, end, secret)
        with watch().stage(f"join {at}"), membership.begun(start.command, noted):
            reach.require_reach(ours.environment, secret, end.address, at)
            membership.tell(ours.environment, secret, at, end.address, said)
        self._say(ours, end, at)
        self.stayed()

    def _wired(self, found: "Facts", there: "Mapping[str, Any]") -> "Wiring":
        """The wire between this host and the head, whose facts are in what it told."""
        from medley import facts, transcript, wiring
        from medley.fabric import Wishes

        note, here = there["note"], gethostname()
        name = here if here != note["host"] else f"{here} (here)"
        heads = facts.facts(transcript.parse(there["told"][note["address"]]))
        wishes = Wishes(self.link, frozenset(self.exclude))
        hosts = {note["host"]: heads, name: found}
        return wiring.of_worker(hosts, name, (note["host"], note["address"]), wishes, os.environ)

    def _say(self, ours: "Part", here: "End", at: str) -> None:
        if self.as_json:
            print(json.dumps({"head": at, "address": here.address, "slots": ours.slots}))
        else:
            print(
                f"joined {at} as {here.address} ({here.interface}) with {ours.slots} slot(s); "
                "medley ray-stop leaves it"
            )
