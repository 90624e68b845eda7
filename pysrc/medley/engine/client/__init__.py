"""A client is an engine's own benchmark: how it is told what to ask of a server, and what it measured."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from medley.bench.figures import Figures
from medley.bench.load import Run
from medley.command import Command
from medley.reasoned import Flag
from medley.variables import UNSET

Offline = Literal["latency", "throughput"]
KEY = "OPENAI_API_KEY"
"""Where both engines' clients look for the key of a server."""


@dataclass(frozen=True)
class Target:
    """The server that is measured."""

    base: str
    """Its address, without /v1."""
    path: str
    """Below it, where its API is: /v1."""
    model: str
    """As requests name it."""
    tokenizer: str
    """A folder, or ORG/NAME."""
    key: str | None = None
    """The file of its key."""
    env: Mapping[str, str] = field(default_factory=dict)
    """What the client is started with besides."""

    def command(self, *argv: str) -> Command:
        secrets = {KEY: self.key} if self.key else {}
        # The user's own key of OpenAI is for OpenAI alone.
        return Command(argv, self.env, UNSET if self.key else (*UNSET, KEY), secrets)


class Client(Protocol):
    """What the modules vllm and sglang answer, and nothing more."""

    def served(self, binary: Path, target: Target, run: Run, result: Path, /) -> Command:
        """One run against a server; what it measured is then in `result`."""
        ...

    def figures(self, table: Mapping[str, Any], run: Run, /) -> Figures | None:
        """What stands in that file; None where it is no result."""
        ...

    def offline(self, binary: Path, target: str, mode: Offline, run: Run, result: Path, /) -> tuple[str, ...]:
        """A run without a server, before the plan's flags; `run.requests` is how often a batch is measured.

        In `throughput` it is the number of prompts, all at once, measured once.
        """
        ...

    def offline_figures(self, text: str, mode: Offline, run: Run, /) -> tuple[Figures, ...]:
        """What stands in its file, each time that it was measured; empty where it is no result."""
        ...

    def unable(self, mode: Offline, vocabulary: int, /) -> str | None:
        """Why a model of so many tokens cannot be measured so; None where it can."""
        ...

    def only_served(self, flag: Flag, /) -> bool:
        """Whether a flag means something to a server alone, so that the offline modes do not know it."""
        ...
