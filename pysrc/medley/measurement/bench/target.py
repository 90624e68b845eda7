"""Find what a benchmark measures: a server, or a model of this host that the engine loads by itself."""

import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from medley import config, credentials, engine, serving, storage
from medley.cluster import membership, ray_serving
from medley.cluster.remote import Server
from medley.command import Command
from medley.engine.launch import ENGINES, Launch, Order
from medley.environment import tools
from medley.errors import Problem
from medley.host.kind import answers, recognise
from medley.measurement.bench import BenchLoad, BenchRun
from medley.measurement.bench.clients import CLIENTS, Offline, ServedModel
from medley.measurement.bench.context import Expected, expected
from medley.model.resolve import ready, weights
from medley.model.shape import shape
from medley.network import http_client
from medley.planner import hosts_of, on_cpu
from medley.planner.choose import CONTEXT, UNFITTED
from medley.planner.placement import PlacementOptions
from medley.progress import Output, Progress
from medley.schema import EngineName
from medley.serving import Description, api, description
from medley.serving.prepare import Job, Options, launched, shape_of, this_host
from medley.transcript import Transcript

_FP8_BITS = 8


@dataclass(frozen=True)
class TargetOptions:
    """The user's words about the server; medley finds out what is None."""

    url: str | None = None
    engine: EngineName | None = None
    environment: str | None = None
    tokenizer: str | None = None
    model: str | None = None
    key: str | None = None
    """A file."""


@dataclass(frozen=True)
class BenchTarget:
    engine: EngineName
    binary: Path
    served: ServedModel
    longest: int | None = None
    """Tokens that the server takes at once, prompt and answer."""
    what: Description | None = None
    transcripts: Mapping[str, Transcript] = field(default_factory=dict)

    def command(self, run: BenchRun, result: Path) -> Command:
        return CLIENTS[self.engine].command(self.binary, self.served, run, result)

    @property
    def model(self) -> str:
        return self.what.model if self.what else self.served.model

    def expected(self, load: BenchLoad, progress: Progress) -> dict[int, Expected]:
        """The prediction for the plan that is served; empty where it is not known, with a note."""
        layout = self.what.layout if self.what else None
        if self.what is None or layout is None:
            progress.note("not predicted: nothing here says how that server's model lies on its hosts")
            return {}
        if on_cpu(layout):
            progress.note(f"not predicted: {UNFITTED}")
            return {}
        try:
            made = shape(weights(self.what.model, config.models(), storage.cache()))
        except Problem as problem:
            progress.note(f"not predicted: {problem.what}: {problem.cause}")
            return {}
        if self.what.plan.get("kv_type") == "fp8":
            made = made.model_copy(update={"kv_bits": _FP8_BITS})
        return {many: expected(made, layout, load, many) for many in load.concurrencies}


def require_room(load: BenchLoad, name: str, longest: int | None) -> None:
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


def find_target(options: TargetOptions, progress: Progress) -> BenchTarget:
    """The server that the options name, or the newest that this host serves."""
    server = _server(options.url)
    port = urlsplit(server.url).port if server else None
    what = serving.description_of(port) if port else None
    name = what.engine if what else options.engine or "vllm"
    url = server.url if server else api.base(options.url or "")
    key = _key(options.key, server)
    secret = credentials.read_api_key(key) if key else None
    card = _card(api.cards(server.local_url if server else url, secret), options.model, url)
    tokenizer = options.tokenizer or (what.target if what else card.get("root") or card["id"])
    _require_tokenizer(tokenizer)
    env = {"DO_NOT_TRACK": "1", "VLLM_NO_USAGE_STATS": "1"}
    if tokenizer.startswith("/"):
        env["HF_HUB_OFFLINE"] = "1"
    parts = urlsplit(url)
    env |= http_client.direct(parts.hostname or "", os.environ)
    base, secret_file = f"{parts.scheme}://{parts.netloc}", str(key) if key else None
    served = ServedModel(base, parts.path, card["id"], tokenizer, secret_file, env)
    if what and options.environment is None and (what.programs / ENGINES[name].PROGRAM).exists():
        binary = what.programs
    else:  # last, since an environment may have to be built
        binary = tools.ready(recognise()[1], options.environment, engine=name, watch=progress).binary
    transcripts = _transcripts(what) if what else {}
    return BenchTarget(name, binary, served, card.get("max_model_len"), what, transcripts)


def _server(url: str | None) -> Server | None:
    """Find the newest ready server of this host, or the one at this address."""
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
        else "medley serve smollm2; or: medley bench --url http://HOST:8000/v1",
    )


def _key(file: str | None, server: Server | None) -> Path | None:
    """The engine's client gets every key by a file, that of the environment too."""
    if file:
        return credentials.chosen_api_key(file, "127.0.0.1", make=False)
    if server and server.key:
        return Path(server.key)
    value = os.environ.get(credentials.API_KEY_VARIABLE)
    if value is None:
        return None
    kept = storage.state() / "bench-key"
    storage.write(kept, value, secret=True)
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


def _require_tokenizer(word: str) -> None:
    if word.startswith("/") and not Path(word).is_dir():
        raise Problem(
            "the prompts cannot be made here",
            cause=f"the server's model is {word} on its own host, and there is no such folder here",
            fix="name a folder or ORG/NAME with the same tokenizer: --tokenizer Qwen/Qwen3-8B",
        )


def _transcripts(what: Description) -> dict[str, Transcript]:
    """Ask this host now; use a cluster's transcripts from when its hosts joined."""
    within = hosts_of(what.layout) if what.layout else ()
    joined = membership.noted() if len(within) > 1 else None
    if joined is None:
        return {platform.node(): answers()}
    found, _ = ray_serving.told(joined)
    return {name: found[name] for name in within if name in found}


@dataclass(frozen=True)
class OfflineTarget:
    what: Description
    launch: Launch
    vocabulary: int
    transcripts: Mapping[str, Transcript]

    def runs(self, load: BenchLoad, progress: Progress) -> Iterator[tuple[Offline, BenchRun]]:
        modes: tuple[tuple[Offline, Iterator[BenchRun]], ...] = (
            ("latency", load.offline_latency_runs()),
            ("throughput", load.offline_throughput_runs()),
        )
        for mode, runs in modes:
            if why := CLIENTS[self.what.engine].unable(mode, self.vocabulary):
                progress.note(f"{mode} is left out: {why}")
            else:
                yield from ((mode, run) for run in runs)

    def command(self, mode: Offline, run: BenchRun, result: Path) -> Command:
        """The plan's own flags, less those of a server alone."""
        client, made = CLIENTS[self.what.engine], self.launch.reasoned
        words = client.offline_argv(self.what.programs, self.what.target, mode, run, result)
        flags = tuple(flag for flag in made.flags if flag.names[0] not in client.SERVER_FLAGS)
        return replace(made, words=words, flags=flags).command


def offline_target(
    model: str,
    load: BenchLoad,
    chosen: EngineName,
    environment: str | None,
    flags: tuple[str, ...],
    *,
    dry_run: bool,
    typed: tuple[str, ...],
    output: Output,
) -> OfflineTarget:
    """The plan for the model on this host alone, its environment ready."""
    found = weights(model, config.models(), storage.cache(), typed)
    made = shape_of(found, output.watch)
    require_room(load, found.name, made.context)
    if not dry_run:
        ready(found)
    placement = PlacementOptions(
        concurrency=max(load.concurrencies),
        context=load.tokens if load.tokens > CONTEXT else None,
        hosts=1,
        one_server=True,
        engine=chosen,
        launcher="solo",
    )
    order = Order(found, engine.Serving(found.target, found.name), placement, flags, typed=typed)
    job = Job(Options(model, placement, environment=environment, dry_run=dry_run), order)
    started = launched(job, this_host(None, output.say), output)
    what = description(order, started.launch, started.layout)
    return OfflineTarget(what, started.launch, made.vocabulary, {platform.node(): answers()})
