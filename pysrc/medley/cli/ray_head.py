"""`medley ray-head`: start a Ray cluster on this host, closed to who has no token."""

import json
import os

from plumbum import cli

from medley.cli.verb import Verb


class RayHead(Verb):
    DESCRIPTION = "Start a Ray cluster whose head is this host; other hosts join it with ray-worker."
    DESCRIPTION_MORE = """
It returns when the cluster is up; ray-stop ends it. Nobody joins without the token, which lies in a file that
only you can read. No dashboard is started unless asked for, and then for this host alone.

Examples:
    /medley ray-head
    /medley ray-head --address 192.168.100.10
    /medley ray-head --dry-run

"""
    address = cli.SwitchAttr(
        "--address", str, argname="ADDRESS", help="this host's on the fast wire, or the interface"
    )
    kind = cli.SwitchAttr("--kind", str, argname="KIND", help="take this host for that kind; see hosts/")
    slots = cli.SwitchAttr(
        "--slots", cli.Range(1, 64), argname="N", help="ranks this host takes; default: one for each GPU"
    )
    dashboard = cli.Flag("--dashboard", help="start Ray's dashboard, on 127.0.0.1")
    dry_run = cli.Flag("--dry-run", help="print the command, and why it is as it is; start nothing")
    as_json = cli.Flag("--json", help="print one JSON object: address, token's file, slots; or the command")

    def main(self) -> None:
        from medley import machine, membership, ray, token, wire
        from medley.cli.progress import watch
        from medley.cli.reasons import show
        from medley.part import part

        here = wire.own(wire.wires(machine.ask([wire.ADDRESSES])[wire.ADDRESSES].text), self.address)
        if not self.dry_run:
            membership.require_none()
        ours = part(kind=self.kind, slots=self.slots, path=os.environ.get("PATH", ""), watch=watch())
        ports, secret = ray.Ports(), token.path() if self.dry_run else token.made()
        start = ray.head(
            ours.place(secret), ours.node(here), ports, dashboard=self.dashboard, more=ours.on(here)
        )
        if self.dry_run:
            show(start.command, start.why(), as_json=self.as_json)
            return
        at = f"{here.address}:{ports.gcs}"
        place = str(ours.environment.path)
        noted = membership.Membership("head", at, here.address, here.interface, place, str(secret))
        with watch().stage(f"Ray head at {at}"), membership.begun(start.command, noted):
            membership.ask(ours.environment, secret, "note", at, json.dumps(ours.terms()))
        self._say(here.address, str(secret), ours.slots)
        if self.dashboard and not self.as_json:
            print(f"Ray's dashboard: http://127.0.0.1:{ports.dashboard} (RAY_AUTH token: {secret})")

    def _say(self, address: str, secret: str, slots: int) -> None:
        if self.as_json:
            print(json.dumps({"head": address, "token": secret, "slots": slots}))
            return
        print(
            f"Ray head at {address}, {slots} slot{'s' if slots != 1 else ''} here. On each other host:\n\n"
            f"    ssh {address} cat {secret} | medley ray-worker {address} --token-file -\n\n"
            "medley status shows who has joined; medley ray-stop ends it."
        )
