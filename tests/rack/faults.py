"""The faults that happen to a cluster that serves, each with what must be said of it."""

import json
import time
from collections.abc import Callable

from medley.command import Command
from medley.process import Process
from tests.rack.chaos import SERVE, SERVE_LIMIT_S, STALL_LIMIT_S, Fault, Scene
from tests.rack.cluster import MEDLEY, STATE
from tests.rack.init import HOME
from tests.rack.ssh_cluster import process
from tests.waiting import wait_for
from tests.wall_clock import WallClock

RANK, CORE, API = "RayWorkerProc", "VLLM::EngineCore", "bin/vllm serve"
APART = "VLLM::Worker"
STOP_LIMIT_S = STALL_LIMIT_S * 5 + 45
"""A stall is named within five times its limit at the latest."""
PATIENCE_S = 45
"""Beyond this a stopped process of Ray's has been ended, and the model with it."""
SMALL_BYTES = 768 << 20
SLOW_MBIT = 1
HOG = """
import time
held = []
open("/proc/self/oom_score_adj", "w").write("-900")
for _ in range(60):
    held.append(b"x" * (32 << 20))
    time.sleep(0.2)
time.sleep(20)
"""
MEMORY_LEFT = 192 << 20
HOUR_S = 3600


def _signal(word: str, number: str, host: str | None = None) -> Callable[[Scene], None]:
    def strike(on: Scene) -> None:
        on.host = host or on.host
        on.kill(word, number)

    return strike


def _cut(on: Scene) -> None:
    on.desk.rack.cut("fast", on.host)


def _plug(on: Scene) -> None:
    time.sleep(2)
    on.desk.rack.mend("fast", on.host)


def _one_way(on: Scene) -> None:
    """What others send over the cluster's link is lost; what this host sends arrives."""
    link = on.victim.port("fast").interface
    chain = "add chain inet oneway input { type filter hook input priority 0; }"
    rule = f"add rule inet oneway input iifname {link} drop"
    on.victim.says("nft", f"add table inet oneway; {chain}; {rule}")


def _both_ways(on: Scene) -> None:
    on.victim.says("nft", "delete table inet oneway")


def _slow(on: Scene) -> None:
    on.desk.rack.shape("fast", SLOW_MBIT, on.host)


def _fast(on: Scene) -> None:
    on.desk.rack.shape("fast", 10_000, on.host)


def _small_state(on: Scene) -> None:
    for host in on.desk.rack.hosts:
        host.says("mkdir", "-p", STATE)
        host.says("mount", "-t", "tmpfs", "-o", f"size={SMALL_BYTES}", "state", STATE)


def _fill(on: Scene) -> None:
    full = on.victim.run(["dd", "if=/dev/zero", f"of={STATE}/logs/ballast", "bs=1M"])
    assert any("No space left" in line for line in full.lines), full.lines


def _empty(on: Scene) -> None:
    on.victim.says("rm", f"{STATE}/logs/ballast")


def _exhaust(on: Scene) -> None:
    """A program that must not be killed takes what the host has."""
    on.victim.memory(MEMORY_LEFT)
    on.started.append(on.victim.start(["python3", "-c", HOG]))


def _relieve(on: Scene) -> None:
    for each in on.started:
        each.stop(0)
    on.started.clear()
    on.victim.run(["pkill", "-KILL", "-f", "oom_score_adj"])
    on.victim.memory(None)


def _no_names(on: Scene) -> None:
    """No name is known, and the server for them does not answer."""
    etc = on.victim
    etc.says("cp", "/etc/hosts", "/tmp/hosts.kept")
    etc.says(
        "sh", "-c", "echo 127.0.0.1 localhost >/etc/hosts; echo nameserver 10.78.0.250 >/etc/resolv.conf"
    )


def _names(on: Scene) -> None:
    on.victim.says("sh", "-c", "cat /tmp/hosts.kept >/etc/hosts; rm /tmp/hosts.kept; : >/etc/resolv.conf")


def _power_cut(on: Scene) -> None:
    on.desk.typed_at = "host1" if on.host == "host2" else "host2"
    on.victim.kill()


def _power(on: Scene) -> None:
    on.power_on(on.host)
    on.desk.typed_at = "host1"


def _two_operators(on: Scene) -> None:
    """Both bring the cluster up, and both serve on the same port, one on each host."""
    lines: list[str] = []
    typed = [
        ("host1", "up"),
        ("host2", "up"),
        ("host1", "serve demo --detach"),
        ("host2", "serve demo --detach"),
    ]
    started = [
        on.desk.rack[at].start(Command((*MEDLEY, *words.split())), lines.append) for at, words in typed
    ]
    for each in started:
        assert each.wait(SERVE_LIMIT_S) is not None, lines
    on.signs.add(*lines)


def _ctrl_c(on: Scene) -> None:
    """At any moment of the start, or soon after it."""
    on.host = "host1"
    lines: list[str] = []
    serve = on.desk.head.start(Command((*MEDLEY, *SERVE)), lines.append)
    time.sleep(on.random.uniform(0.5, 40))
    _interrupt(on, serve, lines)


def _interrupt(on: Scene, serve: Process, lines: list[str]) -> None:
    before = " / ".join(lines[-1:])
    if serve.poll() is None:
        on.desk.head.says("kill", "-INT", str(process(on.desk.head, "medley serve demo")))
    finished = serve.wait(60)
    assert finished is not None, lines[-20:]
    on.signs.add(*lines[-6:], f"exit code {finished.status} after: {before}")


def _own_clock(on: Scene) -> None:
    on.clock = WallClock(on.desk.head.path(HOME), HOME)


def _set_clock(on: Scene, seconds: int) -> None:
    assert on.clock
    on.clock.set_ahead(seconds)


def _jump(on: Scene) -> None:
    """An hour ahead, and then an hour behind."""
    on.host = "host1"
    _set_clock(on, HOUR_S)
    time.sleep(5)
    _set_clock(on, -HOUR_S)


def _jump_in_a_restart(on: Scene) -> None:
    """The supervisor waits for the restart while its clock is set back."""
    on.host = "host1"
    on.kill("medley serve", "KILL")
    state = on.victim.path(f"{STATE}/units/medley-serve-8000.state")
    wait_for(
        "the supervisor has seen the end of serve",
        lambda: not json.loads(state.read_text())["running"],
        state=state.read_text,
    )
    _set_clock(on, -HOUR_S)


HOST, RANK_NAMED = "{host}", "rank.{{0,2}}{rank}"
STOPPED = r"Worker\S* \(process \d+\) on {host}.* (?:is|was) stopped"
STALLED = r"(?i)stall|stuck|no sign of work|stopped"

FAULTS = (
    Fault("kill rank", _signal(RANK, "KILL"), (HOST, RANK_NAMED)),
    Fault("stop rank", _signal(RANK, "STOP"), (HOST, STOPPED, STALLED), name_limit_s=STOP_LIMIT_S),
    Fault("cut link", _cut, ("host2|10[.]78[.]1[.]2", "(?i)link|reach|carrier"), _plug),
    Fault(
        "full disk",
        _fill,
        (HOST, "(?i)disk|no space"),
        _empty,
        breaks=False,
        lasts_s=15,
        prepare=_small_state,
        own_hosts=True,
    ),
    Fault("Ctrl-C of serve", _ctrl_c, ("exit code 130",), serves=False, back=False),
    Fault("kill engine core", _signal(CORE, "KILL", "host1"), ("(?i)engine ?core",)),
    Fault("kill API server", _signal(API, "KILL", "host1"), ("(?i)signal 9|SIGKILL|killed",)),
    Fault(
        "kill medley serve", _signal("medley serve", "KILL", "host1"), ("(?i)signal 9|SIGKILL|killed|137",)
    ),
    Fault("kill edge", _signal("caddy run", "KILL", "host1"), ("(?i)edge|caddy",)),
    Fault(
        "kill supervisor",
        _signal("medley kept medley-serve", "KILL", "host1"),
        ("(?i)supervisor|ended|exited",),
        back=False,
    ),
    Fault("kill raylet", _signal("raylet/raylet", "KILL"), (HOST, "raylet")),
    Fault("kill gcs_server", _signal("gcs_server", "KILL", "host1"), ("gcs_server",)),
    Fault(
        "stop engine core",
        _signal(CORE, "STOP", "host1"),
        ("(?i)engine ?core", STALLED),
        name_limit_s=STOP_LIMIT_S,
    ),
    Fault("kill Ray's agent", _signal("DashboardAgent", "KILL"), (HOST, "raylet")),
    Fault("stop raylet", _signal("raylet/raylet", "STOP"), (HOST, "raylet|Ray"), lasts_s=PATIENCE_S),
    Fault(
        "stop gcs_server",
        _signal("gcs_server", "STOP", "host1"),
        ("gcs_server",),
        lasts_s=PATIENCE_S,
    ),
    Fault("one-way link", _one_way, ("host2|10[.]78[.]1[.]2", "(?i)link|reach|one way"), _both_ways),
    Fault("slow link", _slow, (), _fast, breaks=False, lasts_s=30),
    Fault("no memory", _exhaust, (HOST, "(?i)memory|rank"), _relieve, lasts_s=20, own_hosts=True),
    Fault("clock jump", _jump, breaks=False, lasts_s=30, prepare=_own_clock, own_hosts=True),
    Fault(
        "clock jump in a restart",
        _jump_in_a_restart,
        ("(?i)signal 9|SIGKILL|killed|137",),
        prepare=_own_clock,
        own_hosts=True,
    ),
    Fault("no names", _no_names, ("host[12]", "(?i)resolve|name"), _names, breaks=False, lasts_s=15),
    Fault("power loss", _power_cut, (HOST,), _power, own_hosts=True),
    Fault("two operators", _two_operators, ("is in use|is started already",), breaks=False),
    Fault("kill rank without Ray", _signal(APART, "KILL", "host2"), (HOST, RANK_NAMED), family="mp"),
    Fault(
        "stop rank without Ray",
        _signal(APART, "STOP", "host2"),
        (HOST, STOPPED, STALLED),
        family="mp",
        name_limit_s=STOP_LIMIT_S,
    ),
    Fault(
        "cut link without Ray",
        _cut,
        ("host2|10[.]78[.][01][.]2", "(?i)is lost|reach|sent nothing"),
        _plug,
        family="mp",
    ),
)
