"""A real sshd on a host, and keys with which the hosts of a rack log in to one another."""

import os
from pathlib import Path
from shutil import which

from medley import process
from medley.command import Command
from medley.errors import Problem
from tests.rack.host import Host
from tests.rack.init import HOME
from tests.rack.rack import Rack
from tests.waiting import wait_for

LIMIT_S = 30
# The program insists on its full path: it starts itself anew for each connection.
PLACES = ("/usr/sbin/sshd", "/usr/local/sbin/sshd", "/run/current-system/sw/bin/sshd")
CONFIG = """\
HostKey /run/sshd/host_key
PidFile none
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
Subsystem sftp internal-sftp
SetEnv {variables}
"""


def serve(rack: Rack, *hosts: Host) -> None:
    """Start sshd on these hosts, or on all; from every host `ssh host2` then just works."""
    wanted = hosts or rack.hosts
    _exchange_keys(rack)
    started = [_start(host) for host in wanted]
    for host, running in zip(wanted, started, strict=True):
        _await_answer(host, running)


def _exchange_keys(rack: Rack) -> None:
    """One client key for the whole rack, a host key for each, and everybody knows everybody."""
    first = rack.hosts[0].path(f"{HOME}/.ssh/id_ed25519")
    if first.exists():
        return
    public = _key(first)
    known = ""
    for host in rack.hosts:
        names = [name for port in host.ports for name in (port.address, f"{host.name}.{port.link.name}")]
        known += f"{','.join([host.name, *names])} {_key(host.path('/run/sshd/host_key'))}"
    for host in rack.hosts:
        folder = host.path(f"{HOME}/.ssh")
        _write(folder / "id_ed25519", first.read_text())
        _write(folder / "authorized_keys", public)
        _write(folder / "known_hosts", known)


def _start(host: Host) -> process.Process:
    program = next((place for place in PLACES if Path(place).exists()), None) or which("sshd")
    if program is None:
        raise Problem("no sshd for the rack", cause="it is not here", fix="apt-get install openssh-server")
    # And PATH: the Python that it finds first makes the engine environment what it is.
    given = {**host.environment, "PATH": os.environ["PATH"]}
    variables = " ".join(f'"{k}={v}"' for k, v in given.items() if k.startswith(("MEDLEY_", "PATH")))
    _write(host.path("/run/sshd/config"), CONFIG.format(variables=variables))
    return host.start((program, "-D", "-e", "-f", "/run/sshd/config"))


def _await_answer(host: Host, process: process.Process) -> None:
    wait_for(
        f"sshd of {host.name} listens",
        lambda: any("Server listening" in line for line in list(process.last_lines)),
        LIMIT_S,
        state=lambda: (process.poll(), list(process.last_lines)),
    )


def _key(file: Path) -> str:
    """Make a key pair; returns the public line."""
    made = process.run(
        Command(("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "rack", "-f", str(file)))
    )
    assert made.status == 0, made.lines
    return file.with_suffix(".pub").read_text()


def _write(file: Path, text: str) -> None:
    file.write_text(text)
    file.chmod(0o600)
