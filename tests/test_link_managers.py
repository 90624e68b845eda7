"""Who keeps a host's addresses, by what the host answers."""

import pytest

from medley.link import managers
from medley.problem import Problem
from medley.transcript import Answer

OURS = "network:\n  version: 2\n"


def asked(**said: str) -> dict[str, Answer]:
    """Answers to the questions that `managers` names so; all others fail."""
    known = {getattr(managers, name): Answer(text) for name, text in said.items()}
    return {question: known.get(question, Answer("", 1)) for question in managers.QUESTIONS}


PROGRAMS = "/usr/sbin/netplan\n/usr/bin/nmcli\n"


@pytest.mark.parametrize(
    ("said", "named", "chosen"),
    [
        pytest.param({}, None, "ip", id="nobody"),
        pytest.param({"PROGRAMS": PROGRAMS}, None, "ip", id="programs that keep nothing"),
        pytest.param(
            {"PROGRAMS": PROGRAMS, "NETPLANS": "/etc/netplan/01.yaml\n", "NETWORK_MANAGER": "running\n"},
            None,
            "netplan",
            id="netplan before NetworkManager, which it may drive",
        ),
        pytest.param(
            {"PROGRAMS": PROGRAMS, "NETWORK_MANAGER": "running\n"}, None, "networkmanager", id="a Jetson"
        ),
        pytest.param({"PROGRAMS": PROGRAMS, "NETWORK_MANAGER": "running\n"}, "ip", "ip", id="named"),
        pytest.param({"MARKS": "/etc/NIXOS\n", "NETWORK_MANAGER": "running\n"}, None, "nixos", id="NixOS"),
    ],
)
def test_who_keeps_addresses(said: dict[str, str], named: str | None, chosen: str) -> None:
    assert managers.managers(asked(**said), named).chosen == chosen


def test_a_manager_that_is_not_there_is_a_problem() -> None:
    with pytest.raises(Problem, match="netplan does not keep this host's addresses"):
        managers.managers(asked(), "netplan")


def test_what_is_there_of_ours_is_read() -> None:
    found = managers.managers(
        asked(
            NETPLANS="/etc/netplan/60-medley.yaml\n",
            OUR_NETPLAN=OURS,
            OUR_PROFILES="medley-eth1 10.9.0.1/24 4000 \n",
            ACTIVE="11112222-aaaa:eth1\n",
            UP="lo UNKNOWN 00:00\neth1@if4 UP 02:00\n",
        )
    )
    assert (found.our_netplan, found.readable) == (OURS, True)
    assert found.profiles == {"eth1": ("10.9.0.1/24", "4000")}
    assert found.active == {"eth1": "11112222-aaaa"}
    assert found.up == {"lo", "eth1"}
    assert not managers.managers(asked(NETPLANS="/etc/netplan/60-medley.yaml\n")).readable
