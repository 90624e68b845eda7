"""An aim is what a bench measures and with what: a server, its engine's client, and what is known of both."""

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from medley import api, api_key, config, described, http_client, membership, serving, spreading, store, tools
from medley.bench.expected import Expected, expected
from medley.bench.load import Load, Run
from medley.command import Command
from medley.described import Description
from medley.engine.client import Client, Target
from medley.engines import CLIENTS, ENGINES
from medley.layout.choose import UNFITTED
from medley.layout.words import hosts
from medley.predict import fitted
from medley.problem import Problem
from medley.recognised import answers, recognised
from medley.shape import shape
from medley.tables import Engine
from medley.transcript import Transcript
from medley.watch import Watch
from medley.weights import weights

_FP8_BITS = 8


@dataclass(frozen=True)
class Asked:
    """What the user says of the server; None leaves it to us."""

    url: str | None = None
    engine: Engine | None = None
    environment: str | None = None
    tokenizer: str | None = None
    model: str | None = None
    key: str | None = None
    """A file."""


@dataclass(frozen=True)
class Aim:
    engine: Engine
    binary: Path
    target: Target
    longest: int | None = None
    """Tokens that the server takes at once, prompt and answer."""
    what: Description | None = None
    told: Mapping[str, Transcript] = field(default_factory=dict)
    """What its hosts say of themselves, by name."""

    @property
    def client(self) -> Client:
        return CLIENTS[self.engine]

    def command(self, run: Run, result: Path) -> Command:
        return self.client.served(self.binary, self.target, run, result)

    @property
    def model(self) -> str:
        return self.what.model if self.what else self.target.model

    def expected(self, load: Load, watch: Watch) -> dict[int, Expected]:
        """The prediction for the plan that is served; empty where it is not known, which is said."""
        layout = self.what.layout if self.what else None
        if self.what is None or layout is None:
            watch.note("not predicted: nothing here says how that server's model lies on its hosts")
            return {}
        if not fitted(layout):
            watch.note(f"not predicted: {UNFITTED}")
            return {}
        try:
            made = shape(weights(self.what.model, config.models(), store.cache()))
        except Problem as problem:
            watch.note(f"not predicted: {problem.what}: {problem.cause}")
            return {}
        if self.what.plan.get("kv_type") == "fp8":
            made = made.model_copy(update={"kv_bits": _FP8_BITS})
        return {many: expected(made, layout, load, many) for many in load.concurrencies}


def require_room(load: Load, name: str, longest: int | None) -> None:
    """A Problem where each request would be refused; `longest`: tokens of prompt and answer."""
    if longest is None or load.tokens <= longest:
        return
    room = max(1, longest - load.output_tokens)
    raise Problem(
        f"{load.input_tokens} tokens in and {load.output_tokens} out are more than {name} takes",
        cause=f"it has room for {longest} tokens, prompt and answer together",
        fix=f"--input-len {room}"
        if longest > load.output_tokens
        else f"--input-len {longest // 2} --output-len {max(2, longest // 4)}",
    )


def aim(asked: Asked, watch: Watch) -> Aim:
    """The server that is asked for, or the one that this host serves since last."""
    server = _server(asked.url)
    port = urlsplit(server.url).port if server else None
    what = described.of(port) if port else None
    engine = what.engine if what else asked.engine or "vllm"
    url = server.url if server else api.base(asked.url or "")
    key = _key(asked.key, server)
    secret = api_key.read(key) if key else None
    if secret and server and server.key and not asked.key:
        api.require_guarded(server.url, secret)
    card = _card(api.cards(url, secret), asked.model, url)
    own = asked.tokenizer or (what.target if what else card.get("root") or card["id"])
    parts = urlsplit(url)
    # First, since an environment may have to be built for the rest.
    target = Target(
        f"{parts.scheme}://{parts.netloc}",
        parts.path,
        card["id"],
        _tokenizer(own),
        str(key) if key else None,
        _env(own) | http_client.direct(parts.hostname or "", os.environ),
    )
    binary = _binary(asked.environment, engine, what, watch)
    return Aim(engine, binary, target, card.get("max_model_len"), what, _told(what) if what else {})


def _server(url: str | None) -> serving.Server | None:
    """Of this host's own, the newest that is ready, or that at this address."""
    known = serving.servers()
    if url is not None:
        return next((each for each in known if each.url == api.base(url)), None)
    ready = [each for each in known if each.state == "ready"]
    if ready:
        return ready[0]
    raise Problem(
        "nothing is served here",
        cause=f"{known[0].model} is not ready yet: {known[0].state}" if known else "no medley serve runs",
        fix="wait until it says ready"
        if known
        else "medley serve demo; or: medley bench --url http://HOST:8000/v1",
    )


def _key(file: str | None, server: serving.Server | None) -> Path | None:
    if file:
        return api_key.chosen(file, "127.0.0.1", make=False)
    if server and server.key:
        return Path(server.key)
    said = os.environ.get(api_key.VARIABLE)
    if said is None:
        return None
    # The engine's client gets it by a file, as it gets every key.
    kept = store.state() / "bench-key"
    store.write(kept, said, secret=True)
    return kept


def _card(cards: list[dict[str, Any]], name: str | None, url: str) -> dict[str, Any]:
    found = next((card for card in cards if name in {None, card["id"]}), None)
    if found:
        return found
    names = ", ".join(card["id"] for card in cards)
    raise Problem(
        f"{url} does not serve {name or 'a model'}",
        cause=f"it serves {names or 'none'}",
        fix=f"--model {cards[0]['id']}" if cards else "medley logs shows what became of it",
    )


def _tokenizer(word: str) -> str:
    if not word.startswith("/") or Path(word).is_dir():
        return word
    raise Problem(
        "the prompts cannot be made here",
        cause=f"the server's model is {word} on its own host, and there is no such folder here",
        fix="name a folder or ORG/NAME with the same tokenizer: --tokenizer Qwen/Qwen3-8B",
    )


def _env(tokenizer: str) -> dict[str, str]:
    quiet = {"DO_NOT_TRACK": "1", "VLLM_NO_USAGE_STATS": "1"}
    return {**quiet, "HF_HUB_OFFLINE": "1"} if tokenizer.startswith("/") else quiet


def _binary(named: str | None, engine: Engine, what: Description | None, watch: Watch) -> Path:
    """That of the server, where it runs out of an environment here and none is named."""
    if what and named is None and (what.programs / ENGINES[engine].PROGRAM).exists():
        return what.programs
    _, kind = recognised()
    return tools.ready(kind, named, engine=engine, watch=watch).binary


def _told(what: Description) -> dict[str, Transcript]:
    """Of this host, asked now; those of a cluster as they told of themselves when they joined."""
    within = hosts(what.layout) if what.layout else ()
    joined = membership.noted() if len(within) > 1 else None
    if joined is None:
        return {platform.node(): answers()}
    said = spreading.transcripts(joined)
    return {name: said[name] for name in within if name in said}
