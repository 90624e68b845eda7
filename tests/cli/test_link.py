"""What `medley link` prints: lines and a table that fit 80 columns, with what is wrong in red."""

import io
import json
import platform
from pathlib import Path

import pytest
from rich.console import Console

from medley.cli import UsageError, link, link_watch
from medley.cli.link import LinkShowVerb, LinkVerb
from medley.host.kind import read_facts_by_host
from medley.measurement.link.result import LinkMeasurement, RdmaSpeed
from medley.measurement.link.tools import Ping, Throughput
from medley.measurement.monitor.rates import Flow, Rates, compute_rates
from medley.measurement.monitor.sample import CpuSample, MemorySample, Sample
from tests.problems import raises_problem

BUSY = Flow(
    "enP2p1s0f1np1",
    "ethernet",
    up=True,
    mbit=None,
    in_bytes_per_s=97_280e6 / 8,
    out_bytes_per_s=12_500 / 8,
    bad={},
    total_bytes=9,
)
QUIET = Flow(
    "enp1s0f1np1", "ethernet", up=True, mbit=None, in_bytes_per_s=0, out_bytes_per_s=0, bad={}, total_bytes=9
)
LINK = "link    enp1s0f0np0 192.168.100.1, MTU 9000, should carry 100 Gbit/s, though it reports 200 Gbit/s"
BAD = {"out_of_sequence": 12, "packet_seq_err": 3, "roce_adp_retrans": 99_999, "np_cnp_sent": 5}
SICK = Flow(
    "roceP2p1s0f1/1",
    "rdma",
    up=True,
    mbit=None,
    in_bytes_per_s=1.5e6 / 8,
    out_bytes_per_s=0,
    bad=BAD,
    total_bytes=9,
)


def seen(*links: Flow, ports: tuple[Flow, ...] = (), retransmits: int = 0) -> Rates:
    sample = Sample(0, CpuSample(1, 0, 0), MemorySample(0, 0))
    return compute_rates(sample, sample, sample.replace(at_s=2.0)).replace(
        links=links,
        ports=ports,
        retransmits=retransmits,
    )


def test_lines_are_of_the_links_that_carried_something() -> None:
    assert list(link_watch.list_lines(seen(BUSY, QUIET, ports=(SICK,), retransmits=7))) == [
        "enP2p1s0f1np1    in   97.3 Gb/s  out   12.5 kb/s",
        "roceP2p1s0f1/1   in    1.5 Mb/s  out           0",
        "  ! np_cnp_sent 5, out_of_sequence 12, packet_seq_err 3, roce_adp_retrans 99999",
        "TCP, all links   7 segments sent again",
    ]
    assert list(link_watch.list_lines(seen(QUIET))) == ["no traffic on 1 links in 2 s"]


def test_programs_read_the_same() -> None:
    assert link_watch.build_rates_table(seen(BUSY, ports=(SICK,), retransmits=7)) == {
        "seconds": 2.0,
        "rates": [
            {"name": "enP2p1s0f1np1", "rdma": False, "in_mbit": 97_280.0, "out_mbit": 0.0125}
            | {"bad": {}, "total_bytes": 9},
            {"name": "roceP2p1s0f1/1", "rdma": True, "in_mbit": 1.5, "out_mbit": 0.0}
            | {"bad": BAD, "total_bytes": 9},
        ],
        "tcp_retransmits": 7,
    }


def test_the_table_fits_and_shows_what_is_wrong_in_red() -> None:
    shown = io.StringIO()
    console = Console(
        file=shown, width=80, force_terminal=True, color_system="standard", legacy_windows=False
    )
    console.print(link_watch.draw_table(seen(BUSY, QUIET, ports=(SICK,), retransmits=7)))
    plain = Console(file=io.StringIO(), width=80)
    plain.print(link_watch.draw_table(seen(BUSY, QUIET, ports=(SICK,), retransmits=7)))
    assert isinstance(plain.file, io.StringIO)
    text = plain.file.getvalue()
    assert max(map(len, text.splitlines())) <= 80
    assert "roceP2p1s0f1/1" in text
    assert "99999" in text
    red = [line for line in shown.getvalue().splitlines() if "\x1b[1;31m" in line]
    assert "roceP2p1s0f1/1" in red[0]
    assert not any("enP2p1s0f1np1" in line for line in red)


@pytest.mark.parametrize(
    ("ping", "rdma", "expected"),
    [
        pytest.param(
            Ping(10, 9, 0.1, 0.25),
            RdmaSpeed("rocep1s0f0", 92_570, 2.05),
            [
                LINK,
                "ping    0.100 ms, 0.250 at worst; 9 of 10 came back",
                "TCP     50 Gbit/s there, 50% of it; 0 segments sent again",
                "TCP     940 Mbit/s back, 1% of it",
                "RDMA    92.6 Gbit/s there, 93% of it; 2.05 µs one way (rocep1s0f0)",
            ],
            id="a half of a Spark's cage",
        ),
        pytest.param(
            None,
            None,
            [
                LINK,
                "ping    not answered, which a firewall may do",
                "TCP     50 Gbit/s there, 50% of it; 0 segments sent again",
                "TCP     940 Mbit/s back, 1% of it",
            ],
            id="TCP alone",
        ),
    ],
)
def test_what_was_measured(ping: Ping | None, rdma: RdmaSpeed | None, expected: list[str]) -> None:
    there, back = Throughput(50_000, 0, 10), Throughput(940, None, 10)
    ends = ("192.168.100.2", "enp1s0f0np0", "192.168.100.1", 9000)
    found = LinkMeasurement(*ends, 200_000, 100_000, ping, None, there, back, rdma)
    assert list(link.list_lines(found)) == expected


HOSTS = Path(__file__).parents[1] / "host" / "recorded"
PAIR = tuple(str(HOSTS / f"spark-pair-{half}.txt") for half in "ab")


def run(*words: str) -> int:
    _, status = LinkShowVerb.run(["medley link show", *words], exit=False)
    return int(status)


@pytest.mark.parametrize("words", [("--from", PAIR[0], PAIR[1]), ("--from", PAIR[0], "--from", PAIR[1])])
def test_two_hosts(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*words) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].split() == ["HOST", "INTERFACE", "ADDRESS", "SPEED", "MTU", "RDMA"]
    assert said[4].split() == ["transport", "RDMA"]
    assert [line.split()[:2] for line in said if line.startswith("spark-")] == [
        ["spark-pair-a", "enp1s0f1np1"],
        ["spark-pair-b", "enp1s0f0np0"],
    ]
    # A heading that lines share stands once.
    assert len([line for line in said if line.startswith("not taken")]) == 1
    assert [line for line in said if line.startswith(" ") and "spark-pair-b docker0: it belongs" in line]


def test_json_of_two_hosts(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--json", "--from", *PAIR) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["transport"], list(said["hosts"])) == ("rdma", ["spark-pair-a", "spark-pair-b"])
    assert "ways" not in said


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param(("--link", "enP7s7"), ("tcp", "enP7s7"), id="a link"),
        pytest.param(("--transport", "tcp"), ("tcp", "enp1s0f1np1"), id="a transport"),
        pytest.param(
            ("--exclude", "enp1s0f1np1", "--exclude", "enp1s0f0np0"),
            ("rdma", "enP2p1s0f1np1"),
            id="links out",
        ),
    ],
)
def test_wishes(
    words: tuple[str, ...], expected: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--json", *words, "--from", *PAIR) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["transport"], said["hosts"]["spark-pair-a"]["interface"]) == expected


def test_one_host(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--from", PAIR[0]) == 0
    said = [line.split()[:2] for line in capsys.readouterr().out.splitlines()]
    assert said[:2] == [["INTERFACE", "KIND"], ["enp1s0f1np1", "ethernet"]]
    assert ["not", "taken"] in said


def test_json_of_one_host(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--json", "--from", PAIR[0]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["transport"] == "none"
    assert [way["mbit"] for way in said["ways"]] == [126_030, 126_030, 1000]
    assert "a single host needs no network" not in {each["why"] for each in said["rejected"]}


@pytest.mark.skipif(not Path("/sys/class/net").is_dir(), reason="Nix's sandbox has no /sys")
def test_this_host(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert list(said["hosts"]) == [platform.node()]
    # No more than the kernel has; less where iproute2 is not there to tell.
    shown = {each["interface"] for each in (*said["ways"], *said["rejected"])}
    assert shown <= {link.name for link in Path("/sys/class/net").iterdir()}


def test_it_is_a_verb_of_link(capsys: pytest.CaptureFixture[str]) -> None:
    _, status = LinkVerb.run(["medley link", "show", "--help"], exit=False)
    assert status == 0
    assert "\n    medley link show --from spark-1.txt spark-2.txt\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "names", "cause", "fix"),
    [
        (("--from", "nowhere.txt"), ("nowhere.txt",), "No such file", ()),
        (
            ("--from", PAIR[0], PAIR[0]),
            ("spark-pair-a, spark-pair-a-2",),
            "192.168.101.10/24",
            "sudo ip address add 192.168.100.1/24 dev INTERFACE",
        ),
        (
            ("--link", "eth9", "--from", *PAIR),
            ("spark-pair-a ", "eth9"),
            "enp1s0f1np1 192.168.100.10/24",
            "ip -brief address",
        ),
        (
            ("--transport", "rdma", "--from", PAIR[0], str(HOSTS / "thor-mgbe-a.txt")),
            ("RDMA", "192.168.1.0/24"),
            ("spark-pair-a: enP7s7", "thor-mgbe-a: enP2p1s0"),
            ("rdma link", "ibv_devinfo -v on these hosts", "--transport tcp"),
        ),
    ],
    ids=["no file", "one host twice", "no link", "no RDMA"],
)
def test_a_problem(
    words: tuple[str, ...], names: tuple[str, ...], cause: str | tuple[str, ...], fix: str | tuple[str, ...]
) -> None:
    with raises_problem(*names, cause=cause, fix=fix):
        run(*words)


def test_another_transport_is_wrong_usage() -> None:
    with pytest.raises(UsageError, match="--transport must be one of tcp, rdma"):
        run("--transport", "udp")


def test_hosts_are_called_after_their_files_and_each_otherwise(tmp_path: Path) -> None:
    files = []
    for folder in ("x", "y", "z"):
        (tmp_path / folder).mkdir()
        files.append(tmp_path / folder / ("a-2.txt" if folder == "x" else "a.txt"))
        files[-1].write_text((HOSTS / "spark.txt").read_text())
    assert list(read_facts_by_host(map(str, files))) == ["a-2", "a", "a-3"]
