"""A pull brings a model to every host of a cluster: once from the hub or a folder, then from host to host."""

import secrets
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from medley.everyone import Everyone
from medley.problem import Problem
from medley.transfer.chain import chain

_ASK_LIMIT_S = 60
_HASH_LIMIT_S = 24 * 3600
_FETCH_LIMIT_S = 7 * 24 * 3600
Table = Mapping[str, Any]


@dataclass
class Pull:
    """The steps, in order."""

    everyone: Everyone
    target: str
    """A folder's path, the same on every host, or ORG/NAME."""
    addresses: Mapping[str, str]
    """Of each host, on the wire that all share."""
    origin: str | None = None
    """The host that the user wants it from."""
    manifest: Table = field(default_factory=dict)
    size_bytes: int = 0
    having: tuple[str, ...] = ()
    received: Mapping[str, int] = field(default_factory=dict)

    def find(self) -> bool:
        """Which host has it; whether the hub must be asked first."""
        said = self._ask("has", limit_s=_ASK_LIMIT_S)
        self.having = tuple(name for name, each in said.items() if each["here"])
        if self.origin and self.origin in self.having:
            self.having = (self.origin, *(name for name in self.having if name != self.origin))
        if not self.having and self.target.startswith("/"):
            raise Problem(
                f"no host has {self.target}",
                cause=f"there is no config.json in it on {', '.join(said)}",
                fix="copy the folder to one of them, at that path: rsync -a FOLDER/ HOST:FOLDER/",
            )
        return not self.having

    def download(self) -> None:
        """On the head, or where the user says."""
        name = self.origin or self.everyone.cluster.head
        self._ask("download", limit_s=_FETCH_LIMIT_S, among=[name])
        self._need(name)
        self.having = (name,)

    def describe(self, *, fresh: bool = False) -> None:
        """The manifest that all shall have: the one that most hosts with the model have now.

        A copy that took damage is one among several that did not. `fresh`: all of it is read, for that.
        """
        said = self._ask("offer", {"fresh": fresh}, limit_s=_HASH_LIMIT_S, among=list(self.having))
        if not said:
            raise self.everyone.failed[self.having[0]]
        source = reference({name: each["digest"] for name, each in said.items()}, self.origin)
        self.having = (source, *(name for name in said if name != source))
        self.manifest, self.size_bytes = said[source]["manifest"], said[source]["size_bytes"]

    def bring(self) -> None:
        """To all others, each from the one before it; who has pieces already is not sent them again."""
        source, secret = self.having[0], secrets.token_hex(32)
        more = {"manifest": self.manifest, "secret": secret}
        opened = self.everyone.ask(
            "transfer",
            lambda name: {
                **self._step("pass on"),
                **more,
                "address": self.addresses[name],
                "whole": name == source,
            },
            limit_s=_ASK_LIMIT_S,
        )
        self._need(source)
        places = {name: [name, self.addresses[name], each["port"]] for name, each in opened.items()}
        asks = chain(list(places), [source])
        said = self.everyone.ask(
            "transfer",
            lambda name: {
                **self._step("fetch"),
                "secret": secret,
                "sources": [places[each] for each in asks[name]],
            },
            limit_s=_FETCH_LIMIT_S,
            among=list(asks),
        )
        self.received = {name: each["received_bytes"] for name, each in said.items()}
        self._ask("close", limit_s=_ASK_LIMIT_S)

    def verify(self) -> dict[str, list[str]]:
        """By host what of it is not as on the first one, all of it read again there."""
        said = self._ask("verify", {"manifest": self.manifest}, limit_s=_HASH_LIMIT_S)
        return {name: list(each["damage"]) for name, each in said.items()}

    def _ask(
        self,
        step: str,
        more: Table | None = None,
        *,
        limit_s: float,
        among: list[str] | None = None,
    ) -> dict[str, Table]:
        asked = {**self._step(step), **(more or {})}
        return self.everyone.ask("transfer", lambda _: asked, limit_s=limit_s, among=among)

    def _step(self, step: str) -> dict[str, Any]:
        return {"step": step, "target": self.target}

    def _need(self, name: str) -> None:
        if problem := self.everyone.failed.get(name):
            raise problem


def reference(digests: Mapping[str, str], origin: str | None = None) -> str:
    """The host whose copy counts: the one the user names, or the first of those that most agree with."""
    if origin and origin in digests:
        return origin
    count = Counter(digests.values())
    return max(digests, key=lambda name: count[digests[name]])
