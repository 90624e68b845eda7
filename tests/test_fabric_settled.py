"""What the user's own environment has before medley says a word: it wins, and is shown."""

import pytest

from medley.fabric.variables import LEFT_UNSET, settled
from medley.variables import Variable

OURS = (
    Variable("VLLM_HOST_IP", "10.0.0.1", "Ray's"),
    Variable("NCCL_SOCKET_IFNAME", "=eth1", "the wire"),
    Variable("GLOO_SOCKET_IFNAME", "eth1", "the wire"),
)


@pytest.mark.parametrize(
    ("environment", "name", "expected"),
    [
        pytest.param(
            {"GLOO_SOCKET_IFNAME": "eth0"},
            "GLOO_SOCKET_IFNAME",
            ("eth0", "set by you; medley would say eth1: the wire"),
            id="the user's wins",
        ),
        pytest.param(
            {"GLOO_SOCKET_IFNAME": "eth1"},
            "GLOO_SOCKET_IFNAME",
            ("eth1", "set by you, and by medley: the wire"),
            id="the same",
        ),
        pytest.param({}, "GLOO_SOCKET_IFNAME", ("eth1", "the wire"), id="none of the user's"),
        pytest.param(
            {"NCCL_DEBUG": "INFO"}, "NCCL_DEBUG", ("INFO", "set by you; medley would not"), id="one more"
        ),
        pytest.param(
            {"NCCL_P2P_DISABLE": "1"},
            "NCCL_P2P_DISABLE",
            ("1", f"set by you; medley would not: {LEFT_UNSET['NCCL_P2P_DISABLE']}"),
            id="one of the guides'",
        ),
        pytest.param(
            {"VLLM_HOST_IP": "10.9.9.9"}, "VLLM_HOST_IP", ("10.0.0.1", "Ray's"), id="Ray's address is ours"
        ),
        pytest.param({"HOME": "/root"}, "HOME", None, id="of no such kind"),
    ],
)
def test_what_the_user_set(environment: dict[str, str], name: str, expected: tuple[str, str] | None) -> None:
    found = {each.name: (each.value, each.why) for each in settled(OURS, environment)}
    assert found.get(name) == expected
    assert set(found) >= {each.name for each in OURS}
