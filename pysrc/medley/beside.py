"""What stands beside a model's weights: its own code, where a user trusts it, and files an engine wants."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from medley import config, needs, store
from medley.problem import Problem
from medley.reasoned import Flag
from medley.remote_code import Code
from medley.tables import Need
from medley.variables import Variable

FLAGS: Mapping[str, str] = {
    "chat-template": "--chat-template",
    "reasoning-parser-plugin": "--reasoning-parser-plugin",
}


@dataclass(frozen=True)
class Beside:
    code: Code | None = None
    """What the user trusts, held to its commit or fingerprint."""
    files: tuple[tuple[Need, Path], ...] = ()
    base: str | None = None
    """The user's own folder of encodings."""
    without_code: bool = False
    """The user wants none of the model's own to run."""
    warnings: tuple[str, ...] = ()

    def why(self) -> Iterator[str]:
        """What a plan says of it."""
        yield from self.warnings
        if self.code:
            yield f"trusted code: {self.code.named}"
        for need, path in self.files:
            yield f"{need.name} ({need.what}), SHA-256 {need.sha256}: {path}"

    def table(self) -> dict[str, Any]:
        """For a host that joins this model; `from_table` reads it there."""
        return {
            "cache": str(store.cache()),
            "needs": [need.model_dump() for need, _ in self.files],
            "code": asdict(self.code) if self.code else None,
        }

    def typed(self) -> Iterator[str]:
        """The switches that lead to the same again."""
        if self.code:
            yield from ("--trust-remote-code", "--code-revision", self.code.pin)
        elif self.without_code:
            yield "--no-remote-code"

    def flags(self, engine: str) -> Iterator[Flag]:
        yield from self._trusted(engine)
        for need, path in self.files:
            if need.kind in FLAGS:
                yield Flag((FLAGS[need.kind],), str(path), f"{need.what}; SHA-256 {need.sha256}")

    def _trusted(self, engine: str) -> Iterator[Flag]:
        if self.code is None:
            return
        yield Flag(("--trust-remote-code",), None, f"as you said: {self.code.named}")
        if self.code.commit:
            why = "the commit whose code you trust, and no newer one"
            yield Flag(("--revision",), self.code.commit, why)
            if engine == "vllm":
                yield Flag(("--code-revision",), self.code.commit, why)

    def variables(self) -> Iterator[Variable]:
        found = next((path.parent for need, path in self.files if need.kind == "tiktoken"), None)
        if self.base:
            yield Variable(needs.BASE, self.base, "your own: nothing is fetched")
        elif found:
            yield Variable(needs.BASE, str(found), "else the engine fetches these encodings when it starts")


NOTHING = Beside()


def files(found: tuple[Need, ...], engine: str, *, trusted: bool) -> tuple[tuple[Need, Path], ...]:
    """Where each lies, for an engine that can take it; a parser is code, and wants to be trusted."""
    for need in found:
        if need.kind != "reasoning-parser-plugin":
            continue
        if engine != "vllm":
            raise Problem(
                f"{need.name} is a parser for vLLM, and {engine} takes none",
                cause=f"the model's table needs it: {need.what}",
                fix="--engine vllm",
            )
        if not trusted:
            raise Problem(
                f"this model needs {need.name}, which is code, and nobody said that it may run",
                cause=f"{need.what}; {need.url or need.repository}, SHA-256 {need.sha256}",
                fix="read it, then: --trust-remote-code",
            )
    return tuple(needs.paths(found))


def from_table(table: Mapping[str, Any]) -> Beside:
    """What a head has, as it lies on this host."""
    found = tuple(config.build(each, Need, "what the head's model needs") for each in table["needs"])
    return Beside(Code(**table["code"]) if table["code"] else None, tuple(needs.paths(found)))


def own_base(environ: Mapping[str, str] = os.environ) -> str | None:
    return environ.get(needs.BASE) or None
