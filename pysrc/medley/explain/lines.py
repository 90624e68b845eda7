"""Split a log into blocks and lines, and parse the lines' prefixes."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain

from medley.values import Value

INFO, WARNING, ERROR = "info", "warning", "error"
VLLM, SGLANG = "vLLM", "SGLang"
"""Engines, by the names that failures/*.toml use."""
BLOCK_BYTES = 1 << 20
_SAMPLE_LINES = 2_000
_DOCKER_JSON_START = b'{"log":'
_MARGIN = re.compile(rb"[ \t]*")
_LINES_BEFORE, _LINES_AFTER = 60, 32
"""Lines of the blocks before and after one that are kept with it."""
# A report may have lost the escape character, [1;36m(EngineCore pid=9)[0;0m, or have ^[ in its place.
COLOR = re.compile(
    r"(?:\x1b|\^\[)?\[\d{1,2}(?:;\d{1,3})*m(?!\])|\x1b\[[0-9;?]*[A-Za-z]|"
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|[\x00-\x08\x0b-\x1f]"
)
# The other side of a frame, and a carriage return as cat -v prints it.
_LINE_END = re.compile(r"(?:[│┃]|\^M)\s*$")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_LEVELS = {
    **dict.fromkeys(("DEBUG", "TRACE", "INFO", "I", "D", "DBG", "LOG"), INFO),
    **dict.fromkeys(("WARNING", "WARN", "W"), WARNING),
    **dict.fromkeys(("ERROR", "CRITICAL", "FATAL", "E", "C", "F", "ERR"), ERROR),
}
_CLOCK = r"\d\d:\d\d:\d\d(?:[.,]\d+)?"
_PREFIX_PARTS = tuple(
    re.compile(pattern)
    for pattern in (
        # A unit's or a container's own time stamp
        rf"\d{{4}}[-/](?P<date>\d\d[-/]\d\d)[T ](?P<clock>{_CLOCK})(?:Z|[+-]\d\d:?\d\d)?(?:\s*[|:]\s?|\s)?",
        rf"(?P<name>[A-Z][a-z]{{2}}) (?P<date>[ \d]\d) (?P<clock>{_CLOCK}) \S+ [\w.@/-]+(?:\[\d+\])?: ",
        # torchrun, and elastic's own
        r"\[(?:rank|default)(?P<rank>\d+)\]: ?",
        # PyTorch's C++: [E1122 08:01:33.1234 File.cpp:62]; Ray's: [2026-11-22 08:01:33,123 E 12 34] x.cc:1:
        rf"\[(?P<level>[IWEFC])(?P<date>\d{{3,4}}) (?P<clock>{_CLOCK})[^\]]*\] ?",
        (
            rf"\[\d{{4}}-(?P<date>\d\d-\d\d) (?P<clock>{_CLOCK}) (?P<level>[IWEFCD]) [^\]]*\]"
            r"(?: \(\w+\))?(?: [\w./-]+:\d+:)? ?"
        ),
        rf"(?P<level>[IWEFC])(?P<date>\d{{3,4}}) (?P<clock>{_CLOCK}) +\d+ [^\]]*\] ?",
        # SGLang's [2026-11-22 08:01:33 DP0 TP1]
        rf"\[\d{{4}}-(?P<date>\d\d-\d\d) (?P<clock>{_CLOCK})(?P<ranks>(?: [A-Z]{{2,4}}\d+)*)\] ?",
        # A logging.ini's [2026-11-22 08:01:33,120] [ERROR] [MainThread] [vllm.worker] >>>
        r"\[(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL|FATAL)\](?: \[[\w.-]+\])*:?(?: >>>)? ?",
        # A quotation, and the frame of a table
        r"(?:>|[│┃]) ?",
        # mpirun --tag-output
        r"\[\d+,\d+\]<std(?:err|out)>: ?",
        # docker build's own: #14 65.05
        r"#\d+ \d+\.\d+ ",
        # The same in its summary of a failed step: 0.268
        r"\d{1,5}\.\d{1,3} (?=\s*\S)",
        # (EngineCore_DP0 pid=12) and (RayWorkerWrapper pid=1, ip=10.0.0.2)
        (
            r"\((?:\w*?_[TP]P(?P<part>\d+)\S*|[\w:.]+\S*) (?:rank=\S+ )?pid=\d+"
            r"(?:, ip=(?P<host>[\d.a-fA-F:]+))?[^)]*\) ?"
        ),
        # vLLM's ERROR 11-22 08:01:33 [core.py:1109]
        (
            rf"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) +(?P<date>\d\d-\d\d) (?P<clock>{_CLOCK})"
            r" (?:\[?[\w./-]+:\d+\]) ?"
        ),
        # host:pid:tid [0] NCCL WARN
        (
            r"(?:(?P<host>[\w.-]+):\S+ )?\[(?P<gpu>-?\d+)\] (?P<source>[\w:./]+ (?:\(\w+\) )?)?NCCL ?"
            r"(?P<level>INFO|WARN|TRACE)? ?"
        ),
        # Python's own, uvicorn's and Ray's
        rf",? ?(?:\d{{4}}-)?(?P<date>\d\d-\d\d)? ?(?P<clock>{_CLOCK}),? - (?P<level>[A-Z]+) - ",
        # Ray Serve's: ERROR 2026-05-13 10:00:00,123 serve 41 -- , after the name of its process
        (
            rf"(?P<level>[A-Z]{{4,8}}) \d{{4}}-(?P<date>\d\d-\d\d) (?P<clock>{_CLOCK}) "
            r"(?:[\w.:#/-]{1,60} ){0,4}-- "
        ),
        # FlashInfer's, after a time: - WARNING - compilation_context.py:61 - flashinfer.jit:
        r"- (?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) - (?:[\w./]+:\d+ - )?",
        (
            r"(?P<level>DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL)\b(?: +[\w./-]+:\d+)?"
            r"(?: \[[\w./-]+:\d+\] |(?::| --?|\]| [\w./-]+:\d+\]?)? +)"
        ),
        # Docker Compose and medley logs: a name before the line
        r"[\w./-]+ +\| ?",
        # A group of exceptions
        r" +\| (?=\s*(?:File |Traceback|\w[\w.]*(?:Error|Exception)\b|\S))",
        # kubectl logs --prefix, and a container runtime's own file
        r"\[(?:pod|container)/[\w./-]+\] ?",
        r"(?:stdout|stderr) [FP] ",
        r"\[ *\d+\.\d{6}\] ",
    )
)
_MAX_PREFIX_PARTS = 6

# Words of a line that reports something wrong, where no level says it.
_FAULT_WORDS = re.compile(
    r"(?i)error|exception|fail|fatal|abort|assert|cannot|can't|could ?n[o']t|unable|unsupport|invalid|"
    r"unknown|unrecogni|unexpected|not |no |denied|refused|killed|oom|dead|died|lost|missing|mismatch|exceed|"
    r"exit|panic|traceback|time[d ]?out|too |warn|out of|require|must|larger|insufficient|terminated|signal|"
    r"stuck|nan"
)


class LogLine(Value):
    """`when`: month, day and seconds of the day; most prefixes have no year."""

    text: str
    level: str | None = None
    when: tuple[int, int, float] | None = None
    rank: str | None = None
    host: str | None = None
    nccl: bool = False
    is_worker_report: bool = False
    """Whether its text is another process's report of an error, without its traceback."""


@lru_cache(maxsize=4096)
def parse_line(raw: str) -> LogLine:
    """Parse a line and its prefixes."""
    text = _LINE_END.sub("", COLOR.sub("", raw)).rstrip()
    prefix: dict[str, str] = {}
    level, nccl, start = None, False, 0
    for _ in range(_MAX_PREFIX_PARTS):
        part_match = next(
            (match for part in _PREFIX_PARTS if (match := part.match(text, start)) and match.end() > start),
            None,
        )
        if part_match is None:
            break
        groups = {name: value for name, value in part_match.groupdict().items() if value}
        nccl = nccl or "gpu" in groups
        level = _LEVELS.get(groups.get("level", ""), level)
        if "date" in groups:
            prefix.pop("name", None)
        prefix.update(groups)
        start = part_match.end()
    ranks = (prefix.get("rank"), prefix.get("ranks", "").strip(), prefix.get("part"), prefix.get("gpu"))
    rank = next(filter(None, ranks), None)
    return LogLine(
        f"{prefix.get('source', '')}{text[start:]}", level, _read_time(prefix), rank, prefix.get("host"), nccl
    )


def _read_time(prefix: dict[str, str]) -> tuple[int, int, float] | None:
    if "clock" not in prefix:
        return None
    hours, minutes, seconds = prefix["clock"].replace(",", ".").split(":")
    day_s = int(hours) * 3600 + int(minutes) * 60 + float(seconds)
    date = prefix.get("date", "").strip()
    if "name" in prefix:
        month = _MONTHS.index(prefix["name"]) + 1 if prefix["name"] in _MONTHS else 0
        return month, int(date), day_s
    if not date:
        return None
    digits = re.sub(r"\D", "", date)
    return int(digits[:-2]), int(digits[-2:]), day_s


class Block(Value):
    lines: list[bytes]
    nearby: list[bytes]
    """The same lines, with some before and after them."""
    first_index: int
    """The index of the first line of `lines` in `nearby`."""

    def get_line(self, index: int) -> bytes:
        """Return a line, which may be one of the next block where a traceback ends there."""
        return self.nearby[self.first_index + index]

    def list_preceding(self, index: int, count: int) -> list[bytes]:
        return self.nearby[max(0, self.first_index + index - count) : self.first_index + index]

    def list_following(self, index: int, count: int) -> list[bytes]:
        start = self.first_index + index + 1
        return self.nearby[start : start + count]

    def parse_following(
        self, index: int, count: int, rank: str | None, max_chars: int
    ) -> list[tuple[int, LogLine]]:
        """Return the next lines of a rank or of none, each with its distance."""
        raws = self.list_following(index, count * 2)
        lines = ((distance, parse_line(decode(raw[:max_chars]))) for distance, raw in enumerate(raws, 1))
        return [each for each in lines if each[1].rank in (None, rank)][:count]

    def find_time_before(self, index: int) -> tuple[int, int, float] | None:
        """Return the time of the last line before it that has one."""
        times = (
            parse_line(decode(raw[:300])).when for raw in reversed(self.list_preceding(index, _LINES_BEFORE))
        )
        return next((time for time in times if time), None)


def read_blocks(data: Iterable[bytes]) -> Iterator[Block]:
    before: list[bytes] = []
    lines: list[bytes] = []
    for after in chain(_split_lines(data), ([],)):
        if lines:
            yield Block(lines, [*before, *lines, *after[:_LINES_AFTER]], len(before))
            before = lines[-_LINES_BEFORE:]
        lines = after


def decode(data: bytes) -> str:
    return data.decode(errors="replace")


def decode_start(data: bytes, max_bytes: int) -> str:
    """Decode a line; of a long one, the whole words at its start."""
    text = decode(data[:max_bytes])
    return text if len(data) <= max_bytes else cut_at_blank(text, len(text) - 1)


def cut_at_blank(text: str, max_chars: int) -> str:
    """Cut a long text at a blank, because a report does not hide a part of a secret."""
    if len(text) <= max_chars:
        return text
    *words, _ = re.split(r"\s", text[: max_chars + 1])
    return text[: len(" ".join(words))]


def _split_lines(blocks: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yield whole lines, block by block, without the margin of the log; one longer than a block is cut."""
    rest = b""
    clean: Callable[[bytes], bytes] | None = None
    is_first = True
    for block in blocks:
        *lines, rest = (rest + block).split(b"\n")
        if len(rest) >= BLOCK_BYTES:
            lines, rest = [*lines, rest], b""
        if lines:
            clean, is_first = (_choose_cleaner([*lines, rest]) if is_first else clean), False
            yield [clean(text) for text in lines] if clean else lines
    if rest:
        yield [clean(rest) if clean else rest]


def _choose_cleaner(lines: Sequence[bytes]) -> Callable[[bytes], bytes] | None:
    """Return what takes off a margin that all lines have, or Docker's JSON."""
    text_lines = [text for text in lines[:_SAMPLE_LINES] if text.strip()]
    if text_lines and all(text.startswith(_DOCKER_JSON_START) for text in text_lines):
        return _unpack_docker_record
    margins = [margin[0] for text in text_lines if (margin := _MARGIN.match(text))]
    width = min(map(len, margins), default=0)
    if len(text_lines) == 1 or not width or any(text[:width] != margins[0][:width] for text in margins):
        return None
    return lambda text: text[width:]


def _unpack_docker_record(text: bytes) -> bytes:
    """Return the line of a record in the file of Docker's json-file driver."""
    try:
        return str(json.loads(text)["log"]).rstrip("\n").encode()
    except (ValueError, KeyError, TypeError):
        return text


def reports_fault(line: LogLine) -> bool:
    """Whether a line reports something wrong, by its level or, where it has none, by its words."""
    if line.level is None:
        return _FAULT_WORDS.search(line.text) is not None
    return line.level != INFO
