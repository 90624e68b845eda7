"""`medley ray-head`: start a Ray cluster on this host, closed to who has no token."""

import json
import os
from socket import gethostname
from typing import Any

from plumbum import cli

from medley.cli.reasons import only_dry_run, show, tell
from medley.cli.taking_part import TakingPart


class RayHead(TakingPart):
    DESCRIPTION = "Start a Ray cluster whose head is this host; other hosts join it with ray-worker."
    DESCRIPTION_MORE = """
It takes the fastest wire that leads out of this host, and says why. It returns when the cluster is up;
ray-stop ends it. Nobody joins without the token, which lies in a file that only you can read.
No dashboard is started unless asked for, and then for this host alone.

Examples:
    /medley ray-head
    /medley ray-head --link 192.168.100.0/24
    /medley ray-head --link enp1s0f0np0
    /medley ray-head --image default
    /medley ray-head --dry-run
    /medley ray-head --dry-run --from spark-1.txt

"""
    dashboard = cli.Flag("--dashboard", help="start Ray's dashboard, on 127.0.0.1")
    replayed = cli.SwitchAttr(
        "--from", str, argname="FILE", help="with --dry-run: as the host of this transcript would"
    )
    as_json = cli.Flag("--json", help="print one JSON object: address, token's file, slots; or the command")

    def main(self) -> None:
        from medley import membership, ray, token, tools, wiring
        from medley.cli.progress import watch
        from medley.fabric import Wishes
        from medley.launch import BARE
        from medley.part import part
        from medley.recognised import answers, recognised

        if not self.dry_run:
            membership.require_none()
        if self.replayed and not self.dry_run:
            raise only_dry_run("ray-head", "--from FILE")
        engine: Any = self.engine
        said = answers(self.replayed)
        found, kind = recognised(self.kind, said)
        wishes = Wishes(self.link, frozenset(self.exclude))
        wired = wiring.of_head(gethostname(), found, wishes, os.environ)
        tell(wired)
        image = self.imaged((found, kind), engine, dry_run=self.dry_run, elsewhere=self.replayed is not None)
        prepare = tools.expected if self.dry_run else tools.ready
        chosen = BARE if image else prepare(kind, self.own, engine=engine, joins=True, watch=watch())
        ours = part(
            found,
            kind,
            chosen,
            slots=self.slots,
            path=os.environ.get("PATH", ""),
            engine=engine,
            imaged=image,
        )
        ports, secret = ray.Ports(), token.path() if self.dry_run else token.made()
        start = ray.head(
            ours.place(secret), ours.node(wired), ports, dashboard=self.dashboard, more=ours.on(wired)
        )
        start = ours.started(start)
        if self.dry_run:
            show(start.command, start.why(), as_json=self.as_json)
            return
        end = wired.end
        at = f"{end.address}:{ports.gcs}"
        noted = ours.membership("head", at, end, secret)
        with watch().stage(f"Ray head at {at}"), membership.begun(start.command, noted):
            terms = {**ours.terms(), "address": end.address}
            membership.tell(ours.environment, secret, at, end.address, said, note=terms)
        self._say(end.address, str(secret), ours.slots)
        if self.dashboard and not self.as_json:
            print(f"Ray's dashboard: http://127.0.0.1:{ports.dashboard} (RAY_AUTH token: {secret})")
        self.stayed()

    def _say(self, address: str, secret: str, slots: int) -> None:
        if self.as_json:
            print(json.dumps({"head": address, "token": secret, "slots": slots}))
            return
        more = f" --engine {self.engine}" if self.engine != "vllm" else ""
        print(
            f"Ray head at {address}, {slots} slot{'s' if slots != 1 else ''} here. On each other host:\n\n"
            f"    ssh {address} cat {secret} | medley ray-worker {address} --token-file -{more}\n\n"
            "medley status shows who has joined; medley ray-stop ends it."
        )
