"""What is brought is what stands beside a model's weights, on every host of the cluster that is to run it."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from medley import membership, needs, remote_code, spreading, store
from medley.beside import Beside
from medley.membership import Membership
from medley.problem import Problem
from medley.reasoned import Reasoned
from medley.remote_code import Code
from medley.tables import Need
from medley.watch import Watch

_SCRIPT = "files.py"


def bring(found: Membership, beside: Beside, watch: Watch) -> None:
    """Each file to each host's own cache, and the same code on all of them, or a Problem that names the host.

    The code of a repository is fetched by each host for itself, of the commit that the engine is told.
    """
    if beside.files:
        with watch.stage("bring what the model needs to every host"):
            _files(found, beside.files, watch)
    if beside.code and beside.code.commit is None:
        require_same(beside.code, _ask(found, "python", beside.code.where))


def ready(beside: Beside, head: str, watch: Watch) -> None:
    """The same for a host that joins a model by itself: it fetches the files, and compares its own code."""
    needs.fetch(tuple(need for need, _ in beside.files), watch)
    if beside.code and beside.code.commit is None:
        folder = beside.code.where
        differ = _differences(remote_code.fingerprints(Path(folder)), beside.code.files)
        if differ:
            typed = shlex.quote(folder)
            raise Problem(
                f"this host has other code in {folder} than the head, which is what is trusted",
                cause="\n".join(differ),
                fix=f"bring the head's: rsync -a {head.partition(':')[0]}:{typed}/ {typed}/\n"
                "and remove here what is missing there",
            )


def here(reasoned: Reasoned, cache: str) -> Reasoned:
    """A head's command, with the files in this host's own cache; `cache` is the head's."""

    def moved(value: str) -> str:
        theirs = f"{cache}/needs/"
        return f"{store.cache()}/needs/{value.removeprefix(theirs)}" if value.startswith(theirs) else value

    return replace(
        reasoned,
        flags=tuple(replace(each, value=each.value and moved(each.value)) for each in reasoned.flags),
        variables=tuple(replace(each, value=moved(each.value)) for each in reasoned.variables),
    )


def _files(found: Membership, files: tuple[tuple[Need, Path], ...], watch: Watch) -> None:
    names = {path.relative_to(store.cache()).as_posix(): (need, path) for need, path in files}
    said = _ask(found, "put", json.dumps({str(path): name for name, (_, path) in names.items()}))
    for host, of_host in said.items():
        for name, (need, _) in names.items():
            require_there(host, need, of_host.get(name, {}))
            if of_host[name]["written"]:
                watch.note(f"{host}: {of_host[name]['path']} brought")


def require_there(host: str, need: Need, said: Mapping[str, Any]) -> None:
    if said.get("sha256") != need.sha256:
        raise Problem(
            f"{need.name} could not be brought to {host}",
            cause=said.get("error") or f"there its SHA-256 is {said.get('sha256')}, and not {need.sha256}",
            fix=f"see whether {said.get('path', 'its cache')} can be written there, and has space: df -h ~",
        )


def require_same(code: Code, hosts: Mapping[str, Mapping[str, str]]) -> None:
    """A Problem where a host has other code in the model's folder than what is trusted here."""
    for host, files in hosts.items():
        differ = _differences(files, code.files)
        if differ:
            typed = shlex.quote(code.where)
            raise Problem(
                f"{host} has other code in {code.where} than this host",
                cause="\n".join(differ),
                fix=f"bring this one's: rsync -a {typed}/ HOST:{typed}/\n"
                "and remove there what is missing here",
            )


def _differences(files: Mapping[str, str], trusted: Mapping[str, str]) -> list[str]:
    return [
        f"{name}: SHA-256 {files.get(name) or 'missing'}, trusted is {trusted.get(name) or 'none'}"
        for name in sorted({**files, **trusted})
        if files.get(name) != trusted.get(name)
    ]


def _ask(found: Membership, verb: str, what: str) -> Mapping[str, Any]:
    where = spreading.environment(found)
    said = membership.ask(
        where, Path(found.token), verb, found.head, found.address, what, script=_SCRIPT, limit_s=60
    )
    hosts: Mapping[str, Any] = said["hosts"]
    return hosts
