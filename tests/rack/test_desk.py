"""From nothing to an answer on four hosts with two commands; back after a reboot; and no secret anywhere."""

import json
from pathlib import Path

import pytest

from tests.rack import ssh
from tests.rack.conftest import Up
from tests.rack.host import Host
from tests.rack.spec import Spec
from tests.rack.ssh_cluster import LINKS, SshCluster, falls_still, kept, process

pytestmark = pytest.mark.rack

HOME = "/tmp/home"
SECRETS = ("token", "api-key")
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
SEES = (
    f"cat /proc/*/environ /proc/*/cmdline $(find {HOME} /tmp /run -type f 2>/dev/null) 2>/dev/null"
    " | tr '\\0' '\\n'; true"
)
ASK = ("chat", "--max-tokens", "8", "Hello")


@pytest.mark.slow
def test_two_commands_a_reboot_and_an_end(rack: Up) -> None:
    own = {"host2": 'environment = { VLLM_LOGGING_PREFIX = "of host2 " }'}
    desk = SshCluster.of(rack(Spec(4, LINKS)), own)
    desk.done("up")
    # Open to others, so that it has a key; typed on a worker, so that it goes to the head.
    said = desk.done(
        *("serve", "demo", "--detach", "--restart", "--pp", "4", "--host", "0.0.0.0"), at="host4", limit_s=400
    )
    assert any(line.startswith("ready after") for line in said), said[-20:]
    first = answer(desk)
    assert first
    assert [host.name for host in desk.rack.hosts if "of host2" in rank_environment(host)] == ["host2"]

    secrets = {desk.head.path(f"{HOME}/.local/state/medley/{name}").read_text().strip() for name in SECRETS}
    assert len(secrets) == 2
    texts = {"what was typed and said": "\n".join(said), **views(desk)}
    assert {name for name, text in texts.items() for secret in secrets if secret in text} == set()

    desk.rack["host3"].kill()
    desk.become(
        "the model waits for host3", lambda said: "restarting, attempt 1" in said["host1"], limit_s=90
    )
    assert "does not answer" in desk.states()["host3"]
    desk.rack = desk.rack.boot("host3")
    ssh.serve(desk.rack, desk.rack["host3"])
    desk.done("service", "start", at="host3")
    desk.become("the model is ready", lambda said: "(ready)" in said["host1"], limit_s=400)
    assert answer(desk) == first

    desk.done("stop", at="host2")
    assert "(ready)" not in desk.states()["host1"]
    desk.done("down")
    for host in desk.rack.hosts:
        falls_still(host)
        assert kept(host) <= {"api-key", "keys.lock"}, "clients have the key"


def answer(desk: SshCluster) -> str:
    words = (*ASK, "--json", "--api-key", f"{HOME}/.local/state/medley/api-key")
    return str(json.loads(desk.done(*words)[-1])["answer"])


def rank_environment(host: Host) -> str:
    """The environment of the rank on this host, which Ray started."""
    pid = process(host, "RayWorker")
    return host.says("sh", "-c", f"tr '\\0' '\\n' </proc/{pid}/environ")


def views(desk: SshCluster) -> dict[str, str]:
    """What others see, or are shown: command lines, what a log or a report holds, what a dry run prints."""
    found = {}
    for host in desk.rack.hosts:
        found[f"{host.name}: command lines"] = host.says("ps", "-eo", "args", "--no-headers", "-ww")
        found |= {f"{host.name}: {file}": file.read_text(errors="replace") for file in logs(host)}
        found[f"{host.name}: another user's view"] = host.says(*NOBODY, "sh", "-c", SEES)
        found[f"{host.name}: facts"] = "\n".join(desk.done("facts", "--transcript", at=host.name))
    found["status"] = "\n".join(desk.done("status", "--json"))
    found["logs"] = "\n".join(desk.done("logs", "-n", "2000"))
    found["dry run"] = "\n".join(desk.done("up", "--dry-run", "--json"))
    found["dry run of serve"] = "\n".join(desk.type("serve", "demo", "--port", "9000", "--dry-run").lines)
    return found


def logs(host: Host) -> list[Path]:
    folder = host.path(f"{HOME}/.local/state/medley")
    sessions = (file for file in (folder / "ray").glob("session_*/logs/**/*") if file.is_file())
    units = [*folder.glob("units/*"), *folder.glob("serving/*"), *folder.glob("logs/*")]
    return [*units, *sessions, folder / "ray.json"]
