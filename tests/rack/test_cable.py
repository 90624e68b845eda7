"""Three hosts on a LAN, two of them with a faster cable: a model on these two uses it, and Ray the LAN."""

import json
import os
from collections.abc import Iterator

import pytest

from tests.rack.cluster import MEDLEY, cluster, medley, served, token_of
from tests.rack.host import Host
from tests.rack.rack import Rack, up
from tests.rack.spec import Link, Spec

pytestmark = pytest.mark.rack

LAN = Link("lan", mbit=100, shows_speed=True)
CABLE = Link.cable("cx7", "host1", "host2", mbit=1000, shows_speed=True)
ON_LAN = ("--link", "eth0")
REDUCED_BYTES = 4 << 20


@pytest.fixture(scope="module")
def rack() -> Iterator[Rack]:
    """Ray on the LAN of the two hosts with the cable; the third host joins in its test."""
    with up(Spec(3, (LAN, CABLE), name=f"pytest-{os.getpid()}-cable")) as rack:
        cluster(rack.hosts[:2], words=ON_LAN)
        yield rack


@pytest.fixture(scope="module")
def three(rack: Rack) -> Rack:
    joined = medley(rack["host3"], "ray-worker", "host1", *ON_LAN, stdin=token_of(rack["host1"]))
    assert joined.status == 0, joined.lines
    return rack


def sent_bytes(host: Host) -> dict[str, int]:
    path = "/sys/class/net/{}/statistics/tx_bytes"
    return {each: int(host.says("cat", path.format(each))) for each in ("eth0", "eth1")}


def test_an_all_reduce_crosses_the_cable(rack: Rack) -> None:
    head = rack["host1"]
    before = sent_bytes(head)
    words = ("collective-test", "--only", "network", "--json", "--sizes", "8,4M")
    table = json.loads(head.says(*MEDLEY, *words).splitlines()[-1])
    after = sent_bytes(head)
    assert table["rates"][-1]["bus_mbit"] > 2 * (LAN.mbit or 0)
    assert after["eth1"] - before["eth1"] > 2 * REDUCED_BYTES
    assert after["eth0"] - before["eth0"] < REDUCED_BYTES, "Ray, and messages of the store"


def test_plan_dry_run_and_link_show_name_the_cable(three: Rack) -> None:
    """Ray's order of the two workers is random, and the plan takes the one with the cable."""
    head = three["host1"]
    plan = json.loads(head.says(*MEDLEY, "plan", "demo", "--tp", "2", "--json"))
    (stage,) = plan["layout"]["stages"]
    assert [each["host"].split()[0] for each in stage["devices"]] == ["host1", "host2"]
    assert plan["layout"]["link"]["mbit"] > 5 * (LAN.mbit or 0), "reported, or measured by the test above"
    dry_run = head.says(*MEDLEY, "serve", "demo", "--tp", "2", "--dry-run")
    assert "GLOO_SOCKET_IFNAME=eth1" in dry_run
    assert f"VLLM_HOST_IP={head.address}" in dry_run
    shown = head.says(*MEDLEY, "link", "show", "--json", *transcripts(three))
    (subgroup,) = json.loads(shown)["subgroups"]
    assert (subgroup["hosts"], subgroup["mbit"]) == (["host1", "host2"], CABLE.mbit)


@pytest.mark.slow
def test_a_served_model_crosses_the_cable(three: Rack) -> None:
    head = three["host1"]
    server = served(head, "--tp", "2")
    before = sent_bytes(head)
    for _ in range(4):
        head.says(*MEDLEY, "chat", "--max-tokens", "64", "Hello", limit_s=120)
    after = sent_bytes(head)
    server.process.stop()
    sent = {each: after[each] - before[each] for each in after}
    assert sent["eth1"] > 5 * sent["eth0"], sent


def transcripts(rack: Rack) -> list[str]:
    words: list[str] = []
    for host in rack.hosts:
        text = host.says(*MEDLEY, "facts", "--transcript")
        rack["host1"].path(f"/tmp/{host.name}.txt").write_text(text + "\n")
        words += ["--from", f"/tmp/{host.name}.txt"]
    return words
