"""`medley bench` and the engine's own benchmark typed by hand, in turns, of the demo over two hosts."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median

from medley.command import UNSET_VARIABLES, Command
from medley.environment import virtualenv
from tests.rack.cluster import MEDLEY, cluster, served
from tests.rack.host import Host
from tests.rack.rack import up
from tests.rack.spec import Spec

AT_ONCE, REQUESTS, INPUT, OUTPUT = 4, 64, 32, 32
_LIMIT_S = 300


@dataclass(frozen=True)
class Pairs:
    """Tokens a second, of each turn."""

    ours: tuple[float, ...]
    by_hand: tuple[float, ...]

    @property
    def ratio(self) -> float:
        return median(self.ours) / median(self.by_hand)

    @property
    def spread(self) -> tuple[float, float]:
        """Of the benchmark by hand: its least and its most, by its median."""
        middle = median(self.by_hand)
        return min(self.by_hand) / middle, max(self.by_hand) / middle

    @property
    def within(self) -> bool:
        low, high = self.spread
        return low <= self.ratio <= high


@dataclass(frozen=True)
class Benched:
    head: Host
    binary: str
    tokenizer: str

    def ours(self) -> float:
        load = ("--concurrency", str(AT_ONCE), "--requests", str(REQUESTS), "--repeats", "1")
        lens = ("--input-len", str(INPUT), "--output-len", str(OUTPUT))
        lines = self._run(Command((*MEDLEY, "bench", *load, *lens, "--json")))
        (result,) = json.loads(next(line for line in lines if line.startswith("{")))["results"]
        return float(result["output_tokens_per_s"]["median"])

    def by_hand(self, seed: int) -> float:
        """As vLLM's documentation has it typed; what it prints is read, not what it saves."""
        words = (
            *("bench", "serve", "--backend", "openai", "--base-url", "http://127.0.0.1:8000"),
            *("--model", "demo", "--tokenizer", self.tokenizer, "--dataset-name", "random"),
            *("--random-input-len", str(INPUT), "--random-output-len", str(OUTPUT)),
            *("--num-prompts", str(REQUESTS), "--max-concurrency", str(AT_ONCE)),
            *("--seed", str(seed), "--temperature", "0"),
        )
        env = {"HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1"}
        lines = self._run(Command((self.binary, *words), env, UNSET_VARIABLES))
        said = next(line for line in lines if line.startswith("Output token throughput"))
        return float(said.rpartition(":")[2])

    def pairs(self, count: int, say: Callable[[str], None] = print) -> Pairs:
        """One first, that nobody counts; then in turns, each as often the first of its pair."""
        self.by_hand(99)
        ours: list[float] = []
        by_hand: list[float] = []
        for pair in range(count):
            for turn in ("ours", "by hand") if pair % 2 == 0 else ("by hand", "ours"):
                if turn == "ours":
                    ours.append(self.ours())
                else:
                    by_hand.append(self.by_hand(100 + pair))
            say(f"pair {pair + 1}: medley bench {ours[-1]:.1f} tokens/s, by hand {by_hand[-1]:.1f}")
        return Pairs(tuple(ours), tuple(by_hand))

    def _run(self, command: Command) -> tuple[str, ...]:
        finished = self.head.run(command, limit_s=_LIMIT_S)
        assert finished.status == 0, "\n".join(finished.lines[-20:])
        return finished.lines


@contextmanager
def benched() -> Iterator[Benched]:
    """The demo, served over both hosts."""
    environment = virtualenv.find_environment("vllm-cpu")
    assert environment, "medley env build vllm-cpu"
    with up(Spec(2)) as rack:
        cluster(rack.hosts)
        running = served(rack.hosts[0], "--hosts", "2")
        try:
            command = next(line for line in running.lines if line.startswith("medley: $ "))
            target = command.split(" serve ", 1)[1].split()[0]
            yield Benched(rack.hosts[0], str(environment.programs / "vllm"), target)
        finally:
            running.process.stop(grace_s=30)
