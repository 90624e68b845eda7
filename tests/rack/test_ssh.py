"""sshd on the hosts: keys let in, and nothing else does."""

import pytest

from tests.rack import ssh
from tests.rack.conftest import Up

pytestmark = pytest.mark.rack


def test_ssh_from_host_to_host(rack: Up) -> None:
    made = rack(2)
    ssh.serve(made)
    one, two = made.hosts
    assert one.says("ssh", "-o", "BatchMode=yes", "host2", "hostname; echo $HOME") == "host2\n/tmp/home"
    assert two.says("ssh", "-o", "BatchMode=yes", one.address, "hostname") == "host1"
    one.says("rm", "/tmp/home/.ssh/id_ed25519")
    refused = one.run(["ssh", "-o", "BatchMode=yes", "host2", "true"])
    assert refused.status == 255
    assert "Permission denied (publickey)" in refused.lines[-1]
