"""The power of a host fails at any moment of `up`, `pull`, `env build` or `serve`: what is typed next works.

Each cut kills every process of one host at once and leaves its disk. Then the host boots, its first process
starts what is kept there, and bystanders take the numbers that processes of ours had. The same verb again
succeeds, or is a Problem whose command makes it succeed; no bystander is ended. Run by hand, N cuts:

    python -m tests.rack.test_power_cuts N [SEED]
"""

import hashlib
import os
import random
import re
import sys
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from medley import process
from medley.command import Command
from tests.rack import ssh
from tests.rack.cluster import MEDLEY
from tests.rack.host import Host
from tests.rack.rack import up
from tests.rack.spec import Spec
from tests.rack.ssh_cluster import LINKS, SshCluster
from tests.waiting import wait_for

pytestmark = pytest.mark.rack

HOME = "/tmp/home"
MODEL = f"{HOME}/models/random"
MODEL_BYTES = 16 << 20
SERVE = ("serve", "demo", "--detach", "--pp", "2")
TINY = {"PIP_FIND_LINKS": f"{HOME}/wheels", "UV_OFFLINE": "1", "MEDLEY_CACHE": f"{HOME}/cache"}
LONGEST_S: Mapping[str, float] = {"pull": 4, "env build": 3, "up": 15, "serve": 25}
"""Within which of them a cut comes: about as long as each takes."""
_BYSTANDERS = 400
_FIX = re.compile(r"medley ((?:up|down|stop|pull|serve|env|ray-stop|service)\b[^;,#]*)")


@dataclass
class Cuts:
    desk: SshCluster
    random: random.Random
    bystanders: dict[str, list[process.Process]] = field(default_factory=dict)
    fixes: Counter[str] = field(default_factory=Counter)
    """What had to be typed besides, and how often."""

    def cut(self, verb: str) -> str:
        """One, and what is typed after it; how it went, in a line."""
        words, at = self._prepared(verb)
        begun = self.desk.rack[at].start(Command((*MEDLEY, *words)).add_variables(self._told(verb)))
        time.sleep(after_s := self.random.uniform(0, LONGEST_S[verb]))
        victim = self.random.choice((at, at, *(host.name for host in self.desk.rack.hosts)))
        self.desk.rack[victim].kill()
        if victim != at:
            assert begun.wait(300), f"{verb} hangs where the power of {victim} failed"
        begun.stop(2)
        self._boot(victim)
        typed = self._again(verb, words, at)
        self._holds(verb)
        return f"{verb}: {victim}'s power after {after_s:.1f} s, then {typed}"

    def _prepared(self, verb: str) -> tuple[tuple[str, ...], str]:
        match verb:
            case "up":
                self._done("down")
                return ("up",), "host1"
            case "pull":
                for host in self.desk.rack.hosts[1:]:
                    host.says("rm", "-rf", MODEL)
                return ("pull", MODEL), "host1"
            case "serve":
                self._done("up")
                return SERVE, "host1"
            case _:
                self.desk.rack["host2"].says("rm", "-rf", f"{HOME}/cache/envs")
                return ("env", "build", "tiny"), "host2"

    def _told(self, verb: str) -> Mapping[str, str]:
        return TINY if verb == "env build" else {}

    def _boot(self, victim: str) -> None:
        self.desk.rack = self.desk.rack.boot(victim)
        host = self.desk.rack[victim]
        self.bystanders[victim] = [host.start(("sleep", "86400")) for _ in range(_BYSTANDERS // 100)]
        crowd = f"for i in $(seq {_BYSTANDERS}); do sleep 86400 & done; echo there; wait"
        lines: list[str] = []
        self.bystanders[victim].append(host.start(Command(("sh", "-c", crowd)), lines.append))
        wait_for("all bystanders run", lambda: "there" in lines, 60, state=lambda: lines)
        ssh.serve(self.desk.rack, host)
        resumed = self.desk.type("service", "start", at=victim)
        assert resumed.status == 0, resumed.lines

    def _again(self, verb: str, words: tuple[str, ...], at: str) -> str:
        """The same, and what its Problems say until it succeeds; each at most once."""
        typed = [" ".join(words)]
        for _ in range(4):
            said = self._typed(words, at, self._told(verb))
            if said.status == 0:
                return ", ".join(typed)
            fix = next((each[1].split() for line in said.lines if (each := _FIX.search(line))), None)
            assert fix, "\n".join(said.lines)
            assert " ".join(fix) not in typed, "\n".join(said.lines)
            typed.insert(-1, " ".join(fix))
            self.fixes[" ".join(fix)] += 1
            done = self._typed(tuple(fix), at, self._told(verb))
            assert done.status == 0 or _FIX.search("\n".join(done.lines)), "\n".join(done.lines)
        raise AssertionError(typed)

    def _typed(self, words: tuple[str, ...], at: str, env: Mapping[str, str]) -> process.ProcessResult:
        return self.desk.rack[at].run(Command((*MEDLEY, *words)).add_variables(env), limit_s=400)

    def _done(self, *words: str) -> None:
        said = self._typed(words, "host1", {})
        assert said.status == 0, "\n".join(said.lines)

    def _holds(self, verb: str) -> None:
        match verb:
            case "up":
                self.desk.all_up()
            case "pull":
                first, *others = (self.desk.rack[host.name].path(MODEL) for host in self.desk.rack.hosts)
                for each in others:
                    assert _hashes(each) == _hashes(first)
            case "serve":
                self.desk.done("chat", "--max-tokens", "4", "Hello")
                self._done("stop")
            case _:
                host = self.desk.rack["host2"]
                (built,) = host.path(f"{HOME}/cache/envs").glob("tiny-*")
                python = f"{HOME}/cache/envs/{built.name}/bin/python"
                assert host.says(python, "-c", "import tiny.m199; print(tiny.m199.X)").strip() == "199"
        for name, crowd in self.bystanders.items():
            assert all(each.poll() is None for each in crowd), f"a bystander on {name} was ended"
            count = self.desk.rack[name].says("pgrep", "-c", "-f", "^sleep 86400").strip()
            assert int(count) >= _BYSTANDERS, f"{count} of {_BYSTANDERS} bystanders on {name} are left"


def _hashes(folder: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.iterdir())
        if path.is_file()
    }


@contextmanager
def desk(name: str) -> Iterator[SshCluster]:
    """Two hosts, a model on the first, and the lock of a small environment on the second."""
    with up(Spec(2, LINKS, name=name)) as rack:
        made = SshCluster.of(rack)
        folder = rack["host1"].path(MODEL)
        folder.mkdir(parents=True)
        for number in (1, 2):
            (folder / f"model-{number}.safetensors").write_bytes(os.urandom(MODEL_BYTES // 2))
        (folder / "config.json").write_text("{}")
        _lock(rack["host2"])
        rack.shape("fast", 100)
        yield made


def _lock(host: Host) -> None:
    """An engine environment of one wheel of ours, in the user's own tables."""
    wheels, locks = host.path(f"{HOME}/wheels"), host.path(f"{HOME}/.config/medley/locks")
    wheels.mkdir(parents=True)
    locks.mkdir(parents=True)
    wheel = wheels / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as made:
        for number in range(200):
            made.writestr(f"tiny/m{number}.py", f"X = {number}\n" * 500)
        made.writestr("tiny/__init__.py", "")
        about = "tiny-1.0.dist-info"
        made.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        made.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        names = [*made.namelist(), f"{about}/RECORD"]
        made.writestr(f"{about}/RECORD", "".join(f"{each},,\n" for each in names))
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (locks / "tiny.txt").write_text(f"tiny==1.0 --hash=sha256:{digest}\n")
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    (locks / "tiny.toml").write_text(
        f'title = "One wheel"\nengine = "vllm"\ndevice = "cpu"\npython = "{version}"\n'
        'systems = ["x86_64-linux", "aarch64-linux"]\ndisk_bytes = 1_000_000\n'
    )


def run(count: int, seed: int, tell: Callable[[str], None]) -> Counter[str]:
    """So many cuts, of each verb as often; what had to be typed besides the verb itself."""
    with desk(f"cuts-{os.getpid()}") as made:
        cuts = Cuts(made, random.Random(seed))
        for number in range(count):
            verb = tuple(LONGEST_S)[number % len(LONGEST_S)]
            tell(f"{number + 1}: {cuts.cut(verb)}")
        return cuts.fixes


@pytest.mark.slow
@pytest.mark.parametrize("count", [3, 50])
def test_what_is_typed_after_a_power_cut_works(count: int) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: it makes namespaces and mounts")
    run(count, 1, print)


if __name__ == "__main__":
    numbers = [int(each) for each in sys.argv[1:]]
    print(run(numbers[0], (numbers[1:] or [1])[0], lambda line: print(line, flush=True)))
