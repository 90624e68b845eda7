"""The help of a verb as lines of text."""

import shutil
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from medley.cli import Verb

_GROUPS = {
    "Goal": "for concurrency at-once context",
    "Placement": "cluster dp eplb exclude from gpus hosts join-port kind launcher link pp slots tp transport "
    "unplanned wait without",
    "Engine": "engine env kv-type tokenizer",
    "Container": "image container mount nccl",
    "Model code": "trust-remote-code no-remote-code code-revision draft-code",
    "Server": "allow-origin api-key dashboard detach drain host insecure model on-event port replace restart "
    "served-model-name stall-limit stay timeout tls tls-cert tls-key url",
    "Output": "all dry-run json svg html verbose field-report",
}
"""The options of each group; the few options of other verbs are not grouped."""
_MAX_UNGROUPED_OPTIONS = 8
_MAX_COLUMNS, _MAX_PREFIX_COLUMNS = 100, 26


def list_help_lines(verb: "Verb") -> Iterator[str]:
    """Yield a verb's description, examples, usage and options by group."""
    width = min(shutil.get_terminal_size().columns, _MAX_COLUMNS)
    yield from (verb.DESCRIPTION or "", "", *_fill_paragraphs(verb.DESCRIPTION_MORE or "", width), "Usage:")
    yield from (f"    {usage}" for usage in verb.list_usages())
    infos = verb.list_switch_infos()
    groups = _GROUPS if len(infos) > _MAX_UNGROUPED_OPTIONS else {}
    titles = {name: title for title, names in groups.items() for name in names.split()}
    rows: dict[str, list[tuple[str, str]]] = {title: [] for title in ("Options", *groups)}
    for info in infos:
        rows[titles.get(info.names[-1], "Options")].append((format_switch(info), _describe_switch(info)))
    rows |= verb.list_verb_groups()
    longest_prefix = max((len(left) for row in rows.values() for left, _ in row), default=0)
    text_column = 4 + min(longest_prefix, _MAX_PREFIX_COLUMNS) + 2
    for title, group_rows in rows.items():
        if group_rows:
            yield from ("", f"{title}:", *_align_columns(group_rows, text_column, width))


def format_switch(info: Any) -> str:  # noqa: ANN401 - plumbum's
    """Return an option as it is typed: `-n, --lines N`."""
    names = ", ".join(add_dashes(name) for name in info.names)
    return f"{names} {info.argname}" if info.argtype else names


def add_dashes(name: str) -> str:
    return f"-{name}" if len(name) == 1 else f"--{name}"


def _describe_switch(info: Any) -> str:  # noqa: ANN401 - plumbum's
    limits = ["repeatable"] if info.list else []
    limits += [f"only with {', '.join(map(add_dashes, info.requires))}"] if info.requires else []
    limits += [f"not with {', '.join(map(add_dashes, info.excludes))}"] if info.excludes else []
    return "; ".join((info.help, *limits))


def _fill_paragraphs(text: str, width: int) -> Iterator[str]:
    """Fill paragraphs to the width; print indented lines, such as examples, as they are."""
    for paragraph in filter(None, text.strip("\n").split("\n\n")):
        lines = paragraph.splitlines()
        plain = [line for line in lines if not line.startswith(" ")]
        yield from textwrap.wrap(" ".join(plain), width)
        yield from (line for line in lines if line not in plain)
        yield ""


def _align_columns(rows: list[tuple[str, str]], text_column: int, width: int) -> Iterator[str]:
    for left, right in rows:
        first, *rest = textwrap.wrap(right, width - text_column, break_on_hyphens=False)
        prefix = f"    {left}"
        if len(prefix) + 2 > text_column:
            yield prefix
            prefix = ""
        yield f"{prefix:{text_column}}{first}"
        yield from (f"{'':{text_column}}{line}" for line in rest)
