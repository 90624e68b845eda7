import tomllib

import pytest

from medley.cluster import program_consent
from medley.cluster.cluster_file import build_programs_table
from medley.cluster.discovery.table import format_cluster, parse_cluster
from medley.cluster.discovery.visit import HostSurvey
from medley.errors import Problem
from medley.host.kind import find_kind
from tests.host.recordings import recorded

SPARK = HostSurvey("spark-1", "spark-1", facts=recorded("spark"), kind=find_kind(recorded("spark")))
AWAY = Problem("away", cause="it does not answer\x1b[31m (no\nroute)", fix="check that it is on")
THOR = HostSurvey("10.0.0.3", "ssh://me@10.0.0.3:2222", problem=AWAY)
BOTH = {each.name: each for each in (SPARK, THOR)}
WIRE = ("Now that is 192.168.100.0/24, RDMA at 200 Gb/s.",)


def test_what_is_written_is_read_back() -> None:
    cluster = parse_cluster(format_cluster(BOTH, "spark-1", WIRE, "192.168.100.0/24"))
    assert list(cluster.hosts) == ["spark-1", "10.0.0.3"]
    assert cluster.head == "spark-1"
    assert (cluster.get_ssh_target("spark-1"), cluster.get_ssh_target("10.0.0.3")) == (
        "spark-1",
        "ssh://me@10.0.0.3:2222",
    )
    assert (cluster.link, cluster.exclude, cluster.engine) == (None, (), "vllm")


def test_a_host_that_needs_an_image_has_one() -> None:
    orin = HostSurvey("a", "a", facts=recorded("orin-r36"), kind=find_kind(recorded("orin-r36")))
    made = format_cluster({"a": orin, "spark-1": SPARK}, "a", (), None)
    assert [host.image for host in parse_cluster(made).hosts.values()] == ["default", None]


def test_what_is_written_needs_no_consent() -> None:
    """The user typed its hosts, and `medley up` is the next command."""
    orin = HostSurvey("a", "a", facts=recorded("orin-r36"), kind=find_kind(recorded("orin-r36")))
    made = parse_cluster(format_cluster({"a": orin, **BOTH}, "a", WIRE, "192.168.100.0/24"))
    assert program_consent.list_programs(build_programs_table(made)) == ()


def test_the_head_need_not_be_the_first() -> None:
    hosts = {name: HostSurvey(name, name) for name in ("a", "b")}
    assert parse_cluster(format_cluster(hosts, "b", (), None)).head == "b"


def test_each_host_has_its_comment_and_no_comment_ends_early() -> None:
    made = format_cluster(BOTH, "spark-1", WIRE, None)
    part = made.partition('[hosts."10.0.0.3"]')[2]
    assert part.startswith(
        "\n# When this file was written it was not reached: it does not answer [31m (no route)\n"
        "# To fix it: check that"
    )
    assert all(line.isprintable() for line in made.splitlines())
    assert max(map(len, made.splitlines())) <= 100


def test_keys_that_are_not_set_are_right_when_they_are_set() -> None:
    """Whoever takes the # away gets a table that is valid."""
    made = format_cluster({"spark-1": SPARK}, "spark-1", WIRE, "192.168.100.0/24")
    keys = ("link", "exclude", "kind", "slots", "env", "medley")
    lines = [
        line.removeprefix("# ") if line.startswith(tuple(f"# {key} = " for key in keys)) else line
        for line in made.splitlines()
    ]
    cluster = parse_cluster("\n".join(lines))
    assert cluster.link == "192.168.100.0/24"
    assert cluster.exclude == ("wlan0",)
    host = cluster.hosts["spark-1"]
    assert (host.kind, host.link, host.exclude, host.slots) == ("spark", "192.168.100.11", ("wlP9s9",), 1)
    assert host.env
    image = "\n".join(lines).replace('\nenv = "/path/to/venv"', "").replace("\n# image = ", "\nimage = ")
    assert parse_cluster(image).hosts["spark-1"].image == "default"
    assert host.medley


@pytest.mark.parametrize(
    "said", ['"""', "[hosts.x]", "role = 1", "a\r\nb = 2", "\x00\x7f", "ü" * 300, "x" * 300]
)
def test_whatever_is_said_stays_a_comment(said: str) -> None:
    found = HostSurvey("a", "a", problem=Problem("away", cause=said, fix=said))
    made = format_cluster({"a": found}, "a", (said,), None)
    assert tomllib.loads(made) == {"engine": "vllm", "hosts": {"a": {"role": "head"}}}
