"""`medley env`: build, list, prove and remove engine environments."""

import json
import os
import shlex
from typing import TYPE_CHECKING

from plumbum import cli

from medley.cli.verb import Verb
from medley.problem import Problem

if TYPE_CHECKING:  # imported by main alone, to keep `medley --help` fast
    from medley.tables import Driver
    from medley.toolkit import Toolkit
    from medley.venv import Environment

_GB = 1e9


class Env(Verb):
    DESCRIPTION = "Build, list, prove and remove engine environments, and lock your own."
    DESCRIPTION_MORE = """
An engine environment is a virtualenv with an engine and Ray, made by uv from a hashed lock. `serve` builds
the one it needs by itself. Where NAME is left out, it is the one for this kind of host.

Examples:
    /medley env build             the one for this host
    /medley env build vllm-cpu
    /medley env check vllm-cpu    prove it: imports, and a real kernel
    /medley env list
    /medley env lock jp6 --index ADDRESS --python 3.10 -r vllm -r 'ray[default]'

"""
    USAGE = "    {progname} SUBCOMMAND [SWITCHES] ...\n"

    def main(self) -> int:
        if self.nested_command:
            return 0
        self.help()
        return 0


@Env.subcommand("build")
class Build(Verb):
    USAGE = "    {progname} [SWITCHES] [NAME]\n"
    DESCRIPTION = "Build an engine environment, or say that it is there."
    DESCRIPTION_MORE = """
Every file is checked against the lock's hash. What is finished is used again; what is killed leaves nothing.

Examples:
    /medley env build vllm-cpu
    /medley env build --dry-run

"""
    dry_run = cli.Flag("--dry-run", help="print the commands; start nothing")
    as_json = cli.Flag("--json", help="print one JSON object: name, digest, path")

    def main(self, name: str = "") -> int:
        from medley import build, venv
        from medley.cli.progress import watch

        name, toolkit, driver = _wanted(name)
        if self.dry_run:
            for command in build.commands(venv.blueprint(name, toolkit, driver=driver)):
                print(command)
            return 0
        found = venv.ready(name, toolkit, driver=driver, watch=watch())
        print(json.dumps(_table(found)) if self.as_json else found.path)
        return 0


@Env.subcommand("list")
class List(Verb):
    DESCRIPTION = "List the engine environments of this host, and those that could be built."
    DESCRIPTION_MORE = "\nExamples:\n    /medley env list\n    /medley env list --json\n\n"
    as_json = cli.Flag("--json", help="print one JSON array")

    def main(self) -> int:
        from medley import config, venv

        found = list(venv.every())
        missing = sorted(set(config.recipes()) - {each.name for each in found})
        building = {path.name.rpartition("-")[0] for path in venv.unfinished() if venv.is_held(path)}
        if self.as_json:
            others = [{"name": name, "built": None, "building": name in building} for name in missing]
            print(json.dumps([*map(_table, found), *others]))
            return 0
        for each in found:
            state = "current" if venv.is_current(each) else "old: its lock has changed"
            print(f"{each.name}  {each.digest}  {each.parts['python']}  {state}  {each.path}")
        for name in missing:
            state = "being built" if name in building else "not built"
            print(f"{name}  {state}  {config.recipes()[name].title}")
        return 0


@Env.subcommand("path")
class Path(Verb):
    USAGE = "    {progname} [SWITCHES] [NAME]\n"
    DESCRIPTION = "Print the folder of a finished engine environment."
    DESCRIPTION_MORE = "\nExamples:\n    /$(medley env path vllm-cpu)/bin/vllm --version\n\n"

    def main(self, name: str = "") -> int:
        print(_finished(name)[0].path)
        return 0


@Env.subcommand("check")
class Check(Verb):
    USAGE = "    {progname} [SWITCHES] [NAME]\n"
    DESCRIPTION = "Prove an engine environment: its imports, and a real kernel on each GPU, or on the CPU."
    DESCRIPTION_MORE = "\nExamples:\n    /medley env check vllm-cpu\n    /medley env check --json\n\n"
    as_json = cli.Flag("--json", help="print one JSON object")

    def main(self, name: str = "") -> int:
        from medley import config, prove
        from medley.cli.progress import watch

        environment, toolkit = _finished(name)
        recipe = config.recipes()[environment.name]
        path = os.environ.get("PATH", "")
        proof = prove.prove(environment, toolkit, recipe, path=path, watch=watch())
        if self.as_json:
            print(json.dumps(proof))
        else:
            for label, value in prove.rows(proof):
                print(f"{label:<10} {value}")
        problem = prove.problem(proof, environment.name)
        if problem:
            raise problem
        return 0


@Env.subcommand("clean")
class Clean(Verb):
    USAGE = "    {progname} [SWITCHES] [NAME]\n"
    DESCRIPTION = "Remove engine environments whose lock has changed, and what killed builds left."
    DESCRIPTION_MORE = """
With NAME, all of that name; with --all, all there are. Nothing that a build holds is removed.

Examples:
    /medley env clean --dry-run
    /medley env clean vllm-cpu

"""
    everything = cli.Flag("--all", help="all there are")
    dry_run = cli.Flag("--dry-run", help="print the commands; remove nothing")

    def main(self, name: str = "") -> int:
        from medley import store, venv

        self._require_clear(name)
        freed = 0
        found = list(venv.removable(name, everything=self.everything))
        if not found:
            print("there is nothing to remove")
            return 0
        for path in found:
            if self.dry_run:
                if not venv.is_held(path):
                    print(shlex.join(("rm", "-rf", str(path))))
                continue
            size = store.size_bytes(path)
            if venv.remove(path):
                freed += size
                print(f"removed {path} ({size / _GB:.1f} GB)")
            else:
                print(f"kept {path}: a build holds it")
        if not self.dry_run:
            print(
                f"{freed / _GB:.1f} GB in files; those that uv's cache shares are free after: uv cache prune"
            )
        return 0

    def _require_clear(self, name: str) -> None:
        """One environment or all: where both are said, neither is done."""
        from medley import config, venv

        if name and self.everything:
            raise Problem(
                f"{name} and --all cannot both be meant",
                cause="--all removes every environment there is",
                fix=f"medley env clean {name}   # or: medley env clean --all",
            )
        known = sorted({*config.recipes(), *(each.name for each in venv.every())})
        if name and name not in known:
            raise Problem(
                f"there is no engine environment {name!r}",
                cause=f"locks/ and this host have {', '.join(known)}",
                fix="medley env list",
            )


def _table(environment: "Environment") -> dict[str, object]:
    from medley import venv

    return {
        "name": environment.name,
        "digest": environment.digest,
        "path": str(environment.path),
        "current": venv.is_current(environment),
        "built": environment.built,
        "parts": environment.parts,
    }


def _finished(name: str) -> "tuple[Environment, Toolkit | None]":
    from medley import venv

    name, toolkit, driver = _wanted(name)
    found = venv.find(name, toolkit, driver=driver)
    if found is None:
        raise Problem(
            f"{name} is not built",
            cause=f"there is no finished {venv.blueprint(name, toolkit, driver=driver).path}",
            fix=f"medley env build {name}",
        )
    return found, toolkit


def _wanted(name: str) -> "tuple[str, Toolkit | None, Driver]":
    """The environment's name, and what this kind of host gives it."""
    from medley import libcuda, toolkit
    from medley.cli.progress import watch
    from medley.recognised import recognised

    _, here = recognised()
    name = name or here.host.environments.get("vllm", "")
    if not name:
        raise Problem(
            f"{here.host.title} has no engine environment",
            cause=here.host.no_environment or f"hosts/{here.name}.toml names none",
            fix="name one: medley env build NAME (medley env list shows them)",
        )
    chain = libcuda.given(toolkit.find(here.name, watch=watch()), here.host)
    return name, chain, here.host.driver


Env.subcommand("lock", "medley.cli.env_lock.Lock")
