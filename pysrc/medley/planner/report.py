"""A layout as styled text: a summary to read in a minute, and every reason."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import accumulate

from rich.text import Text

from medley.planner import Device, Layout, arrangement, devices_of, hosts_of, pipelines, sizes
from medley.planner import speed_and_transport as link_words
from medley.planner.candidates import Rejected
from medley.planner.choose import UNFITTED, Choice
from medley.planner.fit import Rank, gib
from medley.planner.prediction import Prediction

PARTS = (("weights", "#76b900"), ("KV cache", "#f0a020"), ("engine", "#7a5cc0"), ("free", "#8a92a0"))
"""Of a device's memory, with their colors."""
_ALTERNATIVES = 5
_BAR, _LEAST_BAR, _NAME = 24, 8, 22
"""Widths: of a bar, and of a device's name."""


def summary(
    model: str, choice: Choice, columns: int, warnings: Iterable[str] = (), unused: Sequence[str] = ()
) -> Iterator[Text]:
    """Speed, memory, bottleneck, hosts without a part, and warnings: those of the choice and further ones."""
    layout, told, split = choice.layout, choice.prediction, arrangement(choice.layout)
    yield Text.assemble((model, "bold"), " on ", (where(layout), "bold"), f" · {split}" if split else "")
    yield from (Text(), _speed(choice), Text(), *_hosts(choice, columns))
    # A pair has one link only.
    groups = choice.cabling.groups if len(hosts_of(layout)) > 2 else ()  # noqa: PLR2004
    labeled = {
        "link": link_text(layout),
        "cabling": ", ".join(each.name for each in groups),
        "bottleneck": told.bound if told.fitted else None,
        "not used": ", ".join(unused),
    }
    rows = [(Text(name, "dim"), Text(text)) for name, text in labeled.items() if text]
    yield from (Text(), *table(rows)) if rows else ()
    for each in (*choice.warnings, *warnings):
        first, _, details = each.partition(". ")
        yield from (Text(), Text(f"warning: {first}", "yellow"), *([Text(f"  {details}")] if details else ()))


def where(layout: Layout) -> str:
    hosts = hosts_of(layout)
    return hosts[0] if len(hosts) == 1 else f"{len(hosts)} hosts"


def link_text(layout: Layout) -> str:
    """The link between hosts; empty on one host."""
    link = layout.link
    measured = ", measured" if link and link.measured else ""
    return f"{link_words(link)}, {link.latency_us:g} µs one way{measured}" if link else ""


def speed_range(told: Prediction) -> str:
    digits = int(told.low < 10)  # noqa: PLR2004 - below ten a decimal counts
    return f"{told.low:.{digits}f}–{told.high:.{digits}f}"


def _speed(choice: Choice) -> Text:
    told, streams = choice.prediction, choice.work.load.concurrency
    context = ("   context up to ", (f"{choice.fit.context:,}", "bold"))
    if not told.fitted:
        return Text.assemble(f"  {UNFITTED}", *context)
    many = f"for {streams} streams, {told.per_stream:.1f} each" if streams > 1 else "per stream"
    speed, dim = (f"  {told.tokens_per_s:.1f} tok/s", "bold green"), (f"({speed_range(told)})", "dim")
    first = ("   first token ", (f"{told.ttft_s:.2f} s", "bold"))
    return Text.assemble(speed, f" {many} ", dim, *first, *context, ("   predicted", "dim"))


def _hosts(choice: Choice, columns: int) -> Iterator[Text]:
    """A row for each rank: its layers, and its memory with a bar."""
    layers, ranks = list(layers_of(choice.layout)), choice.fit.ranks
    indexed = any(rank.device.index for rank in ranks)
    rows = ["HOST GPU LAYERS MEMORY - WEIGHTS KV ENGINE FREE".replace("-", "").split(" ")]
    for rank in ranks:
        name = f"{rank.device.index} " * indexed + device_name(rank.device)
        name = name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"
        memory = f"{gib(rank.total_bytes)} / {gib(rank.device.memory_bytes)} GiB"
        where = rank.device.host, name, layers[rank.replica][rank.stage]
        rows.append([*where, "", memory, *map(gib, parts_of(rank))])
    rest = columns + len("MEMORY") - sum(2 + max(map(len, column)) for column in zip(*rows, strict=True))
    cells = [[Text(cell, "" if nth else "dim") for cell in row] for nth, row in enumerate(rows)]
    for row, rank in zip(cells[1:], ranks, strict=True):
        row[3] = _bar(rank, max(_LEAST_BAR, min(_BAR, rest)))
    yield from table(cells, right=range(4, len(rows[0])))


def device_name(device: Device) -> str:
    return device.name.removeprefix("NVIDIA ").removeprefix("GeForce ") or device.kind


def parts_of(rank: Rank) -> tuple[int, int, int, int]:
    """Bytes of its memory, in the order of PARTS."""
    return rank.weights_bytes, rank.kv_bytes, rank.overhead_bytes, max(0, rank.free_bytes)


def _bar(rank: Rank, cells: int) -> Text:
    used = round(cells * min(1, rank.total_bytes / max(1, rank.device.memory_bytes)))
    return Text.assemble(("█" * used, "green"), ("░" * (cells - used), "dim"))


def layers_of(layout: Layout) -> Iterator[list[str]]:
    """Of each pipeline, the layers of each stage: `1–24`."""
    for stages in pipelines(layout):
        ends = list(accumulate(stage.layers for stage in stages))
        yield [f"{end - stage.layers + 1}–{end}" for stage, end in zip(stages, ends, strict=True)]


def table(rows: Sequence[Sequence[Text]], right: Collection[int] = ()) -> Iterator[Text]:
    """Aligned columns, those of `right` to the right; no spaces at the ends of lines."""
    widths = [max(cell.cell_len for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        line = Text()
        for nth, (cell, width) in enumerate(zip(row, widths, strict=True)):
            gap = " " * (width - cell.cell_len)
            line = Text.assemble(line, "  ", *((gap, cell) if nth in right else (cell, gap)))
        line.rstrip()
        yield line


def section(title: str, lines: Iterable[Text]) -> Iterator[Text]:
    """These lines under a title; nothing where there are none."""
    if found := list(lines):
        yield from (Text(), Text(title, "bold"), *found)


def alternatives(choice: Choice) -> Iterator[Text]:
    """The 5 best that fit, one of those that differ only by split or by equal hosts."""
    found = {_key(choice.layout): Rejected("", "")}
    shown = [
        each for each in choice.rejected if each.layout and found.setdefault(_key(each.layout), each) is each
    ]
    names = Counter(_arranged(each) for each in shown[:_ALTERNATIVES])
    rows = []
    for each in shown[:_ALTERNATIVES]:
        rate = f"{each.score:.1f} tok/s" if choice.prediction.fitted else ""
        note = Text(each.note, "red" if each.note.startswith("-") else "dim")
        # Of two that are cut alike, the hosts tell them apart.
        rows.append((Text(_arranged(each) if names[_arranged(each)] == 1 else each.what), Text(rate), note))
    yield from table(rows, right=(1,))


def _arranged(one: Rejected) -> str:
    return (one.layout and arrangement(one.layout)) or one.what


def _key(layout: Layout) -> object:
    names = tuple(sorted(device.name or device.kind for device in devices_of(layout)))
    return names, len(hosts_of(layout)), sizes(layout), layout.expert_parallel


def reasons(choice: Choice, more: Iterable[str] = ()) -> Iterator[Text]:
    """Every reason, the range's origin, and every rejected layout."""
    told = choice.prediction
    why = [each for each in choice.why if not each.startswith(("predicted ", UNFITTED))]
    if told.fitted:
        (low, high), one, two = told.ttft_range_s, told.held_out, told.held_out_prompts
        inside = (
            f"held-out measurements inside: {one.inside} of {one.rows} speeds, {two.inside} of {two.rows}"
        )
        why.append(f"first token after {low:.2f} to {high:.2f} s; {inside} first tokens")
    if choice.cabling.groups:
        why.append(f"cabling: {choice.cabling}")
    yield from section("Why", (Text(f"  {each}") for each in (*why, *more)))
    rejected = (Text(f"  {each.what}: {each.because}") for each in choice.rejected)
    yield from section("Rejected layouts", rejected)


def printable(words: str) -> str:
    """Replace what XML cannot hold (control characters) and what reverses the direction of text."""
    return " ".join("".join(each if each.isprintable() or each.isspace() else "�" for each in words).split())
