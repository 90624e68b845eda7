"""Scan a log once for known failures.

A log has millions of lines that differ only in numbers. So each kind of line is searched once for needles,
and expressions are tried only in lines of kinds with a needle.
"""

import re
import time
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import accumulate

import msgspec

from medley.explain import error_lines, events
from medley.explain.context import CONTEXT_LINES, Context, read_context, read_places
from medley.explain.flags import read_flags
from medley.explain.hosts import collect_nccl_line
from medley.explain.lines import INFO, WARNING, Block, LogLine, decode, decode_start, parse_line, read_blocks
from medley.explain.log_facts import LogFacts, NearbyLines
from medley.explain.patterns import VARYING, Failure, KnownFailures, Sign
from medley.explain.scanned_log import TAIL_LINES, FailureMatch, Log, LogScan
from medley.explain.skipped_imports import SkippedImport
from medley.explain.stops import find_stop
from medley.explain.tried_steps import is_tried
from medley.explain.user_patterns import PatternMatch, UserPatterns
from medley.explain.wrapped_lines import join_wrapped

_MAX_MATCHES = 6
_MAX_UNMET = 8
"""Lines that a failure matches without the group that it needs."""
_MAX_ERRORS_OF_KIND = 40
_PLACEHOLDER = re.compile(r"\{[\w.\[\]()'\"!:]{1,60}\}.{0,20}")
_MAX_ERRORS = 48
_PARALLEL_ERRORS = 16
"""Errors whose tracebacks may be printed line by line at the same time."""
_MAX_TRIES = 20_000
_CPU_LIMIT_S = 0.25
"""Limit of CPU time for all expressions of one failure, because a crafted log may slow them down."""
_MAX_KINDS = 50_000
_MAX_STARTS = 1_000
_MAX_ENABLED = 4
_MAX_REMEDIES = 16
_MAX_SKIPPED = 200
_MAX_ENGINE_TRIES = 20_000
"""Lines that may show which engine printed the log."""
_COMMAND_LINES = 30
_MAX_ARGUMENT_CHARS = 30_000
MAX_LINE_CHARS = 1600
"""Characters of a line around a needle."""
# The difference between lines of a kind: digits, and letters of hexadecimal numbers.
_VARYING = VARYING.encode()
# A line with INFO and none of these is of level INFO.
_TROUBLE_WORDS = re.compile(rb"ERR|rror|WARN|CRIT|FATAL| [WEFC] ")
_PRINTED_ARGUMENTS = re.compile(r"non-default args:|server_args=")
_OWN_LINE = re.compile(r"(?:\S+ )?(?:medley: |medley keeps |\$ )")


class Needles:
    """All needles with their signs, built once for several logs."""

    def __init__(self, known: KnownFailures) -> None:
        self.known = known
        self.signs: dict[bytes, list[tuple[Failure | events.Transition, Sign]]] = {}
        entries: tuple[Failure | events.Transition, ...] = (*events.TRANSITIONS, *known.failures)
        for entry in entries:
            for sign in entry.signs:
                self.signs.setdefault(sign.needle.encode(), []).append((entry, sign))
        self.flags = frozenset(flag for component in known.components for flag in component.flags)
        self.bare = {needle: needle.translate(None, _VARYING) for needle in self.signs}
        self.any_level = {
            needle for needle, entries in self.signs.items() if any(entry.any_level for entry, _ in entries)
        }


def scan_log(log: Log, needles: Needles, user: UserPatterns) -> LogScan:
    return _Scan(log.name, needles, user).read(log.blocks)


class _Scan:
    def __init__(self, name: str, needles: Needles, user: UserPatterns) -> None:
        self.result = LogScan(name)
        self._needles, self._user = needles, user
        self._kinds: dict[bytes, tuple[bytes, ...]] = {}
        self._match_counts = Counter[str]()
        self._try_counts, self._unmet_counts = Counter[str](), Counter[str]()
        self._spent_s = defaultdict[str, float](float)
        self._error_counts = Counter[bytes]()
        self._places: tuple[int, list[str]] = -1, []
        self._wrapped: tuple[int, str | None] = -1, None
        self._error_needles = {
            sign.needle.encode()
            for transition in events.TRANSITIONS
            for sign in transition.signs
            if transition.kind in events.ERROR_KINDS
        }

    def read(self, data: Iterable[bytes]) -> LogScan:
        for block in read_blocks(data):
            if not self.result.lines:
                self.result.own_lines = [
                    text for text in map(decode, block.lines[:200]) if _OWN_LINE.match(text)
                ]
            self._scan_block(block)
            self.result.lines += len(block.lines)
            self.result.tail.extend(decode_start(raw, MAX_LINE_CHARS) for raw in block.lines[-TAIL_LINES:])
        return self.result

    def _scan_block(self, block: Block) -> None:
        kinds = b"\n".join(block.lines).translate(None, _VARYING).split(b"\n")
        self._learn_kinds(kinds)
        signs = self._needles.signs
        active = {
            needle
            for needle, entries in signs.items()
            if not all(self._is_done(entry) for entry, _ in entries)
        }
        needles_by_kind: dict[bytes, list[bytes]] = {}
        for kind in set(kinds):
            exhausted = self._error_needles if self._error_counts[kind] >= _MAX_ERRORS_OF_KIND else ()
            if needles := [
                needle for needle in self._kinds[kind] if needle in active and needle not in exhausted
            ]:
                needles_by_kind[kind] = needles
        for index, kind in enumerate(kinds if needles_by_kind else ()):
            for needle in needles_by_kind.get(kind, ()):
                if needle in self._error_needles:
                    self._error_counts[kind] += 1
                    if self._error_counts[kind] > _MAX_ERRORS_OF_KIND:
                        continue
                self._match_signs(block, index, needle)

    def _learn_kinds(self, kinds: Iterable[bytes]) -> None:
        """Find the needles in new kinds of lines, all at one time."""
        distinct = set(kinds)
        new_kinds = [kind for kind in distinct if kind not in self._kinds]
        if len(self._kinds) + len(new_kinds) > _MAX_KINDS:
            self._kinds, new_kinds = {}, list(distinct)
        self._kinds.update(dict.fromkeys(new_kinds, ()))
        info_kinds = {kind for kind in new_kinds if b"INFO" in kind and not _TROUBLE_WORDS.search(kind)}
        self._find_needles(list(info_kinds), self._needles.any_level)
        self._find_needles([kind for kind in new_kinds if kind not in info_kinds], self._needles.signs)

    def _find_needles(self, kinds: list[bytes], needles: Iterable[bytes]) -> None:
        joined, ends = b"\n".join(kinds), list(accumulate(len(kind) + 1 for kind in kinds))
        for needle in needles:
            position = joined.find(self._needles.bare[needle])
            while position >= 0:
                index = bisect_right(ends, position)
                self._kinds[kinds[index]] += (needle,)
                position = joined.find(self._needles.bare[needle], ends[index])

    def _match_signs(self, block: Block, index: int, needle: bytes) -> None:
        if needle not in block.lines[index]:
            return
        line = None
        for entry, sign in self._needles.signs[needle]:
            if self._is_done(entry):
                continue
            line = line or error_lines.unwrap_worker_error(
                parse_line(_cut_around(block.lines[index], needle))
            )
            if isinstance(entry, events.Transition):
                self._read_transition(entry, sign, line, block, index)
            else:
                self._record_match(entry, sign, line, block, index)

    def _is_done(self, entry: Failure | events.Transition) -> bool:
        """Whether it was found or tried often enough, because a log may repeat a line a million times."""
        if isinstance(entry, events.Transition):
            if entry.kind in events.ENGINES:
                return self.result.engine is not None or self._try_counts[entry.kind] > _MAX_ENGINE_TRIES
            return entry.kind in events.ERROR_KINDS and self.result.stopped
        if self._match_counts[entry.name] >= _MAX_MATCHES or self._unmet_counts[entry.name] >= _MAX_UNMET:
            return True
        return self._try_counts[entry.name] >= _MAX_TRIES or self._spent_s[entry.name] > _CPU_LIMIT_S

    def _read_transition(
        self, transition: events.Transition, sign: Sign, line: LogLine, block: Block, index: int
    ) -> None:
        match = sign.expression.search(line.text)
        self._try_counts[transition.kind] += 1
        if match is None:
            return
        if transition.kind in events.ENGINES:
            self.result.engine = transition.kind
        elif transition.kind == events.ARGUMENTS:
            self._read_arguments(block, index)
        elif transition.kind in events.FACT_KINDS:
            self._read_fact(transition.kind, match.groupdict(), line)
        elif not events.is_echo(line.text):
            self._apply_transition(transition, match, line, block, index)

    def _read_fact(self, kind: str, groups: dict[str, str], line: LogLine) -> None:
        """Keep what a line shows about the start, whichever level it has."""
        match kind:
            case events.SETTING:
                self.result.add_setting(line.text)
            case events.TYPED if events.is_typed(line):
                self.result.add_setting(line.text)
            case events.TRIED if is_tried(line):
                self.result.add_tried(line.text)
            case events.REMEDY if line.level == WARNING:
                self.result.remedies = [*dict.fromkeys([*self.result.remedies, line.text])][:_MAX_REMEDIES]
            case events.SKIPPED:
                skipped = SkippedImport(groups["module"], groups["reason"])
                self.result.skipped = [*dict.fromkeys([*self.result.skipped, skipped])][:_MAX_SKIPPED]
            case events.FACT:
                figures = {name: value for name, value in groups.items() if value}
                self.result.figures = figures | self.result.figures
                if line.nccl:
                    collect_nccl_line(self.result.figures, line.host, line.text)
            case _:
                pass

    def _apply_transition(
        self, transition: events.Transition, match: re.Match[str], line: LogLine, block: Block, index: int
    ) -> None:
        match transition.kind:
            case events.RECOVERED:
                self.result.drop_resolved(transition.resolves)
            case events.STOPPED:
                self.result.stopped = True
            case events.NCCL:
                self.result.nccl = match[1]
            case events.DRIVER:
                self.result.driver = match[1]
            case events.VERSION:
                self.result.version = f"vLLM {match[1]}"
            case events.ENABLED:
                self.result.enabled = [*dict.fromkeys([*self.result.enabled, match[1]])][:_MAX_ENABLED]
            case events.CALL:
                self._read_traceback_end(line, block, index)
            case events.EXCEPTION:
                self._record_error(line, block, index)
            case _:
                self.result.begin(ready=transition.kind == events.READY)
                self._match_counts.clear()
                self._unmet_counts.clear()
                self._error_counts.clear()
                self.result.ready = line.when if transition.kind == events.READY else self.result.ready

    def _read_arguments(self, block: Block, index: int) -> None:
        """Read the flags of a start, and of a command before it."""
        raws = [block.lines[index], *block.list_following(index, _COMMAND_LINES)]
        last_index = next(
            (number for number, raw in enumerate(raws) if not raw.rstrip().endswith(b"\\")), len(raws)
        )
        text = " ".join(parse_line(decode(raw[:_MAX_ARGUMENT_CHARS])).text for raw in raws[: last_index + 1])
        self.result.flags |= read_flags(text, self._needles.flags)
        self.result.add_arguments(text, is_command=not _PRINTED_ARGUMENTS.match(text))
        self.result.starts.append(self.result.lines + index + 1)
        del self.result.starts[_MAX_STARTS:]

    def _read_context(self, line: LogLine, block: Block, index: int) -> Context:
        result = self.result
        facts = LogFacts(
            engine=result.engine,
            flags=result.flags,
            nccl=result.nccl,
            version=result.version,
            enabled=tuple(result.enabled),
            arguments=result.all_settings,
            driver=result.driver,
            figures=result.figures,
            remedies=tuple(result.remedies),
            skipped=tuple(result.skipped),
        )
        return read_context(_around(block, index), line, self._needles.known, facts)

    def _read_traceback_end(self, call: LogLine, block: Block, index: int) -> None:
        """Keep the error below the last call of a traceback, whatever its class is named."""
        if end := error_lines.find_traceback_end(
            call, block.list_following(index, error_lines.LINES_BELOW_CALL)
        ):
            self._record_error(end.line, block, index + end.lines_below)

    def _record_error(self, line: LogLine, block: Block, index: int) -> None:
        number = self.result.lines + index + 1
        if any(error.number == number for error in self.result.errors[-_PARALLEL_ERRORS:]):
            return
        when = line.when or block.find_time_before(index)
        if joined := self._join_wrapped(block, index):
            line = line.replace(text=joined)
            self._match_joined(line, block, index)
        error = error_lines.read_error_line(
            line, number, when, block.list_preceding(index, 8), block.list_following(index, 12)
        )
        if error and (
            self.result.end_number is None or number - self.result.end_number <= error_lines.NEAR_LINES
        ):
            # Keep the first and the last ones.
            self.result.errors.append(error.replace(context=self._read_context(line, block, index)))
            del self.result.errors[_MAX_ERRORS // 2 : len(self.result.errors) - _MAX_ERRORS // 2]

    def _record_match(self, failure: Failure, sign: Sign, line: LogLine, block: Block, index: int) -> None:
        self._try_counts[failure.name] += 1
        if not self._can_count(failure, line):
            return
        later_lines = block.parse_following(index, failure.lines_after, line.rank, MAX_LINE_CHARS)
        text = "\n".join([line.text, *(other.text for _, other in later_lines)])
        match = self._search(failure, sign, text)
        if match is None and (joined := self._join_wrapped(block, index)):
            line, text = line.replace(text=joined), joined
            match = self._search(failure, sign, text)
        is_stopped = failure.unless_stopped and _is_after_stop(block, index)
        if match is None or is_stopped or not self._is_within(failure, line, block, index):
            return
        if any(_PLACEHOLDER.fullmatch(value) for value in match.groups.values() if value):
            return  # the traceback prints the line that raises, and its f-string has no values yet
        number = self.result.lines + index + 1
        if match.line_at is not None:
            line_count = text.count("\n", 0, match.line_at)
            if line_count:
                distance, line = later_lines[line_count - 1]
                number += distance
        groups = {**match.groups}
        if failure.scan_groups or failure.reworded:
            groups = {**msgspec.structs.asdict(self._read_context(line, block, index)), **groups}
        if failure.needs and not groups.get(failure.needs):
            self._unmet_counts[failure.name] += 1
            return
        self._match_counts[failure.name] += 1
        when = line.when or block.find_time_before(index)
        if failure.ends and self.result.end_number is None:
            self.result.end_number = self.result.lines + index + 1
        self.result.matches.append(
            FailureMatch(failure, groups, line, number, self.result.name, when, self.result.engine)
        )

    def _match_joined(self, line: LogLine, block: Block, index: int) -> None:
        """Match signs whose needle is in a wrapped message, and in no line of it alone."""
        text = line.text.encode()
        for needle in (
            each for each in self._needles.signs if each in text and each not in block.get_line(index)
        ):
            for entry, sign in self._needles.signs[needle]:
                if isinstance(entry, Failure) and not self._is_done(entry):
                    self._record_match(entry, sign, line, block, index)

    def _join_wrapped(self, block: Block, index: int) -> str | None:
        number = self.result.lines + index
        if self._wrapped[0] != number:
            # Several failures ask for the same line.
            before, after = block.list_preceding(index, 8), block.list_following(index, 8)
            self._wrapped = number, join_wrapped(before, block.get_line(index), after)
        return self._wrapped[1]

    def _can_count(self, failure: Failure, line: LogLine) -> bool:
        """Whether a line can show the failure, by its level and the lines before it."""
        if events.is_echo(line.text) or (events.is_source_code(line.text) and not failure.in_source):
            return False
        if failure.during_shutdown:
            if self.result.was_ready:
                return False
        elif self.result.stopped and (failure.symptom or failure.confidence != "high"):
            return False
        return failure.any_level or line.level not in (INFO, WARNING) or (line.nccl and line.level == WARNING)

    def _is_within(self, failure: Failure, line: LogLine, block: Block, index: int) -> bool:
        if failure.within is None:
            return True
        start_s, number = time.thread_time(), self.result.lines + index
        if self._places[0] != number:
            # Several failures ask for the same line.
            self._places = number, read_places(_around(block, index), line, self._needles.known.phases)
        self._spent_s[failure.name] += time.thread_time() - start_s
        return any(re.search(failure.within, call) for call in self._places[1])

    def _search(self, failure: Failure, sign: Sign, text: str) -> PatternMatch | None:
        if failure.name in self._user.names:
            return self._user.search(failure, sign, text)
        start_s = time.thread_time()
        match = sign.expression.search(text)
        if match and failure.harmless and failure.harmless.search(text):
            match = None
        self._spent_s[failure.name] += time.thread_time() - start_s
        groups = match.groupdict() if match else {}
        return match and PatternMatch(groups, match.start("line") if "line" in groups else None)


def _is_after_stop(block: Block, index: int) -> bool:
    near = [*_around(block, index).before, block.get_line(index)]
    return find_stop(list(map(decode, near))) is not None


def _around(block: Block, index: int) -> NearbyLines:
    return NearbyLines(
        block.list_preceding(index, CONTEXT_LINES), block.list_following(index, CONTEXT_LINES // 2)
    )


def _cut_around(raw: bytes, needle: bytes) -> str:
    """Return the line: of a long one the part around the needle, of a redrawn one the matching drawing."""
    text = next((part for part in raw.split(b"\r") if needle in part), raw)
    if len(text) > MAX_LINE_CHARS and not events.is_echo(parse_line(decode(text[:400])).text):
        start = max(0, text.find(needle) - MAX_LINE_CHARS // 2)
        text = text[start : start + MAX_LINE_CHARS]
    return decode(text[:MAX_LINE_CHARS])
