"""Read the known failures, the phases of a start and the components of engines.

They are in failures/*.toml of the repository, one file per program or subject, and in the user's
~/.config/medley/failures, whose failures replace medley's of the same name.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from medley import config
from medley.errors import Problem
from medley.explain.engine_advice import EngineFlag, add_sglang_flags, keep_engine_parts, keep_version_parts
from medley.explain.package_versions import AffectedReleases
from medley.explain.scan_groups import OWN_WORDS, SCAN_GROUPS
from medley.explain.templates import GROUP, fill_in_words, fill_template
from medley.values import FileTable, Value, WrongKey

Confidence = Literal["high", "medium", "low"]
CONFIDENCE_RANK = {"high": 0, "medium": 1, "low": 2}
# A scan removes these characters from a line to find its kind, so a needle needs others.
VARYING = "0123456789abcdef"
_MIN_NEEDLE_CHARS = 3
_ENGINE_FLAGS_FILE = "engine-flags.toml"
_TABLES_WITH_FIX = ("failure", "phase", "wording", "cuda_error")

_Text = Annotated[str, Meta(max_length=1000)]


class Sign(FileTable):
    """One wording of a failure, because versions of a program differ."""

    needle: str
    """Text in every such line, for a fast first search."""
    pattern: Annotated[str, Meta(max_length=2000)] | None = None
    """A regular expression for the line without its prefix [default: the needle]."""

    def __post_init__(self) -> None:
        if len(self.needle.translate(str.maketrans("", "", VARYING))) < _MIN_NEEDLE_CHARS:
            why = f"it needs {_MIN_NEEDLE_CHARS} characters that are neither digits nor a to f"
            raise WrongKey("needle", why)

    @cached_property
    def expression(self) -> re.Pattern[str]:
        """The pattern, compiled when a line first has the needle."""
        return re.compile(re.escape(self.needle) if self.pattern is None else self.pattern)


class Failure(FileTable):
    """A known failure; in its texts {group} is a match, and [… {group} …] is omitted without it."""

    name: Annotated[str, Meta(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*\Z", max_length=60)]
    what: _Text
    cause: _Text
    fix: _Text
    signs: Annotated[tuple[Sign, ...], Meta(min_length=1)]
    confidence: Confidence = "high"
    several_causes: bool = False
    """Whether its line is certain and the cause is not: it is chosen like others, and shown as medium."""
    symptom: bool = False
    """Whether it follows from another failure, which is reported instead if known."""
    any_level: bool = False
    """Whether it counts in lines of level INFO and WARNING too."""
    in_source: bool = False
    """Whether it counts in lines of source code of a traceback too."""
    lines_after: Annotated[int, Meta(ge=0, le=30)] = 0
    """Number of lines after the first that are searched too."""
    unless: Annotated[str, Meta(max_length=2000)] | None = None
    """A regular expression that marks such lines as harmless."""
    over: tuple[str, ...] = ()
    """Names of less precise failures that it replaces."""
    also_when_ready: bool = False
    """Whether it counts after a server became ready."""
    ends: bool = False
    """Whether it is the engine's last error, after an earlier one with the reason."""
    minimum: Annotated[int, Meta(ge=1)] = 1
    """Fewer matching lines are not a failure."""
    within: Annotated[str, Meta(max_length=2000)] | None = None
    """A regular expression for a call of the traceback, `FILE, FUNCTION`, or without one the last step."""
    needs: str | None = None
    """A group that the scan must fill in for it, so that it counts."""
    after_restart: bool = False
    """Whether an earlier start in the log that failed explains it, such as memory that is not free yet."""
    hint: bool = False
    """Whether it only explains another failure."""
    during_shutdown: bool = False
    """Whether programs print it when they are stopped before they are ready."""
    affects: AffectedReleases | None = None
    """The releases of a package that have it; {affected} is the one that the log shows."""
    unless_stopped: bool = False
    """Whether lines near it that show a stop from outside, such as docker stop, explain it."""
    error_after: Annotated[str, Meta(max_length=2000)] | None = None
    """A regular expression for an error after it; without such an error the line is only a warning."""
    reworded: str | None = None
    """The group with the engine's own sentence, which a [[wording]] may say in plain words instead."""
    examples: tuple[str, ...] = ()
    """Logs that show it."""
    look_alikes: tuple[str, ...] = ()
    """Similar logs that do not show it."""

    @cached_property
    def harmless(self) -> re.Pattern[str] | None:
        return None if self.unless is None else re.compile(self.unless)

    @cached_property
    def error(self) -> re.Pattern[str] | None:
        return None if self.error_after is None else re.compile(self.error_after)

    @cached_property
    def scan_groups(self) -> frozenset[str]:
        """The groups of its texts that the scan fills in."""
        names = set(GROUP.findall(f"{self.what} {self.cause} {self.fix}"))
        return SCAN_GROUPS & (names | {self.needs or ""})

    def describe(
        self, groups: Mapping[str, str | None], engine: str | None = None, fit: Callable[[str], str] = str
    ) -> tuple[str, str, str]:
        """Return what failed, its cause and its fix, without what is for another engine than `engine`.

        `fit` changes the fix before the quoted words of the log are in it, because it may cut within quotes.
        """
        texts = (
            keep_version_parts(text, groups.get("engine_version"))
            for text in (self.what, self.cause, self.fix)
        )
        what, cause, fix = (keep_engine_parts(text, engine) for text in texts)
        what, cause = (fill_template(text, groups) for text in (what, cause))
        return what, cause, fill_in_words(fix, groups, OWN_WORDS, fit)


class Phase(Failure):
    """A step of a start or of serving; a failure only if the log ends in it. {message} is its last line."""

    complete: bool = False
    """Whether a log may end after it."""
    earlier: Annotated[str, Meta(max_length=2000)] | None = None
    """A regular expression for an earlier line, without which the step does not count."""
    any_step: bool = False
    """Whether it stands for the steps that no phase has; its signs are not searched."""


class Wording(Failure):
    """A form of sentence in which engines refuse a setting; it explains errors that no failure has."""


class Component(FileTable):
    """A part of an engine in which a traceback may end, and the flags that choose another."""

    name: str
    path: Annotated[str, Meta(max_length=2000)]
    """A regular expression for a call, as `FILE, FUNCTION`, or for the error's text."""
    instead: str | None = None
    """Flags or variables that choose another component; a part for one engine: [vLLM: …][SGLang: …]."""
    flags: tuple[str, ...] = ()
    """Flags that select the component; the explanation names those that the log has."""
    outer: bool = False
    """Whether it is named beside a component inside it, such as a draft beside its attention."""
    worded: bool = False
    """Whether the text of an error names it where no call of its traceback does."""
    weak: bool = False
    """Whether a component outside it is named instead, such as the layer whose kernel is compiled."""
    carries: bool = False
    """Whether it only carries calls to other parts, and so is named only if the traceback ends in it."""
    tuning: str | None = None
    """How to tune its kernels for a GPU; a part for one engine as in `instead`."""
    instead_unless: Annotated[str, Meta(max_length=2000)] | None = None
    """A regular expression for the error and the lines before it; where it fits, `instead` is left out."""

    @cached_property
    def expression(self) -> re.Pattern[str]:
        return re.compile(self.path)

    def alternative(self, text: str, engine: str | None = None) -> str | None:
        """Return `instead` for an engine, unless this text shows that it does not apply."""
        excluded = self.instead_unless and re.search(self.instead_unless, text)
        return None if excluded else keep_engine_parts(self.instead or "", engine) or None


class CudaError(FileTable):
    """An error of CUDA, as its driver API documents it."""

    code: int
    name: str
    """Its name in the runtime API."""
    driver: str | None = None
    """Its name in the driver API, if that has it."""
    text: str
    """The words of cudaGetErrorString."""
    meaning: _Text
    fix: _Text | None = None
    """What to do if the engine's own calls get it."""


class File(FileTable):
    """A file of known failures: failures/SUBJECT.toml."""

    failure: tuple[Failure, ...] = ()
    phase: tuple[Phase, ...] = ()
    wording: tuple[Wording, ...] = ()
    component: tuple[Component, ...] = ()
    cuda_error: tuple[CudaError, ...] = ()
    engine_flag: tuple[EngineFlag, ...] = ()

    @property
    def rows(self) -> Iterator[tuple[tuple[str, int], Failure]]:
        """Failures, phases and wordings, each with its table and number in the file."""
        tables = (("failure", self.failure), ("phase", self.phase), ("wording", self.wording))
        for table, rows in tables:
            yield from (((table, at), row) for at, row in enumerate(rows))


class KnownFailures(Value):
    """All known failures; `user`: names of the user's own."""

    failures: tuple[Failure, ...]
    user: frozenset[str] = frozenset()
    problems: tuple[Problem, ...] = ()
    phases: tuple[Phase, ...] = ()
    components: tuple[Component, ...] = ()
    cuda_errors: tuple[CudaError, ...] = ()
    wordings: tuple[Wording, ...] = ()


def sign(needle: str, pattern: str | None = None) -> Sign:
    return Sign(needle=needle, pattern=pattern)


def list_files() -> tuple[list[Path], list[Path]]:
    """Return the user's files, and medley's: of the source tree or the installed package."""
    own, *shipped = (config.list_tables(folder / "failures") for folder in config.list_config_folders())
    return own, next(filter(None, shipped), [])


def load(*, user: bool = True) -> KnownFailures:
    """Read all files, without invalid ones; without `user`, only medley's."""
    user_paths, shipped_paths = list_files()
    problems: list[Problem] = []
    user_files = list(_read_files(user_paths if user else [], problems, trusted=False))
    shipped_files = list(_read_files(shipped_paths, problems, trusted=True))
    user_failures = {failure.name: failure for file in user_files for failure in file.failure}
    shipped_failures = {failure.name: failure for file in shipped_files for failure in file.failure}
    files = (*user_files, *shipped_files)
    return KnownFailures(
        tuple((shipped_failures | user_failures).values()),
        frozenset(user_failures),
        tuple(problems),
        # The user's own come first, because the first that fits is used.
        tuple(phase for file in files for phase in file.phase),
        tuple(component for file in files for component in file.component),
        tuple(error for file in files for error in file.cuda_error),
        tuple(wording for file in files for wording in file.wording),
    )


def read(path: Path) -> File:
    """Read a file; a Problem names file, line and key."""
    try:
        changed_ns = path.stat().st_mtime_ns
    except OSError:
        changed_ns = 0  # _read reports why
    return _read(path, changed_ns)


def list_mistakes(path: Path) -> Iterator[Problem]:
    """Yield invalid patterns, and templates with unknown groups."""
    file = read(path)
    for number, component in enumerate(file.component):
        for key in ("path", "instead_unless"):
            if reason := _describe_invalid_pattern(getattr(component, key) or ""):
                yield build_key_problem(path, ("component", number), component.name, key, reason)
    for place, failure in file.rows:
        patterns = [
            ("unless", failure.unless),
            ("error_after", failure.error_after),
            ("within", failure.within),
            ("earlier", failure.earlier if isinstance(failure, Phase) else None),
        ]
        patterns += [("signs", sign.pattern) for sign in failure.signs]
        invalid = [
            (key, reason) for key, pattern in patterns if (reason := _describe_invalid_pattern(pattern or ""))
        ]
        yield from (build_key_problem(path, place, failure.name, key, reason) for key, reason in invalid)
        if not invalid:
            yield from _list_group_problems(path, place, failure)


def _list_group_problems(path: Path, place: tuple[str, int], failure: Failure) -> Iterator[Problem]:
    groups = {name for sign in failure.signs for name in sign.expression.groupindex}
    if reserved := groups & SCAN_GROUPS:
        cause = f"medley itself fills in the group {min(reserved)}: give it another name"
        yield build_key_problem(path, place, failure.name, "signs", cause)
    if failure.needs and failure.needs not in groups | SCAN_GROUPS:
        yield build_key_problem(path, place, failure.name, "needs", f"there is no group {failure.needs}")
    usable = groups | SCAN_GROUPS
    if isinstance(failure, Phase):
        usable |= {"message"}
    if isinstance(failure, Wording):
        usable |= {"said"}
    for key, text in (("what", failure.what), ("cause", failure.cause), ("fix", failure.fix)):
        for name in {*GROUP.findall(text)} - usable:
            cause = f"no pattern has a group {name}; the groups are {', '.join(sorted(groups)) or 'none'}"
            yield build_key_problem(path, place, failure.name, key, cause)


def build_key_problem(path: Path, place: tuple[str, int], name: str, key: str, cause: str) -> Problem:
    """Make a Problem of a key of the row `at` of the file: its table and number."""
    number = config.find_line(path.read_text(encoding="utf-8-sig"), (*place, key))
    where = f"{path}:{number}"
    return Problem(f"{where}: '{key}' of {name} is wrong", cause=cause, fix=f"correct {where}")


def _read_files(paths: Iterable[Path], problems: list[Problem], *, trusted: bool) -> Iterator[File]:
    for path in paths:
        try:
            file = read(path)
            if not trusted and (mistake := next(list_mistakes(path), None)):
                raise mistake
        except Problem as problem:
            problems.append(problem)
        else:
            yield file


@lru_cache(maxsize=512)
def _read(path: Path, _changed_ns: int) -> File:
    return _add_flags_of_sglang(config.read_table(path, File), read_engine_flags())


@lru_cache(maxsize=1)
def read_engine_flags() -> tuple[EngineFlag, ...]:
    _, shipped = list_files()
    return tuple(
        flag
        for path in shipped
        if path.name == _ENGINE_FLAGS_FILE
        for flag in config.read_table(path, File).engine_flag
    )


def _describe_invalid_pattern(pattern: str) -> str | None:
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        return f"{pattern[:200]} is not a regular expression: {error}"
    return None


def _add_flags_of_sglang(file: File, flags: Sequence[EngineFlag]) -> File:
    """Return the file with the flags of both engines in its advice."""
    rows = {
        table: tuple(add_sglang_flags(row, "fix", flags) for row in getattr(file, table))
        for table in _TABLES_WITH_FIX
    }
    components = tuple(add_sglang_flags(row, "instead", flags) for row in file.component)
    return file.replace(**rows, component=components)
