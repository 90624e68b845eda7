"""Copy a model, and the extra files that it needs, to every host of a cluster."""

import json
import secrets
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from medley import storage
from medley.cluster.fleet import Asked, Fleet, Table
from medley.cluster.membership import Membership
from medley.errors import Problem
from medley.model import extra_files, remote_code
from medley.model.extra_files import ModelExtras
from medley.model.remote_code import Code
from medley.model.transfer import order_sources
from medley.progress import Progress
from medley.schema import ExtraFile

_ASK_LIMIT_S = 60
_HASH_LIMIT_S = 24 * 3600
_FETCH_LIMIT_S = 7 * 24 * 3600


@dataclass
class ModelPull:
    """The steps of `medley pull` over a cluster, in order."""

    everyone: Fleet
    target: str
    """A folder's path, the same on every host, or ORG/NAME."""
    addresses: Mapping[str, str]
    origin: str | None = None
    revision: str | None = None
    """The commit, branch or tag to download; `main` where it is None."""
    manifest: Table = field(default_factory=dict)
    size_bytes: int = 0
    having: tuple[str, ...] = ()
    received: Mapping[str, int] = field(default_factory=dict)

    def find(self) -> bool:
        """Find the hosts that have the model; returns whether it must be downloaded first."""
        said = self._ask("has", limit_s=_ASK_LIMIT_S)
        self.having = tuple(name for name, each in said.items() if each["here"])
        if self.origin and self.origin in self.having:
            self.having = (self.origin, *(name for name in self.having if name != self.origin))
        if not self.having and self.target.startswith("/"):
            raise Problem(
                f"no host has {self.target}",
                cause=f"it has no config.json on {', '.join(said)}",
                fix="copy the folder to that path on one of them: rsync -a FOLDER/ HOST:FOLDER/",
            )
        return not self.having

    def download(self) -> None:
        name = self.origin or self.everyone.cluster.head
        self._ask("download", lambda _: {"revision": self.revision}, limit_s=_FETCH_LIMIT_S, among=[name])
        self._need(name)
        self.having = (name,)

    def describe(self, *, fresh: bool = False) -> None:
        """Choose the manifest that most hosts have, so that damage is outvoted; `fresh`: read all of it."""
        said = self._ask("offer", lambda _: {"fresh": fresh}, limit_s=_HASH_LIMIT_S, among=self.having)
        if not said:
            raise self.everyone.failed[self.having[0]]
        source = reference({name: each["digest"] for name, each in said.items()}, self.origin)
        self.having = (source, *(name for name in said if name != source))
        self.manifest, self.size_bytes = said[source]["manifest"], said[source]["size_bytes"]

    def bring(self) -> None:
        """Send the model along a chain of hosts; pieces that a host has are not sent again."""
        source, secret = self.having[0], secrets.token_hex(32)
        more = {"manifest": self.manifest, "secret": secret}
        opened = self._ask(
            "pass on",
            lambda name: {**more, "address": self.addresses[name], "whole": name == source},
            limit_s=_ASK_LIMIT_S,
        )
        self._need(source)
        places = {name: [name, self.addresses[name], each["port"]] for name, each in opened.items()}
        asks = order_sources(list(places), [source])
        said = self._ask(
            "fetch",
            lambda name: {"secret": secret, "sources": [places[each] for each in asks[name]]},
            limit_s=_FETCH_LIMIT_S,
            among=asks,
        )
        self.received = {name: each["received_bytes"] for name, each in said.items()}
        self._ask("close", limit_s=_ASK_LIMIT_S)

    def verify(self) -> dict[str, list[str]]:
        """Read all of it again on the other hosts; returns the differing files by host."""
        more = {"manifest": self.manifest}
        others = [name for name in self.everyone.cluster.hosts if name != self.having[0]]
        said = self._ask("verify", lambda _: more, limit_s=_HASH_LIMIT_S, among=others)
        return {name: list(each["damage"]) for name, each in said.items()}

    def compare(self) -> Table:
        """Compare the reference copy with the hub; returns `said`, a sentence, and `damage`, lines."""
        source = self.having[0]
        if self.target.startswith("/"):
            return {"said": "not compared with the hub: it is a folder", "damage": []}
        said = self._ask("compare", limit_s=_HASH_LIMIT_S, among=[source])
        self._need(source)
        return said[source]

    def _ask(
        self, step: str, more: Asked = lambda _: {}, *, limit_s: float, among: Iterable[str] | None = None
    ) -> dict[str, Table]:
        def asked(name: str) -> Table:
            return {"step": step, "target": self.target, **more(name)}

        return self.everyone.ask("transfer", asked, limit_s=limit_s, among=among)

    def _need(self, name: str) -> None:
        if problem := self.everyone.failed.get(name):
            raise problem


def reference(digests: Mapping[str, str], origin: str | None = None) -> str:
    """Return the host with the reference copy: the user's choice, or the most common one."""
    if origin and origin in digests:
        return origin
    count = Counter(digests.values())
    return max(digests, key=lambda name: count[digests[name]])


def bring_files(found: Membership, beside: ModelExtras, watch: Progress) -> None:
    """Copy the extra files to each host's cache, and require the same extra code on all of them."""
    if beside.files:
        with watch.stage("copy the model's extra files to every host"):
            names = {
                path.relative_to(storage.cache()).as_posix(): (need, path) for need, path in beside.files
            }
            said = _ask(found, "put", json.dumps({str(path): name for name, (_, path) in names.items()}))
            for host, of_host in said.items():
                for name, (need, _) in names.items():
                    require_there(host, need, of_host.get(name, {}))
                    if of_host[name]["written"]:
                        watch.note(f"{host}: {of_host[name]['path']} copied")
    if beside.code and beside.code.commit is None:
        require_same(beside.code, _ask(found, "python", beside.code.where))


def prepare_files(beside: ModelExtras, head: str, watch: Progress) -> None:
    """Fetch the files for a host that joins a model by itself, and compare its extra code."""
    extra_files.fetch_extras(tuple(need for need, _ in beside.files), watch)
    if beside.code and beside.code.commit is None:
        folder = beside.code.where
        ours, typed = remote_code.compute_fingerprints(Path(folder)), shlex.quote(folder)
        _require_code(
            ours,
            beside.code,
            f"the model's code in {folder} differs from the head's, which is trusted",
            f"copy the head's: rsync -a {head.partition(':')[0]}:{typed}/ {typed}/\n"
            "and delete the files that the head does not have",
        )


def require_there(host: str, need: ExtraFile, said: Mapping[str, Any]) -> None:
    if said.get("sha256") != need.sha256:
        raise Problem(
            f"{need.name} could not be copied to {host}",
            cause=said.get("error") or f"its SHA-256 there is {said.get('sha256')}, not {need.sha256}",
            fix=f"on {host}, check that {said.get('path', 'its cache')} is writable and has space: df -h ~",
        )


def require_same(code: Code, hosts: Mapping[str, Mapping[str, str]]) -> None:
    """Require the trusted code in the model's folder on every host."""
    typed = shlex.quote(code.where)
    for host, files in hosts.items():
        _require_code(
            files,
            code,
            f"the model's code in {code.where} differs between {host} and this host",
            f"copy this host's: rsync -a {typed}/ HOST:{typed}/\nand delete the files that are not here",
        )


def _require_code(files: Mapping[str, str], trusted: Code, what: str, fix: str) -> None:
    differ = [
        f"{name}: SHA-256 {files.get(name) or 'missing'}, trusted is {trusted.files.get(name) or 'none'}"
        for name in sorted({**files, **trusted.files})
        if files.get(name) != trusted.files.get(name)
    ]
    if differ:
        raise Problem(what, cause="\n".join(differ), fix=fix)


def _ask(found: Membership, verb: str, what: str) -> Mapping[str, Any]:
    said = found.ask(verb, found.address, what, script="ray_store.py", limit_s=_ASK_LIMIT_S)
    return dict(said["hosts"])
