"""The tables of hosts: their words, and that no line is wider than the terminal, whatever names are."""

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from medley.measurement.monitor import view
from medley.measurement.monitor.rows import format_bits
from medley.measurement.monitor.sample import RaySample
from medley.measurement.monitor.watch import HostStatus
from tests.measurement.monitor.hosts import EVIL, LOST, build_status, cluster, spark, workstation

WIDE = 200


def draw(hosts: dict[str, HostStatus], width: int = WIDE, height: int | None = None) -> list[str]:
    if height is None:
        return view.format_plain(view.build_tables(hosts), width).splitlines()
    console = Console(file=io.StringIO(), width=width, height=height)
    lines = view.draw_lines(view.build_tables(hosts), console, console.options, height)
    return ["".join(segment.text for segment in line) for line in lines]


def row(lines: list[str], *words: str) -> str:
    return next(line for line in lines if all(word in line for word in words))


def test_unified_memory_is_shown_once() -> None:
    lines = draw({"spark-1": build_status(spark())})
    assert "61.0 of 121.0 GiB  the same: one pool" in row(lines, "head, 1 of 1")
    assert "the host's" in row(lines, "GB10")


def test_the_memory_of_gpus_is_their_own() -> None:
    lines = draw({"w": build_status(workstation())})
    assert "160.0 of 192.0 GiB" in row(lines, "w", "61.0 of 121.0 GiB")
    assert "80.0 of 96.0 GiB" in row(lines, "w 1", "590 of 600 W")


def test_an_engine() -> None:
    line = row(draw({"spark-1": build_status(spark())}), "gpt-oss-120b")
    assert line.split() == [
        "spark-1",
        "gpt-oss-120b",
        "ready",
        "3",
        "1",
        "0",
        "45%",
        "100",
        "500",
        "0.35",
        "s",
    ]


def test_links_and_ports_with_what_went_wrong() -> None:
    lines = draw({"spark-1": build_status(spark())})
    assert "8 Gb/s  2 Gb/s  200 Gb/s  3 rx_dropped" in row(lines, "enp1s0f0np0 (wire)")
    assert "40 Gb/s" in row(lines, "rocep1s0f0/1", "7 symbol_error")


def test_one_that_is_silent_has_its_last_values_their_age_and_why() -> None:
    lines = draw(cluster(), 80)
    assert "silent 75 s  61.0 of 121.0 GiB" in row(lines, "spark-2", "GiB")
    assert "no answer" in row(lines, "thor-1")
    assert "ssh spark-2 was still silent" in row(lines, "thor-1", "does not answer")
    assert "try it by hand: ssh spark-2 true" in " ".join(" ".join(lines).split())
    assert not any("spark-2" in line and "Gb/s" in line for line in lines), "what it did then is no rate now"


def test_troubles() -> None:
    gone = spark().replace(
        ray=RaySample("worker", "10.0.0.1:24000", alive=False), gpus=(), gpus_silent="nvidia-smi: no"
    )
    lines = draw({"a": build_status(gone), "b": build_status(workstation(EVIL))})
    assert row(lines, "worker, gone")
    assert row(lines, "no GPU answers")
    assert row(lines, "a ", "nvidia-smi: no")
    assert row(lines, "a ", "its Ray is gone")
    assert row(lines, f"{EVIL}: timed out")


def test_a_host_that_was_only_asked() -> None:
    assert "asked" in row(draw({"a": HostStatus()}), "a ", "never")


def test_a_short_screen_says_how_much_more_there_is() -> None:
    hosts = {f"host{nth}": build_status(spark()) for nth in range(40)}
    lines = draw(hosts, 80, 22)
    assert len(lines) == 22
    assert sum("and 40 more" in line for line in lines) >= 2
    assert row(lines, "… and", "more hosts")
    assert sum("GiB" in line and "host" in line for line in lines) >= 3, "hosts come first"


@pytest.mark.parametrize(("width", "height"), [(80, 24), (200, 60), (40, 10), (12, 3), (3, 2)])
def test_the_screen_is_never_larger_than_the_terminal(width: int, height: int) -> None:
    assert_fits(cluster(), width, height)


NAMES = st.text(min_size=1, max_size=80)


@settings(max_examples=25, deadline=None)
@given(st.lists(NAMES, min_size=1, max_size=6, unique=True), NAMES, st.integers(20, 200), st.integers(1, 60))
def test_odd_names(hosts: list[str], model: str, width: int, height: int) -> None:
    assert_fits(
        {
            name: build_status(workstation(model), LOST if nth == 1 else None)
            for nth, name in enumerate(hosts)
        },
        width,
        height,
    )


def assert_fits(hosts: dict[str, HostStatus], width: int, height: int) -> None:
    console = Console(file=io.StringIO(), width=width, height=height)
    live = view.Screen(view.format_title(hosts, 2), "14:03:22  q ends", view.build_tables(hosts))
    lines = console.render_lines(live, console.options.update(height=height), pad=False)
    assert len(lines) <= height
    for line in lines:
        text = "".join(segment.text for segment in line)
        assert cell_len(text) <= width
        assert text.isprintable() or not text


@pytest.mark.parametrize(
    ("bytes_per_s", "expected"),
    [
        (0, "0"),
        (1, "8 b/s"),
        (125, "1 kb/s"),
        (15_400, "123 kb/s"),
        (12.5e9, "100 Gb/s"),
        (1.1e9, "8.8 Gb/s"),
    ],
)
def test_bits(bytes_per_s: float, expected: str) -> None:
    assert format_bits(bytes_per_s) == expected
