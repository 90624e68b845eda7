"""Choose from which host a model is copied, and copy it, with its extra files, to every host of a cluster."""

import json
import secrets
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from medley import storage
from medley.cluster.fleet import BuildFields, Fleet, Table
from medley.cluster.membership import Membership
from medley.command import quote_word
from medley.errors import Problem
from medley.model import extra_files, remote_code
from medley.model.extra_files import ModelExtras
from medley.model.remote_code import Code
from medley.model.transfer import order_sources
from medley.progress import Progress
from medley.schema import ExtraFile

_ANSWER_LIMIT_S = 60
_HASH_LIMIT_S = 24 * 3600
_TRANSFER_LIMIT_S = 7 * 24 * 3600


@dataclass
class ModelPull:
    """The steps of `medley pull` on the hosts of a cluster, in order."""

    fleet: Fleet
    target: str
    """A folder's path, the same on every host, or ORG/NAME."""
    addresses: Mapping[str, str]
    requested_source: str | None = None
    revision: str | None = None
    """The commit, branch or tag to download; `main` where it is None."""
    manifest: Table = field(default_factory=dict)
    size_bytes: int = 0
    source_hosts: tuple[str, ...] = ()
    received_bytes: Mapping[str, int] = field(default_factory=dict)

    def find_sources(self) -> bool:
        """Find the hosts that have the model; return whether it must be downloaded first."""
        answers = self._ask_hosts("has", limit_s=_ANSWER_LIMIT_S)
        self.source_hosts = tuple(name for name, answer in answers.items() if answer["here"])
        if self.requested_source and self.requested_source in self.source_hosts:
            self.source_hosts = (
                self.requested_source,
                *(name for name in self.source_hosts if name != self.requested_source),
            )
        if not self.source_hosts and self.target.startswith("/"):
            raise Problem(
                f"no host has {self.target}",
                cause=f"it has no config.json on {', '.join(answers)}",
                fix="copy the folder to that path on one of them: rsync -a FOLDER/ HOST:FOLDER/",
            )
        return not self.source_hosts

    def download_model(self) -> None:
        name = self.requested_source or self.fleet.cluster.head
        self._ask_hosts(
            "download", lambda _: {"revision": self.revision}, limit_s=_TRANSFER_LIMIT_S, hosts=[name]
        )
        self._require_answer(name)
        self.source_hosts = (name,)

    def choose_manifest(self, *, reads_all: bool = False) -> None:
        """Choose the manifest that most hosts have, so that damage is outvoted.

        `reads_all`: hash again.
        """
        answers = self._ask_hosts(
            "offer", lambda _: {"fresh": reads_all}, limit_s=_HASH_LIMIT_S, hosts=self.source_hosts
        )
        if not answers:
            raise self.fleet.failed[self.source_hosts[0]]
        source = choose_reference(
            {name: answer["digest"] for name, answer in answers.items()}, self.requested_source
        )
        self.source_hosts = (source, *(name for name in answers if name != source))
        self.manifest, self.size_bytes = answers[source]["manifest"], answers[source]["size_bytes"]

    def send_along_chain(self) -> None:
        """Send the model along a chain of hosts; pieces that a host has are not sent again."""
        source, secret = self.source_hosts[0], secrets.token_hex(32)
        manifest_fields = {"manifest": self.manifest, "secret": secret}
        ports = self._ask_hosts(
            "pass on",
            lambda name: {**manifest_fields, "address": self.addresses[name], "whole": name == source},
            limit_s=_ANSWER_LIMIT_S,
        )
        self._require_answer(source)
        addresses = {name: [name, self.addresses[name], answer["port"]] for name, answer in ports.items()}
        sources_by_host = order_sources(list(addresses), [source])
        answers = self._ask_hosts(
            "fetch",
            lambda name: {
                "secret": secret,
                "sources": [addresses[source_host] for source_host in sources_by_host[name]],
            },
            limit_s=_TRANSFER_LIMIT_S,
            hosts=sources_by_host,
        )
        self.received_bytes = {name: answer["received_bytes"] for name, answer in answers.items()}
        self._ask_hosts("close", limit_s=_ANSWER_LIMIT_S)

    def verify_copies(self) -> dict[str, list[str]]:
        """Read all of it again on the other hosts; return the differing files by host."""
        fields = {"manifest": self.manifest}
        others = [name for name in self.fleet.cluster.hosts if name != self.source_hosts[0]]
        answers = self._ask_hosts("verify", lambda _: fields, limit_s=_HASH_LIMIT_S, hosts=others)
        return {name: list(answer["damage"]) for name, answer in answers.items()}

    def compare_with_hub(self) -> Table:
        """Compare the reference copy with the hub; return `said`, a sentence, and `damage`, lines."""
        source = self.source_hosts[0]
        if self.target.startswith("/"):
            return {"said": "not compared with the hub: it is a folder", "damage": []}
        answers = self._ask_hosts("compare", limit_s=_HASH_LIMIT_S, hosts=[source])
        self._require_answer(source)
        return answers[source]

    def _ask_hosts(
        self,
        step: str,
        build_fields: BuildFields = lambda _: {},
        *,
        limit_s: float,
        hosts: Iterable[str] | None = None,
    ) -> dict[str, Table]:
        def build_request(name: str) -> Table:
            return {"step": step, "target": self.target, **build_fields(name)}

        return self.fleet.ask("transfer", build_request, limit_s=limit_s, hosts=hosts)

    def _require_answer(self, name: str) -> None:
        if problem := self.fleet.failed.get(name):
            raise problem


def choose_reference(digests: Mapping[str, str], requested_source: str | None = None) -> str:
    """Return the host with the reference copy: the user's choice, or the most common one."""
    if requested_source and requested_source in digests:
        return requested_source
    count = Counter(digests.values())
    return max(digests, key=lambda name: count[digests[name]])


def copy_extra_files(membership: Membership, extras: ModelExtras, progress: Progress) -> None:
    """Copy the extra files to each host's cache, and require the same extra code on all of them."""
    if extras.files:
        with progress.stage("copy the model's extra files to every host"):
            names = {
                path.relative_to(storage.find_cache_folder()).as_posix(): (extra_file, path)
                for extra_file, path in extras.files
            }
            answers = _ask_ray_hosts(
                membership, "put", json.dumps({str(path): name for name, (_, path) in names.items()})
            )
            for host, host_answer in answers.items():
                for name, (extra_file, _) in names.items():
                    require_copied(host, extra_file, host_answer.get(name, {}))
                    if host_answer[name]["written"]:
                        progress.note(f"{host}: {host_answer[name]['path']} copied")
    if extras.code and extras.code.commit is None:
        require_same_code(extras.code, _ask_ray_hosts(membership, "python", extras.code.where))


def fetch_extra_files(extras: ModelExtras, head: str, progress: Progress) -> None:
    """Fetch the files for a host that joins a model by itself, and compare its extra code."""
    extra_files.fetch_extras(tuple(extra_file for extra_file, _ in extras.files), progress)
    if extras.code and extras.code.commit is None:
        folder = extras.code.where
        own_files, quoted_folder = remote_code.compute_fingerprints(Path(folder)), shlex.quote(folder)
        source = shlex.quote(head.partition(":")[0])
        _require_trusted_code(
            own_files,
            extras.code,
            f"the model's code in {folder} differs from the head's, which is trusted",
            f"copy the head's: rsync -a {source}:{quoted_folder}/ {quoted_folder}/\n"
            "and delete the files that the head does not have",
        )


def require_copied(host: str, extra_file: ExtraFile, answer: Mapping[str, Any]) -> None:
    if answer.get("sha256") != extra_file.sha256:
        raise Problem(
            f"{extra_file.name} could not be copied to {host}",
            cause=answer.get("error")
            or f"its SHA-256 there is {answer.get('sha256')}, not {extra_file.sha256}",
            fix=f"on {host}, check that {quote_word(str(answer.get('path', 'cache')))} is writable "
            "and has space: df -h ~",
        )


def require_same_code(code: Code, hosts: Mapping[str, Mapping[str, str]]) -> None:
    """Require the trusted code in the model's folder on every host."""
    quoted_folder = shlex.quote(code.where)
    for host, files in hosts.items():
        _require_trusted_code(
            files,
            code,
            f"the model's code in {code.where} differs between {host} and this host",
            f"copy this host's: rsync -a {quoted_folder}/ HOST:{quoted_folder}/\n"
            "and delete the files that are not here",
        )


def _require_trusted_code(files: Mapping[str, str], trusted: Code, what: str, fix: str) -> None:
    differences = [
        f"{name}: SHA-256 {files.get(name) or 'missing'}, trusted is {trusted.files.get(name) or 'none'}"
        for name in sorted({**files, **trusted.files})
        if files.get(name) != trusted.files.get(name)
    ]
    if differences:
        raise Problem(what, cause="\n".join(differences), fix=fix)


def _ask_ray_hosts(membership: Membership, verb: str, argument: str) -> Mapping[str, Any]:
    answer = membership.ask(
        verb, membership.address, argument, script="ray_store.py", limit_s=_ANSWER_LIMIT_S
    )
    return dict(answer["hosts"])
