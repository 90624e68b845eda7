"""Define the interface of an engine, which the modules vllm and sglang have."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from medley.command import Flag, Variable
from medley.engine.server_spec import ServerSpec
from medley.host_schema import HostTable
from medley.model.chat_format import ChatFormat
from medley.planner.plan import Plan
from medley.schema import Model


class Engine(Protocol):
    """The interface of the modules vllm and sglang."""

    TITLE: str
    PROGRAM: str
    PARSER_MODEL_FLAGS: tuple[str, ...]
    """The flags before the model's folder where only the engine's parser is run."""
    SCRIPT_OBSTACLES: Mapping[str, str]
    """The reason why a user's script cannot use the engine, by launcher."""
    SCRIPT_LAUNCHER: Flag | None
    """The flag of a script whose ranks torchrun starts; None if the engine starts its ranks itself."""
    SCRIPT_VARIABLES: tuple[Variable, ...]
    """The variables that a script needs besides those of a server."""

    def build_argv(self, program_folder: Path, serving: ServerSpec, plan: Plan, /) -> tuple[str, ...]:
        """Return the engine's command, before any flag."""

    def list_variables(self, serving: ServerSpec, plan: Plan, table: HostTable, /) -> Iterator[Variable]:
        """Yield the variables of settings without a flag, and of secrets, which a flag would show."""

    def list_flags(
        self, serving: ServerSpec, plan: Plan, table: HostTable, model: Model | None, /
    ) -> Iterator[Flag]:
        """Yield the engine's flags, each with its reason."""

    def list_ray_variables(self, address: str, network: Collection[Variable], /) -> Iterator[Variable]:
        """Yield the variables of an engine over Ray; `address`: the head's, `network`: the ranks' network."""

    def list_node_variables(self, address: str, /) -> Iterator[Variable]:
        """Yield the variables of a host's Ray, at this address, for the ranks that it will start."""

    def choose_parsers(self, chat: ChatFormat, /) -> tuple[str | None, str | None]:
        """Return the engine's names of the parsers of tool calls and reasoning; None for no parser."""

    def is_fatal(self, line: str, /) -> bool:
        """Return whether a line of output shows that the engine failed, though its process goes on."""

    def find_last_error(self, lines: Sequence[str], /) -> str | None:
        """Return the last error of the output that gives a reason; None without one."""
