"""Read scenarios.toml: the parts of the guides, and Medley's command for each."""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from medley.planner.candidates import ForcedSizes
from medley.planner.placement import PlacementOptions
from medley.planner.plan import KvType, Launcher
from medley.schema import EngineName
from tools.guides.extract import Fact

FILE = Path(__file__).with_name("scenarios.toml")


@dataclass(frozen=True)
class Scenario:
    name: str
    title: str
    what: str
    facts: tuple[str, ...]
    """Patterns of `source | section | command`."""
    hosts: str
    model: str
    typed: tuple[str, ...] = ()
    """What is typed instead of, or before, the commands of the dry run."""
    only_typed: bool = False
    stands_for: str = ""
    """The guide's model, where Medley has no table of it and another has its place here."""
    engine: EngineName = "vllm"
    launcher: Launcher | None = None
    tensor: int | None = None
    stages: int | None = None
    context: int | None = None
    concurrency: int = 1
    kv_type: KvType = "auto"
    served: str = ""
    address: str = "127.0.0.1"
    port: int = 8000
    image: str | None = None
    extra: tuple[str, ...] = ()
    python: bool = False
    """Whether Python arguments are compared, instead of flags."""
    bench: bool = False
    links: bool = False
    """Whether `medley link setup` is what is compared."""

    @property
    def wanted(self) -> PlacementOptions:
        return PlacementOptions(
            concurrency=self.concurrency,
            context=self.context,
            sizes=ForcedSizes(self.tensor, self.stages, None),
            engine=self.engine,
            launcher=self.launcher,
            kv_type=self.kv_type,
            needs_one_server=self.launcher == "mp",
        )

    def has(self, fact: Fact) -> bool:
        return any(fnmatchcase(place(fact), pattern) for pattern in self.facts)


def place(fact: Fact) -> str:
    """Where a fact stands, in one line: brackets would be a pattern's own."""
    return f"{fact.source} | {fact.section} | {fact.command}"


def table() -> dict[str, Any]:
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


def scenarios() -> Iterator[Scenario]:
    for each in table()["scenario"]:
        lists = {key: tuple(value) for key, value in each.items() if isinstance(value, list)}
        yield Scenario(**{**each, **lists})
