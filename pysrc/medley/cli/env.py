"""`medley env build|list|path|check|clean|lock`."""

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from medley import config, storage
from medley.cli import Verb, VerbGroup, flag, switch
from medley.cli.output import format_table, print_result
from medley.cli.progress import start_progress
from medley.environment import build, interpreter, lock, toolkit, uv, verify, virtualenv
from medley.environment.toolkit import Toolkit, add_libcuda
from medley.environment.virtualenv import Environment
from medley.errors import Problem
from medley.host.kind import detect_host
from medley.host_schema import Driver
from medley.schema import DEFAULT_ENGINE
from medley.serving import answer_check
from medley.serving.upgrade import list_environments_in_use

_GB = 1e9
_CONVERSATION_COUNT = 2


class EnvVerb(VerbGroup):
    """`medley env`, of which each verb is a class below."""


class EnvBuildVerb(Verb):
    USAGE = "    {progname} [OPTIONS] [NAME]\n"
    dry_run: bool = flag("--dry-run", "print the commands; start nothing")
    as_json: bool = flag("--json", "one JSON object: name, digest, path")

    def main(self, name: str = "") -> None:
        name, host_toolkit, driver = _choose_environment(name)
        if self.dry_run:
            for command in build.list_commands(
                virtualenv.plan_environment(name, host_toolkit, driver=driver)
            ):
                print(uv.hide_logins(command))
            return
        environment = virtualenv.prepare_environment(
            name, host_toolkit, driver=driver, progress=start_progress()
        )
        print_result(_build_table(environment), [str(environment.path)], as_json=self.as_json)


class EnvListVerb(Verb):
    as_json: bool = flag("--json", "one JSON array")

    def main(self) -> None:
        environments = list(virtualenv.list_environments())
        missing = sorted(set(config.load_recipes()) - {environment.name for environment in environments})
        building = {
            path.name.rpartition("-")[0]
            for path in virtualenv.list_unfinished()
            if virtualenv.is_being_built(path)
        }
        used_paths = _find_used_paths()
        built_tables = [
            {
                **_build_table(environment),
                "used": environment.path in used_paths,
                "size_bytes": storage.measure_disk_usage(environment.path),
            }
            for environment in environments
        ]
        other_tables = [{"name": name, "built": None, "building": name in building} for name in missing]
        print_result(
            [*built_tables, *other_tables], _list_lines([*built_tables, *other_tables]), as_json=self.as_json
        )


def _find_used_paths() -> set[Path]:
    """Return the folders of the environments that serve would use here; none if the kind is unknown."""
    try:
        kind = detect_host().kind
        host_toolkit = add_libcuda(toolkit.find_toolkit(kind.name, can_build=False), kind.table)
        names = set(kind.table.environments.values())
        environments = [
            virtualenv.find_environment(name, host_toolkit, driver=kind.table.driver) for name in names
        ]
    except Problem:
        return set()
    return {environment.path for environment in environments if environment}


def _list_lines(tables: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of a table: the built environments, then the others."""
    rows = []
    for environment in tables:
        recipe = config.load_recipes().get(environment["name"])
        if environment["built"]:
            size = f"{environment['size_bytes'] / _GB:.1f} GB"
            python = environment["parts"]["python"].removeprefix("cpython ")
            state = "current" if environment["current"] else "old lock"
        else:
            size, python = "-", recipe.python if recipe else "-"
            state = "building" if environment["building"] else "not built"
        about = environment.get("path") or (recipe.title if recipe else "")
        rows.append(
            (environment["name"], python, size, state, "yes" if environment.get("used") else "-", about)
        )
    yield from format_table(("NAME", "PYTHON", "SIZE", "STATE", "THIS HOST", "PATH OR PURPOSE"), rows)


class EnvPathVerb(Verb):
    USAGE = "    {progname} [OPTIONS] [NAME]\n"

    def main(self, name: str = "") -> None:
        print(_require_environment(name)[0].path)


class EnvCheckVerb(Verb):
    USAGE = "    {progname} [OPTIONS] [NAME]\n"
    quick: bool = flag("--quick", "imports and kernels only; serve no model")
    as_json: bool = flag("--json", "one JSON object")

    def main(self, name: str = "") -> None:
        environment, host_toolkit = _require_environment(name)
        proof, name = verify.prove_environment(environment, host_toolkit, start_progress()), environment.name
        problem = verify.find_problem(proof, name)
        serves = not (self.quick or problem)
        answers = answer_check.compare_answers(name, _CONVERSATION_COUNT, start_progress()) if serves else ()
        result = {**proof, "answers": [{"text": answer.text, "fault": answer.fault} for answer in answers]}
        lines = format_table(("", ""), (*verify.list_rows(proof), *answer_check.list_rows(answers)))
        print_result(result, lines, as_json=self.as_json)
        if problem:
            raise problem
        rebuild = f"rebuild it: medley env clean {name} && medley env build {name}"
        answer_check.require_correct_answers(answers, f"{name} answers wrongly on this host", rebuild)


class EnvCleanVerb(Verb):
    USAGE = "    {progname} [OPTIONS] [NAME]\n"
    everything: bool = flag("--all", "every environment")
    dry_run: bool = flag("--dry-run", "print the commands; remove nothing")

    def main(self, name: str = "") -> None:
        self._require_clear_request(name)
        used_paths = list_environments_in_use()
        removable_paths = [
            path for path in virtualenv.list_removable(name, is_all=self.everything) if path not in used_paths
        ]
        if not removable_paths:
            print("there is nothing to remove")
        elif self.dry_run:
            for path in removable_paths:
                if not virtualenv.is_being_built(path):
                    print(shlex.join(("rm", "-rf", str(path))))
        else:
            freed = sum(map(_remove_environment, removable_paths)) / _GB
            print(f"{freed:.1f} GB in files; those that uv's cache shares are free after: uv cache prune")

    def _require_clear_request(self, name: str) -> None:
        """Raise a Problem for an unknown name, or for a name with --all."""
        if name and self.everything:
            raise Problem(
                f"{name} and --all exclude each other",
                cause="--all removes every environment there is",
                fix=f"medley env clean {name}   # or: medley env clean --all",
            )
        known_names = sorted(
            {*config.load_recipes(), *(environment.name for environment in virtualenv.list_environments())}
        )
        if name and name not in known_names:
            raise Problem(
                f"there is no engine environment {name!r}",
                cause=f"locks/ and this host have {', '.join(known_names)}",
                fix="medley env list",
            )


def _remove_environment(path: Path) -> int:
    size = storage.measure_disk_usage(path)
    if not virtualenv.remove_environment(path):
        print(f"kept {path}: a build holds it")
        return 0
    print(f"removed {path} ({size / _GB:.1f} GB)")
    return size


class EnvLockVerb(Verb):
    USAGE = "    {progname} [OPTIONS] NAME\n"
    requirements: list[str] = switch(
        "-r, --requirement WHAT", "requirement as in pip: an engine, and Ray for a cluster", mandatory=True
    )
    overrides: list[str] = switch("--override WHAT", "version to use whatever packages require")
    indexes: list[str] = switch("--index ADDRESS", "package index to search first; stored in the table")
    python: str | None = switch(
        "--python VERSION", "Python version, such as 3.10 [default: Nix's newest, else medley's own]"
    )
    device: Literal["cuda", "cpu"] | None = switch("--device KIND", "cuda or cpu [default: detected]")
    unproven: bool = flag("--unproven", "write the lock only; build and test nothing")
    dry_run: bool = flag("--dry-run", "print the command; change nothing")
    as_json: bool = flag("--json", "one JSON object: name, lock, packages, path")

    def main(self, name: str) -> None:
        kind = detect_host().kind
        host_toolkit = toolkit.find_toolkit(kind.name, progress=start_progress())
        uv_program = uv.find_uv(host_toolkit.uv if host_toolkit else None)
        device = self.device or kind.table.device
        lock_request = lock.LockRequest(
            name, self.requirements, device, self.overrides, self.indexes
        ).validate()
        version = self.python or (
            max(host_toolkit.pythons) if host_toolkit else "{}.{}".format(*sys.version_info[:2])
        )
        python = interpreter.find_interpreter(
            version, pythons=host_toolkit.pythons if host_toolkit else {}, uv=uv_program
        )
        if self.dry_run:
            print(
                uv.hide_logins(lock.build_resolve_command(lock_request, python, uv_program, Path("SCRATCH")))
            )
            return
        resolved_lock = lock.resolve_lock(lock_request, python, uv_program, progress=start_progress())
        environment = None
        with lock.write_lock(resolved_lock) as path:
            if not self.unproven:
                environment = virtualenv.prepare_environment(
                    name, host_toolkit, driver=kind.table.driver, progress=start_progress()
                )
                lock.record_disk_use(resolved_lock, environment.path)
        built_path = environment and str(environment.path)
        result = {"name": name, "lock": str(path), "packages": len(resolved_lock.pins), "path": built_path}
        use_hint = f'medley serve MODEL --env {name}   # cluster.toml: env = "{name}"'
        lines = (f"{path}: {len(resolved_lock.pins)} packages for {resolved_lock.python}", use_hint)
        print_result(result, lines, as_json=self.as_json)
        if environment:
            # What it lacks on this host is a Problem; the lock is right about its files, and stays.
            proof = verify.prove_environment(environment, host_toolkit, start_progress())
            print("\n".join(format_table(("", ""), verify.list_rows(proof))), file=sys.stderr)
            if problem := verify.find_problem(proof, name):
                raise problem


def _build_table(environment: Environment) -> dict[str, object]:
    return {
        "name": environment.name,
        "digest": environment.digest,
        "path": str(environment.path),
        "current": virtualenv.is_current(environment),
        "built": environment.built,
        "parts": environment.parts,
    }


def _require_environment(name: str) -> tuple[Environment, Toolkit | None]:
    name, host_toolkit, driver = _choose_environment(name)
    environment = virtualenv.find_environment(name, host_toolkit, driver=driver)
    if environment is None:
        raise Problem(
            f"{name} is not built",
            cause="there is no finished "
            f"{virtualenv.plan_environment(name, host_toolkit, driver=driver).path}",
            fix=f"medley env build {name}",
        )
    return environment, host_toolkit


def _choose_environment(name: str) -> tuple[str, Toolkit | None, Driver]:
    """Return the environment's name, and the toolkit and driver of this kind of host."""
    kind = detect_host().kind
    name = name or kind.table.environments.get(DEFAULT_ENGINE, "")
    if not name:
        raise Problem(
            f"{kind.table.title} has no engine environment",
            cause=kind.table.no_environment or f"hosts/{kind.name}.toml names none",
            fix="name one: medley env build NAME (medley env list shows them)",
        )
    host_toolkit = add_libcuda(toolkit.find_toolkit(kind.name, progress=start_progress()), kind.table)
    return name, host_toolkit, kind.table.driver
