"""Format a layout as styled text: a summary to read in a minute, and every reason."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import accumulate

from rich.text import Text

from medley.planner import (
    Device,
    Layout,
    count_parallel_sizes,
    describe_link,
    describe_split,
    list_devices,
    list_hosts,
    list_pipelines,
)
from medley.planner.candidates import Rejection
from medley.planner.choose import NO_CPU_PREDICTION, Choice
from medley.planner.fit import Rank, format_gib
from medley.planner.prediction import Prediction

MEMORY_PARTS = (("weights", "#76b900"), ("KV cache", "#f0a020"), ("engine", "#7a5cc0"), ("free", "#8a92a0"))
"""The parts of a device's memory, with their colors."""
_MAX_ALTERNATIVES = 5
_BAR_WIDTH, _MIN_BAR_WIDTH, _NAME_WIDTH = 24, 8, 22
"""Widths in characters: of a bar, and of a device's name."""


def format_summary(
    model: str, choice: Choice, columns: int, warnings: Iterable[str] = (), unused: Sequence[str] = ()
) -> Iterator[Text]:
    """Yield speed, memory, bottleneck, unused hosts, and the warnings of the choice and further ones."""
    layout, prediction, layout_split = choice.layout, choice.prediction, describe_split(choice.layout)
    yield Text.assemble(
        (model, "bold"),
        " on ",
        (describe_hosts(layout), "bold"),
        f" · {layout_split}" if layout_split else "",
    )
    yield from (Text(), _format_speed(choice), Text(), *_format_hosts(choice, columns))
    # A pair has one link only.
    groups = choice.cabling.groups if len(list_hosts(layout)) > 2 else ()  # noqa: PLR2004
    labeled = {
        "link": format_link(layout),
        "cabling": ", ".join(group.name for group in groups),
        "bottleneck": prediction.bottleneck if prediction.is_calibrated else None,
        "not used": ", ".join(unused),
    }
    rows = [(Text(name, "dim"), Text(text)) for name, text in labeled.items() if text]
    yield from (Text(), *format_table(rows)) if rows else ()
    for warning in (*choice.warnings, *warnings):
        summary, _, details = warning.partition(". ")
        yield from (
            Text(),
            Text(f"warning: {summary}", "yellow"),
            *([Text(f"  {details}")] if details else ()),
        )


def describe_hosts(layout: Layout) -> str:
    """Return the name of the only host, or the number of hosts."""
    hosts = list_hosts(layout)
    return hosts[0] if len(hosts) == 1 else f"{len(hosts)} hosts"


def format_link(layout: Layout) -> str:
    """Describe the link between hosts with its latency; empty on one host."""
    link = layout.link
    measured = ", measured" if link and link.measured else ""
    return f"{describe_link(link)}, {link.latency_us:g} µs one way{measured}" if link else ""


def format_speed_range(prediction: Prediction) -> str:
    """Return the range of predicted tokens per second, without the unit."""
    digits = int(prediction.low < 10)  # noqa: PLR2004 - below ten a decimal counts
    return f"{prediction.low:.{digits}f}–{prediction.high:.{digits}f}"


def _format_speed(choice: Choice) -> Text:
    prediction, streams = choice.prediction, choice.workload.load.concurrency
    context = ("   context up to ", (f"{choice.fit.context:,}", "bold"))
    if not prediction.is_calibrated:
        return Text.assemble(f"  {NO_CPU_PREDICTION}", *context)
    for_streams = f"for {streams} streams, {prediction.per_stream:.1f} each" if streams > 1 else "per stream"
    speed = (f"  {prediction.tokens_per_s:.1f} tok/s", "bold green")
    speed_range = (f"({format_speed_range(prediction)})", "dim")
    first_token = ("   first token ", (f"{prediction.ttft_s:.2f} s", "bold"))
    return Text.assemble(
        speed, f" {for_streams} ", speed_range, *first_token, *context, ("   predicted", "dim")
    )


def _format_hosts(choice: Choice, columns: int) -> Iterator[Text]:
    """Yield a row for each rank: its layers, and its memory with a bar."""
    layers, ranks = list(list_layer_ranges(choice.layout)), choice.fit.ranks
    indexed = any(rank.device.index for rank in ranks)
    rows = ["HOST GPU LAYERS MEMORY - WEIGHTS KV ENGINE FREE".replace("-", "").split(" ")]
    for rank in ranks:
        name = f"{rank.device.index} " * indexed + format_device_name(rank.device)
        name = name if len(name) <= _NAME_WIDTH else f"{name[: _NAME_WIDTH - 1]}…"
        memory = f"{format_gib(rank.total_bytes)} / {format_gib(rank.device.memory_bytes)} GiB"
        place = rank.device.host, name, layers[rank.replica][rank.stage]
        rows.append([*place, "", memory, *map(format_gib, list_memory_parts(rank))])
    text_width = sum(2 + max(map(len, column)) for column in zip(*rows, strict=True))
    bar_width = columns + len("MEMORY") - text_width
    cells = [[Text(cell, "" if nth else "dim") for cell in row] for nth, row in enumerate(rows)]
    for row, rank in zip(cells[1:], ranks, strict=True):
        row[3] = _draw_bar(rank, max(_MIN_BAR_WIDTH, min(_BAR_WIDTH, bar_width)))
    yield from format_table(cells, right=range(4, len(rows[0])))


def format_device_name(device: Device) -> str:
    """Return the device's name without its maker, or its kind of host."""
    return device.name.removeprefix("NVIDIA ").removeprefix("GeForce ") or device.kind


def list_memory_parts(rank: Rank) -> tuple[int, int, int, int]:
    """Return the bytes of each part of a rank's memory, in the order of PARTS."""
    return rank.weights_bytes, rank.kv_bytes, rank.overhead_bytes, max(0, rank.free_bytes)


def _draw_bar(rank: Rank, cells: int) -> Text:
    used = round(cells * min(1, rank.total_bytes / max(1, rank.device.memory_bytes)))
    return Text.assemble(("█" * used, "green"), ("░" * (cells - used), "dim"))


def list_layer_ranges(layout: Layout) -> Iterator[list[str]]:
    """Yield for each pipeline the layers of its stages: `1–24`."""
    for stages in list_pipelines(layout):
        ends = list(accumulate(stage.layers for stage in stages))
        yield [f"{end - stage.layers + 1}–{end}" for stage, end in zip(stages, ends, strict=True)]


def format_table(rows: Sequence[Sequence[Text]], right: Collection[int] = ()) -> Iterator[Text]:
    """Yield lines with aligned columns, those in `right` to the right, without spaces at their ends."""
    widths = [max(cell.cell_len for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        line = Text()
        for nth, (cell, width) in enumerate(zip(row, widths, strict=True)):
            gap = " " * (width - cell.cell_len)
            line = Text.assemble(line, "  ", *((gap, cell) if nth in right else (cell, gap)))
        line.rstrip()
        yield line


def format_section(title: str, lines: Iterable[Text]) -> Iterator[Text]:
    """Yield these lines under a title; nothing if there are no lines."""
    if content := list(lines):
        yield from (Text(), Text(title, "bold"), *content)


def format_alternatives(choice: Choice) -> Iterator[Text]:
    """Yield the 5 best other layouts that fit; of layouts with equal hosts and sizes only the best."""
    keys, unique = {_compute_layout_key(choice.layout)}, list[Rejection]()
    for rejection in choice.rejected:
        if rejection.layout and (key := _compute_layout_key(rejection.layout)) not in keys:
            keys.add(key)
            unique.append(rejection)
    names = Counter(_describe_rejection(rejection) for rejection in unique[:_MAX_ALTERNATIVES])
    rows = []
    for rejection in unique[:_MAX_ALTERNATIVES]:
        rate = f"{rejection.score:.1f} tok/s" if choice.prediction.is_calibrated else ""
        note = Text(rejection.note, "red" if rejection.note.startswith("-") else "dim")
        name = _describe_rejection(rejection)
        # Layouts with the same split differ by their hosts, which the candidate names.
        rows.append((Text(name if names[name] == 1 else rejection.candidate), Text(rate), note))
    yield from format_table(rows, right=(1,))


def _describe_rejection(rejection: Rejection) -> str:
    return (rejection.layout and describe_split(rejection.layout)) or rejection.candidate


def _compute_layout_key(layout: Layout) -> object:
    names = tuple(sorted(device.name or device.kind for device in list_devices(layout)))
    return names, len(list_hosts(layout)), count_parallel_sizes(layout), layout.expert_parallel


def format_reasons(choice: Choice, further: Iterable[str] = ()) -> Iterator[Text]:
    """Yield every reason, the origin of the range of speed, and every rejected layout."""
    prediction = choice.prediction
    why = [reason for reason in choice.why if not reason.startswith(("predicted ", NO_CPU_PREDICTION))]
    if prediction.is_calibrated:
        low, high = prediction.ttft_range_s
        speeds, prompts = prediction.held_out, prediction.held_out_prompts
        inside = (
            f"held-out measurements inside: {speeds.inside} of {speeds.rows} speeds, "
            f"{prompts.inside} of {prompts.rows}"
        )
        why.append(f"first token after {low:.2f} to {high:.2f} s; {inside} first tokens")
    if choice.cabling.groups:
        why.append(f"cabling: {choice.cabling}")
    yield from format_section("Why", (Text(f"  {reason}") for reason in (*why, *further)))
    rejected = (Text(f"  {rejection.candidate}: {rejection.reason}") for rejection in choice.rejected)
    yield from format_section("Rejected layouts", rejected)


def make_printable(text: str) -> str:
    """Replace characters that XML forbids (control characters) or that reverse the direction of text."""
    return " ".join("".join(char if char.isprintable() or char.isspace() else "�" for char in text).split())
