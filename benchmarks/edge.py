"""Streamed tokens per second, and time to a first token, through the edge over the engine's own socket.

    python -m benchmarks.edge [PAIRS] [vllm|sglang] [MODEL] [--write]           # 20 pairs: about 15 minutes

One `medley serve MODEL` (default: smollm2) with a key runs, and the same engine is asked in turns by both
ways: through Caddy at its address, and at its socket. Each time 16 streams of 64 tokens run ROUNDS times
over, and then one stream at a time for the first tokens; a pair's ratio is of the rates. The interval is that
of the mean of the logarithms of the ratios (95 %, Student's t).
"""

import http.client
import json
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.estimates import mean_ratio
from medley import storage
from medley.command import Command
from medley.engine.server_spec import ServerSpec
from medley.errors import Problem
from medley.network.free_port import find_free_port
from medley.process import Process, wait_until
from medley.serving import server_records

RESULT = Path(__file__).parent / "results" / "edge.txt"
WAYS = ("edge", "socket")
STREAMS, TOKENS, ROUNDS, FIRSTS = 16, 64, 2, 20
MODELS = ("smollm2", "demo")
READY_LIMIT_S = 600
KEY = "sk-" + "0123456789abcdef" * 3


@dataclass(frozen=True)
class Server:
    port: int
    socket: Path
    model: str

    def connect(self, way: str) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        if way == "socket":
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.connect(str(self.socket))
        return connection

    def stream(self, way: str, number: int, tokens: int = TOKENS) -> tuple[int, float]:
        """Return the tokens of one answer, and the seconds until the first."""
        body = {"model": self.model, "prompt": f"Tell me {number}", "max_tokens": tokens, "temperature": 0}
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
        text = json.dumps(body | {"ignore_eos": True, "stream": True})
        with closing(self.connect(way)) as connection:
            began, first, count = time.monotonic(), 0.0, 0
            connection.request("POST", "/v1/completions", text, headers)
            for line in connection.getresponse():
                if line.startswith(b"data: {"):
                    first = first or time.monotonic() - began
                    count += 1
        return count, first

    def rate(self, way: str) -> float:
        began = time.monotonic()
        with ThreadPoolExecutor(STREAMS) as pool:
            done = sum(count for count, _ in pool.map(lambda n: self.stream(way, n), range(STREAMS * ROUNDS)))
        return done / (time.monotonic() - began)

    def first_token_s(self, way: str) -> float:
        return statistics.median(self.stream(way, number, 1)[1] for number in range(FIRSTS))


def main() -> None:
    pairs = next((int(word) for word in sys.argv[1:] if word.isdecimal()), 20)
    engine = next((word for word in sys.argv[1:] if word in {"vllm", "sglang"}), "vllm")
    model = next((word for word in sys.argv[1:] if word in MODELS), MODELS[0])
    lines = [
        f"$ python -m benchmarks.edge {pairs} {engine} {model}   # load {os.getloadavg()[0]:.1f} at its start"
    ]
    print(lines[0], flush=True)
    ratios: list[float] = []
    late_ms: list[float] = []
    with serve(engine, model) as server:
        for way in WAYS:
            server.rate(way)
        for pair in range(pairs):
            order = WAYS if pair % 2 == 0 else WAYS[::-1]
            rates = {way: server.rate(way) for way in order}
            firsts = {way: server.first_token_s(way) for way in order}
            ratios.append(rates["edge"] / rates["socket"])
            late_ms.append(1000 * (firsts["edge"] - firsts["socket"]))
            lines.append(
                f"pair {pair + 1}: {rates['edge']:.0f} and {rates['socket']:.0f} tokens/s, {ratios[-1]:.3f}; "
                f"first token {1000 * firsts['edge']:.1f} and {1000 * firsts['socket']:.1f} ms"
            )
            print(lines[-1], flush=True)
    lines += ["", verdict(engine, ratios, late_ms)]
    print(lines[-1])
    if "--write" in sys.argv:
        with RESULT.open("a", encoding="utf-8") as file:
            file.write("\n".join([*lines, "", ""]))


def verdict(engine: str, ratios: list[float], late_ms: list[float]) -> str:
    found = mean_ratio(ratios)
    late = statistics.median(late_ms)
    return (
        f"edge/socket, {engine}: {found.middle:.3f} ({found.low:.3f} to {found.high:.3f}) tokens/s; "
        f"the first token of one stream {late:+.1f} ms (median of {len(late_ms)} pairs)"
    )


@contextmanager
def serve(engine: str, model: str) -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as folder:
        key, port = Path(folder) / "key", find_free_port()
        key.write_text(KEY)
        os.environ["MEDLEY_STATE"] = str(Path(folder) / "state")
        words = ("serve", model, "--engine", engine, "--port", str(port), "--api-key", str(key))
        lines: list[str] = []
        medley = Process(Command((sys.executable, "-m", "medley", *words)), lines.append)
        try:
            wait_until(lambda: server_records.is_ready(port) or medley.poll(), READY_LIMIT_S, every_s=0.5)
            if not server_records.is_ready(port):
                raise Problem("the server is not ready", cause="\n".join(lines[-9:]), fix=" ".join(words))
            sockets = storage.find_socket_folder() / str(port)
            yield Server(port, ServerSpec("", model, port=port, socket_folder=sockets).socket, model)
        finally:
            medley.stop(grace_s=60)


if __name__ == "__main__":
    main()
