"""A page for each verb of medley, from the verb itself: what it does, examples, and its options by group."""

import re
import textwrap
from collections.abc import Iterator
from typing import Any

from medley.cli import GROUPS, VERBS, Medley, Verb
from tools.reference.table import cell, code, prose, table

NOTE = "<!-- Written by `python -m tools.reference` from the verb. Do not edit it. -->"


def pages() -> dict[str, str]:
    """The text of each page by its name: one for each verb, and an index."""
    made = {
        name: "\n".join((NOTE, *page(name, verb))) for name, verb in Medley("medley").load_verbs().items()
    }
    return {"index": index(), **made}


def index() -> str:
    """All verbs by group."""
    parts = [NOTE, "", "# Verbs", "", "`medley VERB --help` prints the same as these pages.", ""]
    parts += ["![The verbs of medley, by group](../../pictures/help.svg)", ""]
    for title, names in GROUPS.items():
        rows = [(f"[`medley {name}`]({name}.md)", cell(VERBS[name])) for name in names.split()]
        parts += [f"## {title}", "", table(("verb", "what it does"), rows), ""]
    return "\n".join(parts)


def page(name: str, kind: type[Verb], level: int = 1) -> Iterator[str]:
    """The lines about a verb, then about those below it."""
    verb = kind(f"medley {name}")
    more, examples = _more(verb)
    usage = textwrap.dedent((verb.USAGE or "").format(progname=f"medley {name}")).strip()
    yield from ("", f"{'#' * level} medley {name}", "", verb.DESCRIPTION or "")
    if more:
        yield from ("", more)
    if usage:
        yield from ("", "```text", usage, "```")
    if examples:
        yield from ("", "**Examples**", "", "```text", examples, "```")
    yield from _options(verb)
    for word, below in verb.load_verbs().items():
        yield from page(f"{name} {word}", below, level + 1)
    if level == 1:
        yield ""


def _more(verb: Verb) -> tuple[str, str]:
    """What a verb's help adds to its line: the paragraphs, and the examples."""
    # plumbum starts a line of its own at a bullet, of which / is not printed.
    text = re.sub(r"(?m)^( *)/", r"\1", verb.DESCRIPTION_MORE or "")
    more, _, examples = text.partition("Examples:\n")
    return prose(textwrap.dedent(more).strip()), textwrap.dedent(examples).strip("\n ")


def _options(verb: Verb) -> Iterator[str]:
    """A table of options for each group of them, in the order of the help."""
    groups: dict[str, list[Any]] = {}
    for info in verb.list_switch_infos():
        groups.setdefault(str(info.group), []).append(info)
    for title in sorted(groups, key=lambda group: group == "Meta-switches"):
        rows = [(code(_typed(info)), _help(info)) for info in groups[title]]
        heading = "Options" if title == "Switches" else title
        yield from ("", f"**{heading}**", "", table(("option", "meaning"), rows))


def _typed(info: Any) -> str:
    """How an option is typed."""
    names = ", ".join(f"{'-' if len(name) == 1 else '--'}{name}" for name in sorted(info.names, key=len))
    return f"{names} {info.argname}" if info.argtype and info.argname else names


def _help(info: Any) -> str:
    """What an option means, with its range and what it needs."""
    text, shown = (
        str(info.help),
        repr(info.argtype),
    )  # as [1..64] and {tcp, rdma}: all that plumbum tells of them
    within = re.fullmatch(r"\[(\d+)\.\.(\d+)\]", shown)
    choices = shown.strip("{}").split(", ") if shown.startswith("{") else []
    notes = [
        f"{int(within[1]):,} to {int(within[2]):,}" if within else "",
        ""
        if all(each in text for each in choices)
        else f"one of {', '.join(f'`{each}`' for each in choices)}",
        "can be repeated" if info.list else "",
        "required" if info.mandatory else "",
        f"needs {_switches(info.requires)}" if info.requires else "",
        f"not with {_switches(info.excludes)}" if info.excludes else "",
    ]
    return "; ".join((cell(text), *filter(None, notes)))


def _switches(names: Any) -> str:
    return ", ".join(f"`{'-' if len(name) == 1 else '--'}{name}`" for name in sorted(names))
