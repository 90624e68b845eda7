"""What a device reaches, and what a message between devices costs."""

import pytest

from medley.efficiency import SHIPPED, reached
from medley.layout.shapes import Device, Stage
from medley.roofline import Batch, Given, collectives_s
from tests.layouts import QWEN_30B, ROCE


@pytest.mark.parametrize("weights", ["bf16", "fp8", "nvfp4"])
@pytest.mark.parametrize("kind", ["orin", "spark", "rtx", "cpu"])
def test_no_share_of_what_was_measured_is_taken(kind: str, weights: str) -> None:
    device = Device("a", 0, kind, 1 << 36, 100, 2, "RTX 5090", measured=True)
    found = reached(device, weights, SHIPPED)
    assert (found.weights, found.cache, found.operations) == (100e9, 100e9, 2e12)


@pytest.mark.parametrize(
    ("kind", "hosts", "slow", "fast"),
    [("rtx", ("pc", "pc"), "RTX 4090", "RTX 6000 Ada"), ("cpu", ("a", "b"), "", "")],
    ids=["GeForce on one host", "CPUs of two hosts"],
)
def test_who_reaches_the_others_data_stages_nothing(
    kind: str, hosts: tuple[str, str], slow: str, fast: str
) -> None:
    """A GeForce does not reach another's memory on its own host; a CPU's data lies where it is sent from."""

    def pair(kind: str, name: str) -> float:
        ranks = tuple(Device(host, nth, kind, 1 << 35, 1008, 165, name) for nth, host in enumerate(hosts))
        return collectives_s(Given(QWEN_30B, ROCE, SHIPPED), Stage(ranks, 48), Batch(64, 64, 1), last=False)

    staged = 97 * 64 * 2048 * 2 / (SHIPPED.staged_gb_s * 1e9)
    other = "thor" if kind == "cpu" else kind
    assert pair(other, slow) - pair(kind, fast) == pytest.approx(staged)
