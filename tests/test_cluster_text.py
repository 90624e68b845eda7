import tomllib
from pathlib import Path

import pytest

from medley.cluster import Cluster, Member
from medley.cluster_text import Row, read_back, text

SPARK = Row("spark-1", "spark-1", head=True, about="spark, 119.7 GiB")
THOR = Row(
    "10.0.0.3",
    "ssh://me@10.0.0.3:2222",
    head=False,
    about="not reached: it does not answer\x1b[31m (no\nroute)",
    parts=("To mend it: see that it is on",),
)
WIRE = ("Now that is 192.168.100.0/24, RDMA at 200 Gb/s.",)


def test_what_is_written_is_read_back() -> None:
    cluster = read_back(text([SPARK, THOR], WIRE, "192.168.100.0/24"))
    assert list(cluster.hosts) == ["spark-1", "10.0.0.3"]
    assert cluster.head == "spark-1"
    assert (cluster.target("spark-1"), cluster.target("10.0.0.3")) == ("spark-1", "ssh://me@10.0.0.3:2222")
    assert (cluster.link, cluster.exclude, cluster.engine) == (None, (), "vllm")


def test_a_host_that_needs_an_image_has_one() -> None:
    made = text([Row("a", "a", head=True, about="", imaged=True), SPARK], (), None)
    assert [host.image for host in read_back(made).hosts.values()] == ["default", None]


def test_the_head_need_not_be_the_first() -> None:
    rows = [Row("a", "a", head=False, about=""), Row("b", "b", head=True, about="")]
    assert read_back(text(rows, (), None)).head == "b"


def test_each_host_has_its_comment_and_no_comment_ends_early() -> None:
    made = text([SPARK, THOR], WIRE, None)
    part = made.partition('[hosts."10.0.0.3"]')[2]
    assert part.startswith("\n# not reached: it does not answer [31m (no route)\n# To mend it: see that")
    assert all(line.isprintable() for line in made.splitlines())
    assert max(map(len, made.splitlines())) <= 100


def test_keys_that_are_not_set_are_right_when_they_are_set() -> None:
    """Whoever takes the # away gets a table that is valid."""
    made = text([SPARK], WIRE, "192.168.100.0/24")
    keys = ("link", "exclude", "kind", "slots", "env", "medley")
    lines = [
        line.removeprefix("# ") if line.startswith(tuple(f"# {key} = " for key in keys)) else line
        for line in made.splitlines()
    ]
    cluster = read_back("\n".join(lines))
    assert cluster.link == "192.168.100.0/24"
    assert cluster.exclude == ("wlan0",)
    host = cluster.hosts["spark-1"]
    assert (host.kind, host.link, host.exclude, host.slots) == ("spark", "192.168.100.11", ("wlP9s9",), 1)
    assert host.env
    image = "\n".join(lines).replace('\nenv = "/path/to/venv"', "").replace("\n# image = ", "\nimage = ")
    assert read_back(image).hosts["spark-1"].image == "default"
    assert host.medley


@pytest.mark.parametrize(
    "said", ['"""', "[hosts.x]", "role = 1", "a\r\nb = 2", "\x00\x7f", "ü" * 300, "x" * 300]
)
def test_whatever_is_said_stays_a_comment(said: str) -> None:
    made = text([Row("a", "a", head=True, about=said, parts=(said,))], (said,), None)
    assert tomllib.loads(made) == {"engine": "vllm", "hosts": {"a": {"role": "head"}}}


def test_the_table_in_the_documentation_is_valid() -> None:
    page = Path(__file__).parents[1] / "docs" / "cluster-toml.md"
    table = page.read_text(encoding="utf-8").partition("```toml\n")[2].partition("```")[0]
    cluster = read_back(table)
    assert (cluster.head, cluster.link) == ("spark-1", "192.168.1.0/24")
    assert cluster.target("spark-2") == "nvidia@192.168.100.11"
    keys = {*Cluster.model_fields, *Member.model_fields} - {"hosts"}
    assert all(f"| `{key}` |" in page.read_text(encoding="utf-8") for key in keys)
