"""Odd requests of a host without the key: their answers, their cost, and a client with the key meanwhile.

    python -m benchmarks.odd_requests [COUNT] [vllm|sglang] [--seed N] [--write]     as root; 10,000 requests

Two hosts (namespaces of this machine, tests/rack). The first runs `medley serve demo --host 0.0.0.0` with a
key. The second sends COUNT requests without it, CONNECTIONS at a time: real ones of both APIs, mutated by
seed, raw bytes, other protocols, upgrades, heads and trailers and bodies that go on for megabytes or stop.
Each status is counted, and the request line of each answer that is 200 is kept.

A client with the key, also on the second host, asks for one token again and again, in slices with and
without the odd requests in turns. Results: that no 200 is for another path than /health; how much the memory
of edge and engine grew (private pages, in MiB; goal: below 50); the median first token with odd requests over
that without (goal: at most 2).
"""

import argparse
import http.client
import json
import os
import posixpath
import re
import socket
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from http import HTTPStatus
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import unquote

import psutil

from medley.command import Command
from medley.process import Process
from tests.odd_input import blobs
from tests.rack.cluster import STATE, served
from tests.rack.host import Host
from tests.rack.rack import up
from tests.rack.spec import Spec

ROOT = Path(__file__).parents[1]
RESULT = Path(__file__).parent / "results" / "odd_requests.txt"
PORT, CONNECTIONS, SLICES, QUIET_ASKED = 8000, 16, 10, 40
ANSWER_S = 2.0
LONGEST = 4 << 20
BODY = '{"model": "demo", "prompt": "a", "messages": [{"role": "user", "content": "a"}]}'
PATHS = (
    *("/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses", "/v1/models", "/metrics"),
    *("/health", "/HEALTH", "//health", "/health/../metrics", "/%68ealth", "/pause", "/v1/models/demo"),
)
HEADERS = (
    *(
        "Authorization: Bearer sk-x",
        "x-api-key: *",
        "Authorization: Bearer {env.HOME}",
        "Expect: 100-continue",
    ),
    *("Upgrade: websocket\r\nConnection: Upgrade", "Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings"),
    *(
        "Transfer-Encoding: chunked",
        "Transfer-Encoding: x, chunked",
        "Content-Length: 0",
        "Content-Length: -1",
    ),
    *("X-Forwarded-For: 127.0.0.1", "Host: b", "Origin: null", "Connection: close", "Range: bytes=0-"),
)
OTHER_PROTOCOLS = (
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
    b"SSH-2.0-x\r\n",
    b"GET /health\r\n",
    b"CONNECT 127.0.0.1:22 HTTP/1.1\r\n\r\n",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "words", nargs="*", help="COUNT and ENGINE; of the second host: ask COUNT, or attack SEED COUNT"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--at", help="the server's address, on the second host")
    options = parser.parse_args()
    match options.words:
        case ["ask", count]:
            print(*ask(options.at, int(count)))
            return
        case ["attack", seed, count]:
            print(json.dumps(attack(options.at, int(seed), int(count))))
            return
        case _:
            pass
    numbers = [int(word) for word in options.words if word.isdecimal()]
    engine = next((word for word in options.words if not word.isdecimal()), "vllm")
    lines = [*measure(numbers[0] if numbers else 10_000, engine, options.seed), ""]
    if options.write:
        with RESULT.open("a", encoding="utf-8") as file:
            file.write("\n".join([*lines, ""]))


def measure(count: int, engine: str, seed: int) -> Iterator[str]:
    """Yield the lines of a result, and print each when it is known."""

    def said(line: str) -> str:
        print(line, flush=True)
        return line

    yield said(f"$ python -m benchmarks.odd_requests {count} {engine} --seed {seed}")
    statuses: Counter[str] = Counter()
    lines_of_200: set[str] = set()
    quiet_s: list[float] = []
    attacked_s: list[float] = []
    with up(Spec(2, name=f"odd-{os.getpid()}")) as rack:
        head, other = rack.hosts
        server = served(head, "--engine", engine, "--host", "0.0.0.0")
        client = Client(other, head.address, head.path(f"{STATE}/api-key").read_text())
        client.first_tokens(QUIET_ASKED)  # the engine's first answers are slower
        before = memory_mib(server.process.pid)
        for number in range(SLICES):
            quiet_s += client.first_tokens(QUIET_ASKED)
            attack = client.start("attack", str(seed + number), str(count // SLICES))
            while attack.poll() is None:
                attacked_s += client.first_tokens(10)
            found = json.loads(attack.last_lines[-1])
            statuses.update(found["statuses"])
            lines_of_200 |= set(found["lines of 200"])
        time.sleep(15)  # connections that were left open are closed
        after = memory_mib(server.process.pid)
    yield said(f"answers: {', '.join(f'{status} {number}' for status, number in statuses.most_common())}")
    wrong = sorted(line for line in lines_of_200 if not is_health(line))
    yield said(
        f"answered 200 and not for /health: {wrong or 'none'}; for it: {len(lines_of_200)} kinds of lines"
    )
    grown = ", ".join(f"{name} {before[name]:.0f} to {after[name]:.0f} MiB" for name in before)
    yield said(f"memory: {grown}")
    ratio = statistics.median(attacked_s) / statistics.median(quiet_s)
    worst = max(attacked_s) / statistics.median(quiet_s)
    yield said(
        f"first token of the client with the key, with odd requests over without: {ratio:.2f} "
        f"(medians of {len(attacked_s)} and {len(quiet_s)}; the slowest {worst:.1f})"
    )


class Client:
    """The programs of this file on the second host."""

    def __init__(self, host: Host, address: str, key: str) -> None:
        self.host, self.address, self.key = host, address, key

    def start(self, *words: str) -> Process:
        argv = (sys.executable, "-m", "benchmarks.odd_requests", *words, "--at", self.address)
        return self.host.start(Command(argv, {"KEY": self.key}), folder=str(ROOT))

    def first_tokens(self, count: int) -> list[float]:
        """Return the seconds until the first token of each of `count` requests, one after another."""
        asking = self.start("ask", str(count))
        finished = asking.wait(120)
        if finished is None or finished.status:
            raise AssertionError(asking.last_lines)
        return [float(word) for word in finished.lines[-1].split()]


def memory_mib(pid: int) -> dict[str, float]:
    """Return the private memory of the edge, and of the engine's processes."""
    found = {"edge": 0.0, "engine": 0.0}
    for process in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it has ended
            command = " ".join(process.cmdline())
            group = "edge" if "caddy run" in command else "engine" if "-m medley" not in command else None
            if group:
                found[group] += process.memory_full_info().uss / (1 << 20)
    return found


def is_health(line: str) -> bool:
    """Whether a request line asks for /health: Caddy cleans a path before it compares it."""
    words = line.split()
    if len(words) < 2 or words[0] not in {"GET", "HEAD"}:  # noqa: PLR2004 - method and target
        return False
    path = re.sub(r"^https?://[^/]*", "", words[1], flags=re.IGNORECASE).partition("?")[0]
    return posixpath.normpath(unquote(path)).lower().lstrip("/") == "health"


def ask(address: str, count: int) -> list[float]:
    """Stream one token `count` times; returns the seconds until each came."""
    found = []
    for number in range(count):
        with closing(http.client.HTTPConnection(address, PORT, timeout=60)) as connection:
            body = {"model": "demo", "prompt": f"Tell {number}", "max_tokens": 1, "stream": True}
            headers = {"Content-Type": "application/json", "Authorization": f"Bearer {os.environ['KEY']}"}
            began = time.monotonic()
            connection.request("POST", "/v1/completions", json.dumps(body), headers)
            answer = connection.getresponse()
            if answer.status != HTTPStatus.OK:
                raise AssertionError(answer.status, answer.read())
            answer.readline()
            found.append(time.monotonic() - began)
            answer.read()
    return found


def attack(address: str, seed: int, count: int) -> dict[str, Any]:
    """Send odd requests; returns how often each status came, and the request lines of those that were 200."""
    statuses: Counter[str] = Counter()
    lines: set[str] = set()

    def sent(data: bytes) -> None:
        status = send(address, data)
        statuses[status] += 1
        if status == "200":
            lines.add(data.partition(b"\r\n")[0].decode("latin-1")[:200])

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        for _ in pool.map(sent, islice(requests(seed), count)):
            pass
    return {"statuses": dict(statuses), "lines of 200": sorted(lines)}


def requests(seed: int) -> Iterator[bytes]:
    """Yield odd requests without end; each begins with its own request line, if it has one."""
    random = Random(seed)
    mutated = blobs([request(random) for _ in range(300)], seed)
    while True:
        match random.randrange(10):
            case 0:
                yield random.choice(OTHER_PROTOCOLS)
            case 1:
                yield random.randbytes(random.randint(0, 3000))
            case 2:
                yield endless(random)
            case 3 | 4 | 5:
                yield request(random)
            case _:
                yield next(mutated)[:LONGEST]


def request(random: Random) -> bytes:
    method = random.choice(("GET", "POST", "POST", "HEAD", "OPTIONS", "PUT", "TRACE", "get"))
    target = random.choice(("", "", "", "http://127.0.0.1:8000")) + random.choice(PATHS)
    target += random.choice(("", "", "?key=sk-x", ";x", "%00", "/", "#x"))
    lines = [f"{method} {target} HTTP/1.{random.choice('1111109')}", "Host: a"]
    lines += random.sample(HEADERS, random.randint(0, 3))
    body = random.choice(("", BODY, "5\r\nhello\r\n0\r\n\r\n"))
    if body and random.random() < 0.7:  # noqa: PLR2004 - a share
        lines.append(f"Content-Length: {len(body)}")
    return ("\r\n".join(lines) + "\r\n\r\n" + body).encode("latin-1")


def endless(random: Random) -> bytes:
    """Return a head, a body or trailers that go on for LONGEST bytes, or stop in the middle."""
    size = random.choice((100, 70_000, LONGEST))
    start = f"{random.choice(('GET', 'POST'))} {random.choice(PATHS)} HTTP/1.1\r\nHost: a\r\n".encode()
    chunked = start + b"Transfer-Encoding: chunked\r\n\r\n"
    line = b"X-Long: " + b"a" * 1000 + b"\r\n"
    match random.randrange(4):
        case 0:
            return start + line * (size // len(line))
        case 1:
            return chunked + b"1\r\na\r\n0\r\n" + line * (size // len(line))
        case 2:
            return chunked + b"400\r\n" + b"a" * size
        case _:
            return start + b"Content-Length: 999999999\r\n\r\n" + b"a" * size


def send(address: str, data: bytes) -> str:
    """Send raw bytes; returns the status of the first answer, or how the connection ended."""
    try:
        with socket.create_connection((address, PORT), timeout=ANSWER_S) as connection:
            with suppress(OSError):  # the answer may come before the end of the bytes
                connection.sendall(data)
            answer = connection.recv(64)
    except TimeoutError:
        return "no answer"
    except OSError:
        return "closed"
    match = re.match(rb"HTTP/1\.[01] (\d{3})", answer)
    return match[1].decode() if match else "closed" if not answer else "no HTTP"


if __name__ == "__main__":
    main()
