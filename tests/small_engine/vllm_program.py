"""A small engine in vLLM's place, which starts in seconds and has ranks under Ray but no model.

It is the console script `vllm` of the environment that `tests.small_engine.environment` makes, and takes the
flags of `vllm serve` that it needs. It does what medley meets of vLLM 0.32: actors named
vllm_Worker_ID_TP0_PP1 on the slots of the plan, the line that reports a dead rank and the silence after it,
metrics, and OpenAI's routes behind uvicorn. Each token goes through all ranks in turn.
"""

import argparse
import asyncio
import json
import logging
import os
import secrets
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from hashlib import sha256
from itertools import product
from typing import Any

import uvicorn

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
WORDS = ("ba", "cu", "di", "fo", "ge", "hu", "ja", "ki", "lo", "mu", "na", "pe", "qi", "ro", "su", "te")
CONTEXT = 2048
TOKEN_S = 0.01
"""How long a token takes besides its way through the ranks."""
EXECUTOR = "multiproc_executor.py:999"


def main() -> None:
    options = parse(sys.argv[1:])
    print(f"(APIServer pid={os.getpid()}) INFO the small engine serves {options.model}", flush=True)
    ranks = start_ranks(options) if options.distributed_executor_backend == "ray" else []
    application = Application(options.served_model_name or options.model, options.model, ranks)
    config = uvicorn.Config(
        application,
        options.host,
        options.port,
        uds=options.uds,
        log_level="warning",
        timeout_graceful_shutdown=1,
    )
    uvicorn.Server(config).run()


def parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="vllm", allow_abbrev=False)
    parser.add_argument("command", choices=["serve"])
    parser.add_argument("model")
    parser.add_argument("--served-model-name")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--uds")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--pipeline-parallel-size", "-pp", type=int, default=1)
    parser.add_argument("--tensor-parallel-size", "-tp", type=int, default=1)
    parser.add_argument("--distributed-executor-backend")
    options, _ = parser.parse_known_args(words)
    return options


def start_ranks(options: argparse.Namespace) -> list[Any]:
    """Return the ranks, placed as vLLM places them: the driver's host first, the others by address."""
    import ray

    # A worker on another host has no such module.
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    ray.init(address=os.environ["RAY_ADDRESS"], log_to_driver=False, logging_level=logging.ERROR)
    own = ray.util.get_node_ip_address()
    living = [node for node in ray.nodes() if node["Alive"]]
    slots = {node["NodeManagerAddress"]: int(node["Resources"].get("GPU", 0)) for node in living}
    order = [own, *sorted((each for each in slots if each != own), key=address_numbers)]
    hosts = [host for host in order for _ in range(slots[host])]
    places = list(product(range(options.pipeline_parallel_size), range(options.tensor_parallel_size)))
    bundles = [{"GPU": 1, f"node:{host}": 0.001} for host in hosts[: len(places)]]
    group = ray.util.placement_group(bundles)
    ray.get(group.ready(), timeout=120)
    name = secrets.token_hex(4)
    kind = ray.remote(num_cpus=0, num_gpus=1, max_concurrency=3)(RayWorkerProc)
    ranks = []
    for number, (stage, tensor) in enumerate(places):
        strategy = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(
            group, placement_group_bundle_index=number
        )
        ranks.append(
            kind.options(
                name=f"vllm_Worker_{name}_TP{tensor}_PP{stage}", scheduling_strategy=strategy
            ).remote()
        )
    ray.get([rank.step.remote("") for rank in ranks], timeout=120)
    threading.Thread(target=report_first_death, args=(ranks,), daemon=True).start()
    return ranks


def address_numbers(address: str) -> tuple[int, ...]:
    return tuple(int(part) for part in address.split("."))


class RayWorkerProc:
    """A rank: it passes a token on, and lives until it is ended."""

    def step(self, token: str) -> str:
        return token

    def live(self) -> None:
        threading.Event().wait()


def report_first_death(ranks: list[Any]) -> None:
    """Print vLLM's line about a dead rank and do nothing else, as vLLM 0.32's RayExecutorV2."""
    import ray

    lives = {rank.live.remote(): number for number, rank in enumerate(ranks)}
    (dead, *_), _ = ray.wait(list(lives), num_returns=1, timeout=None)
    line = f"RayWorkerProc rank=[{lives[dead]}] died unexpectedly, shutting down executor."
    print(f"(EngineCore pid={os.getpid()}) ERROR 01-01 00:00:00 [{EXECUTOR}] {line}", flush=True)


class Application:
    """OpenAI's routes, as far as medley and the tests ask them."""

    def __init__(self, name: str, root: str, ranks: list[Any]) -> None:
        self.name, self.root, self.ranks = name, root, ranks
        self.generated = self.prompted = self.running = 0

    async def __call__(self, scope: Message, receive: Callable[[], Awaitable[Message]], send: Send) -> None:
        if scope["type"] == "lifespan":
            await acknowledge_lifespan(receive, send)
        elif scope["type"] == "http":
            await self.answer(scope["path"], await read_body(receive), send)

    async def answer(self, path: str, body: bytes, send: Send) -> None:
        if path == "/health":
            await respond(send, b"")
        elif path == "/metrics":
            await respond(send, self.metrics().encode())
        elif path == "/v1/models":
            card = {"id": self.name, "object": "model", "root": self.root, "max_model_len": CONTEXT}
            await respond_json(send, {"object": "list", "data": [card]})
        elif path in {"/v1/completions", "/v1/chat/completions"}:
            await self.complete(json.loads(body), send, chat="chat" in path)
        else:
            await respond_json(send, {"error": {"message": "Not Found"}}, 404)

    async def complete(self, request: dict[str, Any], send: Send, *, chat: bool) -> None:
        if request["model"] != self.name:
            message = f"The model `{request['model']}` does not exist."
            await respond_json(send, {"error": {"message": message}}, 404)
            return
        prompt = json.dumps(request["messages"]) if chat else str(request["prompt"])
        count = request.get("max_tokens") or 16
        usage = {"prompt_tokens": len(prompt.split()), "completion_tokens": count}
        self.running += 1
        try:
            if request.get("stream"):
                await self.stream(request, prompt, count, usage, send, chat=chat)
                return
            text = "".join([token async for token in self.tokens(prompt, count)])
            choice = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
            await respond_json(
                send, {"choices": [{"index": 0, "finish_reason": "length", **choice}], "usage": usage}
            )
        finally:
            self.running -= 1

    async def stream(
        self,
        request: dict[str, Any],
        prompt: str,
        count: int,
        usage: dict[str, int],
        send: Send,
        *,
        chat: bool,
    ) -> None:
        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [(b"content-type", b"text/event-stream")],
            }
        )
        number = 0
        async for token in self.tokens(prompt, count):
            number += 1
            piece = {"delta": {"content": token}} if chat else {"text": token}
            ended = "length" if number == count else None
            await send_event(send, json.dumps({"choices": [{"index": 0, "finish_reason": ended, **piece}]}))
        if (request.get("stream_options") or {}).get("include_usage"):
            await send_event(send, json.dumps({"choices": [], "usage": usage}))
        await send_event(send, "[DONE]")
        await send({"type": "http.response.body", "body": b""})

    async def tokens(self, prompt: str, count: int) -> AsyncIterator[str]:
        """Yield as many tokens; the same prompt has the same ones."""
        self.prompted += len(prompt.split())
        for number in range(count):
            token = f" {WORDS[sha256(f'{prompt} {number}'.encode()).digest()[0] % len(WORDS)]}"
            for rank in self.ranks:
                token = await rank.step.remote(token)
            await asyncio.sleep(TOKEN_S)
            self.generated += 1
            yield token

    def metrics(self) -> str:
        figures = {
            "num_requests_running": self.running,
            "num_requests_waiting": 0,
            "kv_cache_usage_perc": self.running / 64,
            "generation_tokens_total": self.generated,
            "prompt_tokens_total": self.prompted,
        }
        return "".join(f'vllm:{name}{{engine="0"}} {value}\n' for name, value in figures.items())


async def acknowledge_lifespan(receive: Callable[[], Awaitable[Message]], send: Send) -> None:
    while (message := await receive())["type"] != "lifespan.shutdown":
        await send({"type": f"{message['type']}.complete"})
    await send({"type": "lifespan.shutdown.complete"})


async def read_body(receive: Callable[[], Awaitable[Message]]) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            return bytes(body)


async def respond(send: Send, body: bytes, status: int = 200, kind: str = "text/plain") -> None:
    headers = [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def respond_json(send: Send, table: object, status: int = 200) -> None:
    await respond(send, json.dumps(table).encode(), status, "application/json")


async def send_event(send: Send, text: str) -> None:
    await send({"type": "http.response.body", "body": f"data: {text}\n\n".encode(), "more_body": True})
