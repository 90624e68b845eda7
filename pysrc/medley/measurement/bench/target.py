"""Find the target of a benchmark: a server, or a model of this host that the engine loads by itself."""

import os
import platform
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec import field

from medley import config, storage
from medley.cluster import membership, ray_serving
from medley.command import Command, quote_word
from medley.engine.launch import ENGINES, Launch, LaunchOrder
from medley.engine.server_spec import ServerSpec
from medley.environment import tools
from medley.errors import Problem
from medley.host.kind import detect_host, load_answers
from medley.measurement.bench.clients import CLIENTS, OfflineMode, ServedModel
from medley.measurement.bench.context import ExpectedFigures, predict_figures
from medley.measurement.bench.load import BenchLoad, BenchRun
from medley.model import trust
from medley.model.extra_files import CODE_FOLDER_VARIABLE, NO_CODE_FOLDER
from medley.model.resolve import prepare_weights, resolve_weights
from medley.model.shape import find_shape
from medley.network import http_client
from medley.planner import list_hosts, runs_on_cpu
from medley.planner.choose import NO_CPU_PREDICTION
from medley.planner.context import DEFAULT_CONTEXT_TOKENS
from medley.planner.placement import PlacementOptions
from medley.progress import Output, Progress
from medley.schema import (
    DEFAULT_ENGINE,
    EngineName,
)
from medley.serving import api, server_address, server_description, server_records
from medley.serving.launches import prepare_launch
from medley.serving.prepare import Job
from medley.serving.request import LaunchRequest
from medley.serving.server_address import ServerAddress
from medley.serving.server_description import Description
from medley.serving.site import find_this_host
from medley.transcript import Transcript
from medley.values import Value

_FP8_BITS = 8


class TargetOptions(Value):
    """The user's options about the server; medley detects the value of each that is None."""

    url: str | None = None
    engine: EngineName | None = None
    environment: str | None = None
    tokenizer: str | None = None
    model: str | None = None
    key: str | None = None
    """The file of the API key."""
    is_insecure: bool = False
    """Whether the key may travel unencrypted."""


class BenchTarget(Value):
    """A server to measure, and the folder with the programs of its engine's client."""

    engine: EngineName
    program_folder: Path
    served: ServedModel
    max_tokens: int | None = None
    """The tokens of one request that the server accepts, prompt and answer together."""
    description: Description | None = None
    """The server's plan, if this host knows it."""
    transcripts: Mapping[str, Transcript] = field(default_factory=dict)

    def build_command(self, run: BenchRun, result: Path) -> Command:
        return CLIENTS[self.engine].build_command(self.program_folder, self.served, run, result)

    @property
    def model(self) -> str:
        return self.description.model if self.description else self.served.model

    def remove_key_copy(self) -> None:
        """Remove the file with the environment's key, if `prepare_target` wrote one."""
        if self.served.key_file == str(_get_key_copy_path()):
            storage.remove_file(_get_key_copy_path())

    def predict_figures(self, load: BenchLoad, progress: Progress) -> dict[int, ExpectedFigures]:
        """Return the predicted figures by concurrency; empty if the plan is unknown, with a note."""
        layout = self.description.layout if self.description else None
        if self.description is None or layout is None:
            progress.note("not predicted: nothing here says how that server's model lies on its hosts")
            return {}
        if runs_on_cpu(layout):
            progress.note(f"not predicted: {NO_CPU_PREDICTION}")
            return {}
        try:
            model_shape = find_shape(
                resolve_weights(self.description.model, config.load_models(), storage.find_cache_folder())
            )
        except Problem as problem:
            progress.note(f"not predicted: {problem.what}: {problem.cause}")
            return {}
        if self.description.plan.get("kv_type") == "fp8":
            model_shape = model_shape.replace(kv_bits=_FP8_BITS)
        return {
            concurrency: predict_figures(model_shape, layout, load, concurrency)
            for concurrency in load.concurrencies
        }


def require_context_room(load: BenchLoad, name: str, max_tokens: int | None) -> None:
    """Raise a Problem if a request of the load exceeds `max_tokens`, prompt and answer together."""
    if max_tokens is None or load.tokens <= max_tokens:
        return
    input_tokens = max(1, max_tokens - load.output_tokens)
    raise Problem(
        f"{load.input_tokens} tokens in and {load.output_tokens} out are more than {name} takes",
        cause=f"it has room for {max_tokens} tokens, prompt and answer together",
        fix=f"--input-len {input_tokens}"
        if max_tokens > load.output_tokens
        else f"--input-len {max_tokens // 2} --output-len {max(2, max_tokens // 4)}",
    )


def prepare_target(options: TargetOptions, progress: Progress) -> BenchTarget:
    """Find the server that the options name, or this host's newest; raise a Problem if none answers.

    The client's environment is built if it is missing, and a key from the environment written to a file.
    """
    address = _find_address(options)
    description, url = (
        server_description.read_description(address.record.port) if address.record else None,
        address.url,
    )
    engine = description.engine if description else options.engine or DEFAULT_ENGINE
    key = _store_key_file(options.key, address)
    card = _choose_card(api.list_model_cards(address.local_url, address.key), options.model, url)
    tokenizer = options.tokenizer or (description.target if description else card.get("root") or card["id"])
    _require_tokenizer(tokenizer)
    env = {"DO_NOT_TRACK": "1", "VLLM_NO_USAGE_STATS": "1"}
    # SGLang's client runs the code of any tokenizer; a server's card may name a stranger's.
    if pinned_folder := trust.find_pinned_folder(tokenizer):
        tokenizer = str(pinned_folder)
    else:
        env[CODE_FOLDER_VARIABLE] = NO_CODE_FOLDER
    if tokenizer.startswith("/"):
        env["HF_HUB_OFFLINE"] = "1"
    parts = urlsplit(url)
    env |= http_client.list_no_proxy_variables(parts.hostname or "", os.environ)
    base, secret_file = f"{parts.scheme}://{parts.netloc}", str(key) if key else None
    served = ServedModel(base, parts.path, card["id"], tokenizer, secret_file, env)
    program_folder = _find_program_folder(description, engine, options.environment, progress)
    transcripts = _read_transcripts(description) if description else {}
    return BenchTarget(engine, program_folder, served, card.get("max_model_len"), description, transcripts)


def _find_program_folder(
    description: Description | None, name: EngineName, environment: str | None, progress: Progress
) -> Path:
    """Return the folder of the client's programs: the server's own, or an environment, built if missing."""
    if (
        description
        and environment is None
        and storage.exists(description.programs_folder / ENGINES[name].PROGRAM)
    ):
        return description.programs_folder
    return tools.prepare_tools(detect_host().kind, environment, engine=name, progress=progress).program_folder


def _find_address(options: TargetOptions) -> ServerAddress:
    """Find the newest ready server of this host, or the one at the address that the options name."""
    if options.url is not None:
        return server_address.find_address(
            api.complete_url(options.url), options.key, is_insecure=options.is_insecure
        )
    servers = server_records.list_servers()
    ready_servers = [server for server in servers if server.state == "ready"]
    if ready_servers:
        return server_address.build_local_address(ready_servers[0])
    cause = f"{servers[0].model} is not ready yet: {servers[0].state}" if servers else "no medley serve runs"
    raise Problem(
        "nothing is served here",
        cause=cause,
        fix="wait until it says ready"
        if servers
        else "medley serve smollm2; or: medley bench --url http://HOST:8000/v1",
    )


def _store_key_file(file: str | None, address: ServerAddress) -> Path | None:
    """Return the file of the API key; a key from the environment is written to one for the client."""
    client_file = server_address.find_client_key_file(address, file)
    if client_file or address.key is None:
        return client_file
    storage.write_text(_get_key_copy_path(), address.key, secret=True)
    return _get_key_copy_path()


def _get_key_copy_path() -> Path:
    return storage.find_state_folder() / "bench-key"


def _choose_card(cards: list[dict[str, Any]], name: str | None, url: str) -> dict[str, Any]:
    """Return the API's entry of the model with this name, or of the first model."""
    match = next((card for card in cards if name in {None, card["id"]}), None)
    if match:
        return match
    names = ", ".join(card["id"] for card in cards)
    raise Problem(
        f"{url} does not serve {name or 'a model'}",
        cause=f"it serves {names or 'none'}",
        fix=f"--model {quote_word(cards[0]['id'])}" if cards else "medley logs shows what became of it",
    )


def _require_tokenizer(tokenizer: str) -> None:
    if tokenizer.startswith("/") and not Path(tokenizer).is_dir():
        raise Problem(
            "the prompts cannot be made here",
            cause=f"the server's model is {tokenizer} on its own host, and there is no such folder here",
            fix="name a folder or ORG/NAME with the same tokenizer: --tokenizer Qwen/Qwen3-8B",
        )


def _read_transcripts(description: Description) -> dict[str, Transcript]:
    """Ask this host, or return the transcripts that the cluster's hosts sent when they joined."""
    hosts = list_hosts(description.layout) if description.layout else ()
    member = membership.find_membership() if len(hosts) > 1 else None
    if member is None:
        return {platform.node(): load_answers()}
    transcripts, _ = ray_serving.read_transcripts(member)
    return {name: transcripts[name] for name in hosts if name in transcripts}


class OfflineTarget(Value):
    """A model that the engine loads by itself, without a server."""

    description: Description
    launch: Launch
    vocabulary_size: int
    transcripts: Mapping[str, Transcript]

    def list_runs(self, load: BenchLoad, progress: Progress) -> Iterator[tuple[OfflineMode, BenchRun]]:
        """Yield the runs of each mode that can measure this model; note the other modes."""
        modes: tuple[tuple[OfflineMode, Iterator[BenchRun]], ...] = (
            ("latency", load.list_latency_runs()),
            ("throughput", load.list_throughput_runs()),
        )
        for mode, runs in modes:
            if reason := CLIENTS[self.description.engine].find_obstacle(mode, self.vocabulary_size):
                progress.note(f"{mode} is left out: {reason}")
            else:
                yield from ((mode, run) for run in runs)

    def build_command(self, mode: OfflineMode, run: BenchRun, result: Path) -> Command:
        """Return the client's command with the plan's flags, without those for servers."""
        client, planned = CLIENTS[self.description.engine], self.launch.annotated_command
        argv = client.build_offline_argv(
            self.description.programs_folder, self.description.target, mode, run, result
        )
        flags = tuple(flag for flag in planned.flags if flag.names[0] not in client.SERVER_FLAGS)
        return planned.replace(words=argv, flags=flags).command


def plan_offline_target(
    model: str,
    load: BenchLoad,
    engine_name: EngineName,
    environment: str | None,
    flags: tuple[str, ...],
    *,
    dry_run: bool,
    user_command: tuple[str, ...],
    output: Output,
) -> OfflineTarget:
    """Plan the model on this host alone; unless `dry_run`, fetch its weights and build its environment."""
    files = resolve_weights(model, config.load_models(), storage.find_cache_folder(), user_command)
    if files.notice:
        output.say(files.notice)
    model_shape = find_shape(files, output.progress)
    require_context_room(load, files.name, model_shape.context)
    if not dry_run:
        prepare_weights(files)
    placement = PlacementOptions(
        concurrency=max(load.concurrencies),
        context=load.tokens if load.tokens > DEFAULT_CONTEXT_TOKENS else None,
        host_count=1,
        needs_one_server=True,
        engine=engine_name,
        launcher="solo",
    )
    order = LaunchOrder(
        files, ServerSpec(files.target, files.name), placement, flags, user_command=user_command
    )
    job = Job(LaunchRequest(model, placement, environment=environment, dry_run=dry_run), order)
    prepared = prepare_launch(job, find_this_host(None, output.say), output)
    description = server_description.build_description(order, prepared.launch, prepared.layout)
    return OfflineTarget(
        description, prepared.launch, model_shape.vocabulary, {platform.node(): load_answers()}
    )
