"""`medley init` as a user types it, on hosts with real ssh."""

import stat
from pathlib import Path

import pytest

from medley import process
from medley.cluster import cluster_file
from tests.rack import ssh
from tests.rack.cluster import MEDLEY
from tests.rack.conftest import Up
from tests.rack.host import Host
from tests.rack.terminal import terminal
from tests.waiting import wait_for

pytestmark = pytest.mark.rack

TABLE = "/tmp/home/cluster.toml"
SSH = "/tmp/home/.ssh"
CONFIG = """\
Host *
    ServerAliveInterval 30
Host host2
    HostName 10.78.0.2
Host host3 "a b" $(reboot)
"""


def init(host: Host, *words: str) -> process.ProcessResult:
    return host.run([*MEDLEY, "init", *words], limit_s=90)


def written(host: Host) -> str:
    return host.path(TABLE).read_text()


def hosts(host: Host) -> dict[str, str]:
    found = cluster_file.read_cluster(str(host.path(TABLE)))
    return {name: found.get_ssh_target(name) for name in found.hosts}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_hosts_that_are_named(rack: Up) -> None:
    made = rack(3)
    one = made.hosts[0]
    ssh.serve(made, *made.hosts[:2])
    done = init(one, "host1", "host2", "host3", "--yes")
    assert done.status == 0, done.lines
    assert list(hosts(one)) == ["host1", "host2", "host3"]
    assert cluster_file.read_cluster(str(one.path(TABLE))).head == "host1"
    assert "# Now that is 10.78.0.0/24, TCP" in written(one)
    away = written(one).partition("[hosts.host3]")[2]
    assert "it was not reached: no ssh server listens there" in away
    assert any(line.startswith("host2  cpu, ") for line in done.lines)

    plan = one.run([*MEDLEY, "plan", "demo", "--pp", "2"], limit_s=90)
    assert plan.status == 0, plan.lines
    assert any(line.startswith("demo on 2 hosts") for line in plan.lines), plan.lines
    assert any(line.startswith("planned without host3: ") for line in plan.lines), plan.lines
    # The first stage is on the host with more memory, which differ by what runs on the one machine of both.
    typed = [line.strip().partition(" $ ") for line in plan.lines if "$ medley" in line]
    assert {host for host, _, _ in typed} in ({"host1"}, {"host2"})
    assert [words for _, _, words in typed] == ["medley up", "medley serve demo --hosts 2 --pp 2"]

    first = written(one)
    again = init(one, "host2", "host3", "--yes")
    assert again.status == 1
    assert "cluster.toml is there already" in again.lines[0]
    assert written(one) == first
    assert init(one, "host2", "host3", "--yes", "--force", "--only-reached", "--head", "host2").status == 0
    assert list(hosts(one)) == ["host2"]
    assert one.path(f"{TABLE}.1").read_text() == first

    before = written(one)
    typo = init(one, "host1", "hots2", "--yes", "--force")
    assert typo.status == 1
    assert any("medley init host1 host2 --yes --force" in line for line in typo.lines), typo.lines
    assert written(one) == before

    nobody = init(one, "--output", "other.toml")
    assert nobody.status == 1
    assert "medley init --output other.toml host1 host2 host3 --yes" in nobody.lines[-1]
    assert "is not a host" in init(one, "$(reboot)", "--yes", "--force").lines[0]
    wrong = init(one, "host1", "--yes", "--head", "host9", "--force")
    assert "host9 cannot be the head" in wrong.lines[0]


def test_a_user_picks_two_of_three(rack: Up) -> None:
    made = rack(3)
    one = made.hosts[0]
    ssh.serve(made)
    one.path(f"{SSH}/config").write_text(CONFIG)
    one.says("ssh-keygen", "-q", "-H", "-f", f"{SSH}/known_hosts")
    with terminal(one, [*MEDLEY, "init"]) as screen:
        listed = screen.sees("which hosts? numbers, or names of others [1 2 3] ")
        assert f"{SSH.replace('/tmp/home', '~')}/config:5: 'a b' is not a valid host name" in listed
        assert "'$(reboot)' is not a valid host name" in listed
        rows = [line.split() for line in listed.splitlines() if line[:4].strip().isdecimal()]
        assert [row[1] for row in rows] == ["host1", "host2", "host3"]  # and nothing of hashed names
        screen.types("1 7\n")
        screen.sees("7 is not in the list: the numbers go from 1 to 3")
        screen.types("1, host2\n")
        screen.sees("which is the head, which the others join? [host1] ")
        screen.types("host2\n")
        assert screen.ends() == 0, screen.shown
    assert hosts(one) == {"host1": "host1", "host2": "host2"}
    assert cluster_file.read_cluster(str(one.path(TABLE))).head == "host2"


def test_a_user_leaves_and_nothing_is_written(rack: Up) -> None:
    made = rack(2)
    one = made.hosts[0]
    ssh.serve(made)
    for key in ("\x03", "\x04"):  # Ctrl-C, Ctrl-D
        with terminal(one, [*MEDLEY, "init", "host1", "host2"]) as screen:
            screen.sees("which is the head")
            screen.types(key)
            assert screen.ends() == 130, screen.shown
            assert "cluster.toml was not written" in screen.shown
        assert not one.path(TABLE).exists()


def test_a_host_that_does_not_take_our_key(rack: Up) -> None:
    made = rack(2)
    one, two = made.hosts
    ssh.serve(made)
    two.path(f"{SSH}/authorized_keys").write_text("")
    one.path(f"{SSH}/id_ed25519").unlink()
    dry = init(one, "host1", "host2", "--keys", "--yes", "--dry-run")
    keygen = f"ssh-keygen -q -t ed25519 -N '' -f {SSH}/id_ed25519"
    copy = f"ssh-copy-id -i {SSH}/id_ed25519.pub -o StrictHostKeyChecking=yes host2"
    assert [line for line in dry.lines if line in {keygen, copy}] == [keygen, copy]
    assert dry.status == 0
    assert not one.path(TABLE).exists()
    assert not one.path(f"{SSH}/id_ed25519").exists()

    done = init(one, "host1", "host2", "--keys", "--yes")
    assert [line for line in done.lines if line in {keygen, copy}] == [keygen, copy]
    assert "medley: host2 did not take the key" in done.lines
    assert done.status == 1
    assert mode(one.path(f"{SSH}/id_ed25519")) == 0o600
    assert "it does not accept a login without a password" in written(one)
    assert list(hosts(one)) == ["host1", "host2"]


def test_a_host_key_is_taken_by_a_person_alone(rack: Up) -> None:
    made = rack(2)
    one, two = made.hosts
    ssh.serve(made)
    known = one.path(f"{SSH}/known_hosts")
    known.write_text("")
    done = init(one, "host1", "host2", "--keys", "--yes")
    assert done.status == 1
    assert "medley: the host key of host2 is unknown, and --yes does not accept one" in done.lines
    assert any("ssh host2 true" in line for line in done.lines)
    assert known.read_text() == ""

    own = two.says("ssh-keygen", "-lf", "/run/sshd/host_key.pub").split()[1]
    for answer in ("no", "yes"):
        with terminal(
            one, [*MEDLEY, "init", "host1", "host2", "--keys", "--force", "--head", "host1"]
        ) as screen:
            assert own in screen.sees("are these the keys of host2? [no] ")
            screen.types(f"{answer}\n")
            if answer == "no":
                screen.sees("host2 was not reached; write it all the same? [no] ")
                screen.types("\n")
            assert screen.ends() == (1 if answer == "no" else 0), screen.shown
        assert bool(known.read_text()) == (answer == "yes")
    assert mode(known) == 0o600
    assert "# cpu, " in written(one).partition("[hosts.host2]")[2]


def test_a_host_known_by_its_address_gets_a_name_once(rack: Up) -> None:
    made = rack(2)
    one = made.hosts[0]
    ssh.serve(made)
    config = one.path(f"{SSH}/config")
    config.write_text("Host nas\n    HostName 10.78.0.9\n")
    config.chmod(0o600)
    texts = []
    for _ in range(2):
        done = init(one, "host1", "root@10.78.0.2", "--keys", "--yes", "--force")
        assert done.status == 0, done.lines
        assert hosts(one) == {"host1": "host1", "host2": "root@10.78.0.2"}
        texts.append(config.read_text())
    assert texts[0] == texts[1]
    assert texts[0].startswith("Host nas\n    HostName 10.78.0.9\n\n# medley: begin")
    assert texts[0].count("Host host2\n    HostName 10.78.0.2\n    User root\n") == 1
    assert mode(config) == 0o600
    meant = set(one.says("ssh", "-G", "host2").splitlines())
    assert meant >= {"user root", "hostname 10.78.0.2"}


# What crypt(3) makes of "tomato", by SHA-512.
SHADOW = (
    "root:$6$rack$TQYXUylSmMYkXkrINofypCygxQJF7i9E6arJ1u6Ewg5g1NcFTmNJ"
    "SdOuh5JIvWiT3YYjO67sJPqOt2H.A7WQ70:19000:0:99999:7:::\n"
)


def let_passwords_in(host: Host, port: int) -> None:
    """A second sshd, and a password for root."""
    host.path("/etc/shadow").write_text(SHADOW)
    config = host.path("/run/sshd/config").read_text()
    config = config.replace("prohibit-password", "yes").replace(
        "PasswordAuthentication no", "PasswordAuthentication yes"
    )
    host.path("/run/sshd/passwords").write_text(f"Port {port}\n{config}")
    program = next(place for place in ssh.PLACES if Path(place).exists())
    process = host.start((program, "-D", "-e", "-f", "/run/sshd/passwords"))
    wait_for(
        "the second sshd listens",
        lambda: any("Server listening" in line for line in list(process.last_lines)),
        ssh.LIMIT_S,
        state=lambda: list(process.last_lines),
    )


def test_a_password_is_typed_once(rack: Up) -> None:
    made = rack(2)
    one, two = made.hosts
    ssh.serve(made)
    let_passwords_in(two, 2222)
    keys = two.path(f"{SSH}/authorized_keys")
    keys.write_text("")
    with terminal(one, [*MEDLEY, "init", "host1", "ssh://host2:2222", "--head", "host1"]) as screen:
        screen.sees("ssh does not get into host2: set that up now? [yes] ")
        screen.types("\n")
        screen.sees("-o StrictHostKeyChecking=yes -p 2222 host2\n")
        screen.sees("run this? it asks for your password there [yes] ")
        screen.types("\n")
        screen.sees("password: ")
        screen.types("tomato\n")
        screen.sees("host2  cpu, ")
        assert screen.ends() == 0, screen.shown
    assert keys.read_text() == one.path(f"{SSH}/id_ed25519.pub").read_text()
    assert hosts(one) == {"host1": "host1", "host2": "ssh://host2:2222"}
