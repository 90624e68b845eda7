"""Load for a long run: phases drawn by a seed, the clients of each, and what they got."""

import http.client
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import islice
from typing import Literal

from benchmarks.completions import context, prompt, stream, whole

Kind = Literal["burst", "prefill", "idle", "cut", "wrong"]
SECONDS: dict[Kind, tuple[int, int]] = {
    "burst": (30, 90),
    "prefill": (30, 90),
    "idle": (45, 240),
    "cut": (20, 60),
    "wrong": (10, 30),
}
"""How long a phase of each kind lasts: at least, at most."""
MODEL = "made"
CLEAR_NATS = 0.02
"""Between first and second choice: rounding in float32 moves a logprob by some 0.00001."""
REQUEST_LIMIT_S = 600
_REFERENCE_TOKENS, _REFERENCES, _CANDIDATES = 16, 4, 40
_KEPT = 10
"""Texts of wrong and failed requests."""


@dataclass(frozen=True)
class Phase:
    kind: Kind
    seconds: int
    clients: int
    seed: int


def phases(seed: int) -> Iterator[Phase]:
    """Rounds without an end; each has one phase of every kind, in an order of its own."""
    source = random.Random(seed)
    while True:
        for kind in source.sample(list(SECONDS), len(SECONDS)):
            clients = source.randint(1, 2) if kind == "prefill" else source.randint(2, 12)
            yield Phase(kind, source.randint(*SECONDS[kind]), clients, source.getrandbits(32))


@dataclass
class Counts:
    """What became of all requests so far."""

    done: Counter[str] = field(default_factory=Counter)
    texts: list[str] = field(default_factory=list)
    longest_prefill_s: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, what: str, text: str = "") -> None:
        with self._lock:
            self.done[what] += 1
            if text and len(self.texts) < _KEPT:
                self.texts.append(f"{what}: {text[:300]}")

    def __str__(self) -> str:
        names = ("answered", "cut", "refused", "wrong", "failed")
        return ", ".join(f"{name} {self.done[name]}" for name in names)


@dataclass(frozen=True)
class Reference:
    """A prompt whose answer no rounding changes."""

    body: dict[str, object]
    text: str


@dataclass
class Load:
    """Clients of the server at `port`; `network` puts a thread where the server can be reached."""

    port: int
    network: Callable[[], AbstractContextManager[None]]
    context: int = 0
    """What the server takes, in tokens; known once `learn` has asked."""
    ends: threading.Event = field(default_factory=threading.Event)
    counts: Counts = field(default_factory=Counts)
    phase: Phase | None = None
    references: Sequence[Reference] = ()

    def learn(self) -> None:
        """Ask prompts alone, twice each, and keep those with clear and equal answers."""
        with self.network():
            self.context = context(self.port)
            asked = (self._reference(number) for number in range(_CANDIDATES))
            self.references = list(islice(filter(None, asked), _REFERENCES))
        if not self.references:
            raise AssertionError("no prompt has a clear answer")

    def _reference(self, number: int) -> Reference | None:
        body = self._body(prompt(number, 12), _REFERENCE_TOKENS)
        texts = []
        for _ in range(2):
            status, text = whole(self.port, body | {"logprobs": 2})
            if status != HTTPStatus.OK:
                raise AssertionError(text)
            texts.append(json.loads(text)["choices"][0])
        ranked = [sorted(top.values(), reverse=True) for top in texts[0]["logprobs"]["top_logprobs"]]
        clear = min(first - second for first, second, *_ in ranked) > CLEAR_NATS
        return Reference(body, texts[0]["text"]) if clear and texts[0]["text"] == texts[1]["text"] else None

    def run(self, seed: int) -> None:
        """Go through phases until `ends` is set."""
        for phase in phases(seed):
            self.phase = phase
            until = time.monotonic() + phase.seconds
            clients = [
                threading.Thread(target=self._client, args=(phase, number, until), daemon=True)
                for number in range(0 if phase.kind == "idle" else phase.clients)
            ]
            for client in clients:
                client.start()
            self.ends.wait(max(0.0, until - time.monotonic()))
            for client in clients:
                client.join()
            if self.ends.is_set():
                return

    def _client(self, phase: Phase, number: int, until: float) -> None:
        """One client: it comes after a while, and sends requests with pauses until the phase ends."""
        source = random.Random(f"{phase.seed} {number}")
        send = {"burst": self._burst, "prefill": self._prefill, "cut": self._cut, "wrong": self._wrong}
        with self.network():
            while not self.ends.wait(source.uniform(0, 3)) and time.monotonic() < until:
                try:
                    send[phase.kind](source)
                except (OSError, http.client.HTTPException, ValueError) as error:
                    if not self.ends.is_set():  # else the server is being ended
                        self.counts.add("failed", f"{phase.kind}: {error!r}")

    def _burst(self, source: random.Random) -> None:
        if source.random() < 1 / 4:
            reference = source.choice(self.references)
            found = stream(self.port, reference.body, limit_s=REQUEST_LIMIT_S)
            right = found.text == reference.text
            said = f"{found}, where alone the answer was {reference.text!r}"
            self.counts.add("answered" if right else "wrong", "" if right else said)
        else:
            self._asked(prompt(source.getrandbits(24), source.randint(4, 200)), source.randint(1, 48))

    def _prefill(self, source: random.Random) -> None:
        """A prompt that fills half of the context, or up to all of it."""
        tokens = 8
        words = source.randint(self.context // 2, self.context - tokens - 1)
        began = time.monotonic()
        self._asked(prompt(source.getrandbits(24), words), tokens)
        self.counts.longest_prefill_s = max(self.counts.longest_prefill_s, time.monotonic() - began)

    def _asked(self, text: str, tokens: int) -> None:
        found = stream(self.port, self._body(text, tokens), limit_s=REQUEST_LIMIT_S)
        right = found.tokens == tokens
        self.counts.add(
            "answered" if right else "wrong", "" if right else f"{found}, where {tokens} tokens were asked"
        )

    def _cut(self, source: random.Random) -> None:
        """Leave in the middle: the engine must give up the request, and free its memory."""
        body = self._body(prompt(source.getrandbits(24), 50), 400)
        found = stream(self.port, body, limit_s=REQUEST_LIMIT_S, cut_after=source.randint(1, 40))
        right = found.status == HTTPStatus.OK
        self.counts.add("cut" if right else "wrong", "" if right else str(found))

    def _wrong(self, source: random.Random) -> None:
        body, expected = source.choice(
            (
                (self._body("no such model", 4) | {"model": "none"}, HTTPStatus.NOT_FOUND),
                (self._body("less than no tokens", -1), HTTPStatus.BAD_REQUEST),
                (self._body(prompt(0, self.context + 10), 4), HTTPStatus.BAD_REQUEST),
                (self._body("a sampler of words", 4) | {"temperature": "hot"}, HTTPStatus.BAD_REQUEST),
            )
        )
        status, text = whole(self.port, body, REQUEST_LIMIT_S)
        right = status == expected
        self.counts.add("refused" if right else "wrong", "" if right else f"{status}, not {expected}: {text}")

    @staticmethod
    def _body(text: str, tokens: int) -> dict[str, object]:
        return {"model": MODEL, "prompt": text, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
