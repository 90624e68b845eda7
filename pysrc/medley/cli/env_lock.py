"""`medley env lock`: a lock of the user's own, made and proved on a machine that can reach its packages."""

import json
import os
import sys
from typing import TYPE_CHECKING, Any

from plumbum import cli

from medley.cli.verb import Verb

if TYPE_CHECKING:  # imported by main alone, to keep `medley --help` fast
    from medley.kind import Kind
    from medley.locking import Locked, Order
    from medley.toolkit import Toolkit

_HERE = "{}.{}".format(*sys.version_info[:2])


class Lock(Verb):
    USAGE = "    {progname} [SWITCHES] NAME\n"
    DESCRIPTION = "Make a lock of your own, for this machine, where none of medley's fits."
    DESCRIPTION_MORE = """
uv chooses versions for this machine and one Python, of wheels alone. The lock, with the hash of every file,
and its table go to ~/.config/medley/locks; copy both to hosts that are alike. Then it is built, which
compares every file with its hash, and proved. Then NAME is an environment like any other.

Examples:
    /medley env lock jp6 --index ADDRESS --python 3.10 -r vllm -r 'ray[default]'
    /medley env lock newer --python 3.12 -r vllm==0.33.0 -r 'ray[default]'
    /medley env lock jp6 --unproven --index ADDRESS --python 3.10 -r vllm

"""
    requirements = cli.SwitchAttr(
        ["-r", "--requirement"],
        str,
        list=True,
        mandatory=True,
        argname="WHAT",
        help="a requirement as pip writes it, an engine among them; Ray too, for a cluster",
    )
    overrides = cli.SwitchAttr(
        "--override", str, list=True, argname="WHAT", help="this version, whatever packages ask for"
    )
    indexes = cli.SwitchAttr(
        "--index",
        str,
        list=True,
        argname="ADDRESS",
        help="a package index, looked into first; kept in the table, so that all hosts find it",
    )
    python = cli.SwitchAttr(
        "--python",
        str,
        argname="VERSION",
        help="3.10 or such; default: the newest that Nix brings for engines, else the one that runs medley",
    )
    device = cli.SwitchAttr(
        "--device",
        cli.Set("cuda", "cpu"),
        argname="cuda|cpu",
        help="what it is for; default: what this host has",
    )
    unproven = cli.Flag("--unproven", help="only choose and write: build and prove nothing")
    dry_run = cli.Flag("--dry-run", help="print the command; start and write nothing")
    as_json = cli.Flag("--json", help="print one JSON object: name, lock, packages, path")

    def main(self, name: str) -> int:
        from pathlib import Path

        from medley import interpreter, locking, toolkit, uv
        from medley.cli.progress import watch
        from medley.recognised import recognised

        _, here = recognised()
        chain = toolkit.find(here.name, watch=watch())
        tool = uv.binary(chain.uv if chain else None)
        device: Any = self.device or here.host.device
        order = locking.order(name, self.requirements, device, overrides=self.overrides, indexes=self.indexes)
        version: Any = self.python or (max(chain.pythons) if chain else _HERE)
        python = interpreter.find(version, pythons=chain.pythons if chain else {}, uv=tool)
        if self.dry_run:
            print(locking.command(order, python, tool, Path("SCRATCH")))
            return 0
        found = locking.locked(order, python, tool, watch=watch())
        with locking.kept(found) as path:
            built = None if self.unproven else _built(found, here, chain)
        self._show(order, found, str(path), built)
        if not self.unproven:
            _prove(name, chain)
        return 0

    def _show(self, order: "Order", found: "Locked", path: str, built: str | None) -> None:
        if self.as_json:
            made = {"name": order.name, "lock": path, "packages": len(found.pins), "path": built}
            print(json.dumps(made))
            return
        print(f"{path}: {len(found.pins)} packages for {found.python}")
        print(f'medley serve MODEL --env {order.name}   # cluster.toml: env = "{order.name}"')


def _built(found: "Locked", here: "Kind", chain: "Toolkit | None") -> str:
    from medley import locking, venv
    from medley.cli.progress import watch

    made = venv.ready(found.order.name, chain, driver=here.host.driver, watch=watch())
    locking.measured(found, made.path)
    return str(made.path)


def _prove(name: str, chain: "Toolkit | None") -> None:
    """What it lacks on this host is a Problem; the lock is right about its files, and stays."""
    from medley import config, prove, venv
    from medley.cli.progress import watch
    from medley.recognised import recognised

    _, here = recognised()
    made = venv.find(name, chain, driver=here.host.driver)
    if made is None:
        raise AssertionError(name)  # it was built a moment ago
    recipe = config.recipes()[name]
    proof = prove.prove(made, chain, recipe, path=os.environ.get("PATH", ""), watch=watch())
    for label, value in prove.rows(proof):
        print(f"{label:<10} {value}", file=sys.stderr)
    if problem := prove.problem(proof, name):
        raise problem
