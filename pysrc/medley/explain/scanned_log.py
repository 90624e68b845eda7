"""Hold what the scan of a log found: known failures, exceptions, the engine and its settings."""

import re
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from medley.explain import error_lines
from medley.explain.error_lines import ErrorLine
from medley.explain.lines import LogLine, cut_at_blank
from medley.explain.package_versions import describe_affected
from medley.explain.patterns import Failure
from medley.explain.skipped_imports import SkippedImport
from medley.explain.whole_log import read_whole_log
from medley.values import Value

TAIL_LINES = 200
_LONGEST = 700
_MAX_SETTINGS, _LONGEST_SETTING = 64, 1000
_MAX_TRIED = 32
_VARIABLE_NAME = re.compile(r"(?<![\w$])[A-Z][A-Z0-9_]{3,60}=")


class Log(Value):
    name: str
    blocks: Iterable[bytes]


class FailureMatch(Value):
    failure: Failure
    groups: Mapping[str, str | None]
    line: LogLine
    number: int
    log: str
    when: tuple[int, int, float] | None
    engine: str | None = None
    """The engine that printed the log."""


@dataclass
class LogScan:
    """The contents of a log since its last start, or since it was ready."""

    name: str
    matches: list[FailureMatch] = field(default_factory=list)
    ready: tuple[int, int, float] | None = None
    """The time when it last became ready."""
    was_ready: bool = False
    stopped: bool = False
    """Whether it was asked to end; later errors are not failures."""
    errors: list[ErrorLine] = field(default_factory=list)
    end_number: int | None = None
    """The line of the engine's last error."""
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=TAIL_LINES))
    lines: int = 0
    nccl: str | None = None
    """The version of NCCL that it shows."""
    version: str | None = None
    """The engine and its version, such as vLLM 0.33.0."""
    enabled: list[str] = field(default_factory=list)
    """Optimizations that the engine reports to have switched on by itself."""
    engine: str | None = None
    """The engine that printed it: events.VLLM or events.SGLANG."""
    flags: dict[str, str] = field(default_factory=dict)
    """Flags of the engine that select a component, with what to type for each."""
    driver: str | None = None
    """The version of the NVIDIA driver that it shows."""
    figures: dict[str, str] = field(default_factory=dict)
    """Figures of memory in GiB, and releases of L4T, by the groups of events.TRANSITIONS."""
    remedies: list[str] = field(default_factory=list)
    """Warnings that name a remedy."""
    skipped: list[SkippedImport] = field(default_factory=list)
    """Imports that failed, and that the engine went on without."""
    arguments: str = ""
    """The text in which the engine printed its arguments, and the command before it."""
    settings: list[str] = field(default_factory=list)
    """Lines with variables of the environment, such as those of a recipe."""
    tried: list[str] = field(default_factory=list)
    """Sentences of its owner about what was tried."""
    _command: str = ""
    """The last command, until its program has printed its arguments."""
    starts: list[int] = field(default_factory=list)
    """Lines in which the engine printed its arguments, once a start."""
    own_lines: list[str] = field(default_factory=list)
    """Medley's own lines at its beginning: the plan's reasons and the command."""

    def begin(self, *, ready: bool) -> None:
        """Drop earlier failures."""
        self.matches = [match for match in self.matches if match.failure.also_when_ready and ready]
        self.errors, self.end_number, self.stopped, self.was_ready = [], None, False, ready

    def add_arguments(self, text: str, *, is_command: bool) -> None:
        """Keep the arguments of the newest start; a command before the printed ones completes them."""
        command = self._command
        self._command = text if is_command else ""
        self.arguments = text if is_command or not command else f"{text} {command}"

    def add_setting(self, text: str) -> None:
        """Keep a line with variables; their names in small letters are those of flags."""
        small = _VARIABLE_NAME.sub(lambda match: match[0].lower(), text[:_LONGEST_SETTING])
        if len(self.settings) < _MAX_SETTINGS and text[:_LONGEST_SETTING] not in self.settings:
            self.settings += [text[:_LONGEST_SETTING], small]

    def add_tried(self, sentence: str) -> None:
        """Keep a sentence about what was tried; the settings in it are no advice either."""
        if sentence not in self.tried:
            self.tried = [*self.tried, sentence[:_LONGEST_SETTING]][:_MAX_TRIED]
            self.add_setting(sentence)

    @property
    def all_settings(self) -> str:
        return " ".join([self.arguments, *self.settings]).strip()

    @property
    def empty(self) -> bool:
        """Whether it has only blank lines."""
        return self.lines <= TAIL_LINES and not any(line.strip() for line in self.tail)

    @property
    def reason(self) -> ErrorLine | None:
        """The unknown error that ended it."""
        match_numbers = {match.number for match in self.matches}
        errors = [error for error in self.errors if error.number not in match_numbers]
        return error_lines.find_reason(
            errors, ready=self.was_ready, end_number=self.end_number, lines=self.lines
        )

    def complete_matches(self) -> None:
        """Drop faults of other releases than the log shows; add the facts of the whole log to the others."""
        self.matches = [
            match.replace(
                groups={
                    **match.groups,
                    **read_whole_log(self.figures, match.groups, self.tail),
                    "affected": affected or None,
                }
            )
            for match in self.matches
            if (affected := describe_affected(match.failure.affects, self.figures)) is not None
        ]

    def drop_resolved(self, names: tuple[str, ...]) -> None:
        resolved_numbers = {match.number for match in self.matches if match.failure.name.startswith(names)}
        self.matches = [match for match in self.matches if match.number not in resolved_numbers]
        self.errors = [error for error in self.errors if error.number not in resolved_numbers]


def build_unknown_match(failure: Failure, error: ErrorLine, scan: LogScan) -> FailureMatch:
    groups: dict[str, str | None] = {
        "kind": error.kind,
        "message": shorten_message(error.message),
        "log": scan.name,
    }
    groups |= {
        **msgspec.structs.asdict(error.context),
        "origin": error.origin and shorten_message(error.origin),
    }
    return FailureMatch(failure, groups, error.line, error.number, scan.name, error.when, scan.engine)


def shorten_message(text: str) -> str:
    words = re.sub(r"\s+", " ", text).strip()
    return words if len(words) <= _LONGEST else f"{cut_at_blank(words, _LONGEST)} …"
