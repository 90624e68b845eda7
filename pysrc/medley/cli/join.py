"""`medley join`: this host's ranks of a model that another host heads, without Ray."""

import os
import shlex
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING, Any

from plumbum import cli

from medley.cli.token_file import TokenFile
from medley.problem import Problem

if TYPE_CHECKING:  # imported when the verb runs, to keep `medley --help` fast
    from collections.abc import Mapping

    from medley.kind import Kind
    from medley.launch import Tools
    from medley.reasoned import Reasoned
    from medley.sealed import Channel
    from medley.tables import Engine


class Join(TokenFile):
    DESCRIPTION = "Run this host's part of the model that HEAD serves over several hosts without Ray."
    DESCRIPTION_MORE = """
On HEAD: medley serve MODEL --launcher mp --hosts 2; or medley run, which sends its script to run here too.
What this host runs is asked of it; the engine and its environment must be the same, which is compared first.
It ends when the model does, or with Ctrl-C.

Examples:
    /medley join spark-1 --token-file token
    /ssh spark-1 cat .local/state/medley/token |
    /    medley join spark-1 --token-file -
    /medley join spark-1                     with the token it was given before
    /medley join spark-1:24011 --wait 600    another port; its head may come later

"""
    USAGE = "    {progname} [SWITCHES] HEAD[:PORT]\n"
    kind = cli.SwitchAttr("--kind", str, argname="KIND", help="take this host for that kind; see hosts/")
    own = cli.SwitchAttr("--env", str, argname="ENV", help="an engine environment, or your own virtualenv")
    wait = cli.SwitchAttr(
        "--wait", cli.Range(0, 86_400), 60, argname="SECONDS", help="how long the head may take to listen"
    )
    dry_run = cli.Flag("--dry-run", help="say what the head asks of this host, and leave again")

    def main(self, head: str) -> None:
        from medley import membership, sealed, token
        from medley.cli.progress import watch
        from medley.recognised import answers, recognised
        from medley.transcript import text

        name, port = _place(head)
        if not self.dry_run:
            membership.require_none()  # its devices are that cluster's
        secret = self.token()
        said = answers()
        _, kind = recognised(self.kind, said)
        with watch().stage(f"meet {name}:{port}"):
            channel = sealed.connected(name, port, secret, self.wait)
        with closing(channel):
            token.keep(secret)
            self._attend(channel, kind, text(said), f"{name}:{port}")

    def _attend(self, channel: "Channel", kind: "Kind", said: str, at: str) -> None:
        from medley import attending, brought, serving, store
        from medley.cli.progress import watch
        from medley.engines import ENGINES

        terms = _terms(channel)
        if self.dry_run:
            does = f"runs {terms['script']} with" if terms["script"] else "serves"
            what = f"{terms['model']} with {terms['engine']}, which this host would run"
            print(f"{terms['host']} {does} {what}")
            return
        channel.send({"host": gethostname(), "facts": said})
        try:
            with attending.alive(channel):
                chosen = self._ready(kind, terms, at)
        except Problem as problem:
            channel.send({"problem": f"{problem.what}: {problem.cause}"})
            raise
        channel.send({"ready": True})
        with watch().stage("wait for the other hosts"):
            order = attending.order(channel)
        if order is None:
            _say("the head needs no ranks on this host")
            return
        cache = terms["beside"]["cache"]
        kept = attending.kept(order, store.state() / "runs", {f"{cache}/needs/": f"{store.cache()}/needs/"})
        reasoned = brought.here(_reasoned(kept, chosen), cache)
        _say(f"$ {reasoned.command}")
        log = store.state() / "logs" / f"join-{at.rpartition(':')[2]}.log"
        with serving.log(log) as keep:

            def on_line(line: str) -> None:
                keep(line)
                print(line, file=sys.stderr)

            engine = ENGINES[terms["engine_name"]]
            ends = terms["script"] is not None
            attending.attend(channel, reasoned.command, log, on_line, engine.last_error, ends=ends)
        _say("the head has ended the model; nothing of it runs here any more")

    def _ready(self, kind: "Kind", terms: "Mapping[str, Any]", at: str) -> "Tools":
        """Environment and model of this host, once both are found to be the head's."""
        from medley import beside, brought, config, joining, store, tools, weights
        from medley.cli.progress import watch
        from medley.part import environment
        from medley.part import terms as own_terms

        engine: Engine = terms["engine_name"]
        chosen = tools.ready(kind, self.own, engine=engine, joins=True, watch=watch())
        joining.require_alike(own_terms(environment(chosen)), terms, at)
        target = Path(terms["target"])
        if (made := config.models().get(terms["model"])) and made.made:
            weights.ready(weights.weights(terms["model"], config.models(), store.cache()))
        if target.is_absolute() and not (target / "config.json").exists():
            typed = shlex.quote(str(target))
            raise Problem(
                f"this host has not {terms['model']}",
                cause=f"there is no {target / 'config.json'}, and every host reads its own copy",
                fix=f"bring it to the same place here: rsync -a {at.partition(':')[0]}:{typed}/ {typed}/",
            )
        brought.ready(beside.from_table(terms["beside"]), at, watch())
        return chosen


def _place(head: str) -> tuple[str, int]:
    from medley.meeting import PORT

    name, colon, port = head.partition(":")
    if colon and not port.isdecimal():
        raise Problem(f"{head} is no place", cause=f"{port!r} is no port", fix=f"medley join {name}")
    return name, int(port) if colon else PORT


def _terms(channel: "Channel") -> "Mapping[str, Any]":
    from medley import attending

    message = channel.receive(10)
    if not message or "terms" not in message:
        raise Problem(
            "the head does not say what it serves",
            cause="nothing came within 10 s",
            fix="use the same medley on both",
        )
    return attending.require_terms(message["terms"])


def _reasoned(order: "Mapping[str, Any]", chosen: "Tools") -> "Reasoned":
    from medley.attending import from_table
    from medley.fabric.variables import settled
    from medley.reasoned import merged
    from medley.variables import of_toolkit

    ours = tuple(of_toolkit(chosen.settings, chosen.programs, os.environ.get("PATH", "")))
    found = from_table(order, chosen.binary, ours)
    return replace(found, variables=merged(settled(found.variables, os.environ)))


def _say(text: str) -> None:
    print(f"medley: {text}", file=sys.stderr, flush=True)
