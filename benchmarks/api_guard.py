"""Streamed tokens per second through the guard before an engine's API, over the same engine without it.

    .venv/bin/python benchmarks/api_guard.py [PAIRS] [vllm|sglang]           # 20 pairs: about 5 minutes

Both servers run at once on this machine and are asked in turns, the bare one first, then the guarded one. The
guarded one is what `serve --dry-run --json` prints, with a key; the bare one the same without the guard's
program, with the engine's own check of the same key. Each time 16 streams of 64 tokens run ROUNDS times over;
a pair's ratio is of their rates. The interval is that of the mean of the ratios' logarithms (95 %, Student's
t for 20 pairs).
"""

import http.client
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from medley import config, storage
from medley.model import resolve

PAIRS = next((int(word) for word in sys.argv[1:] if word.isdecimal()), 20)
ENGINE = next((word for word in sys.argv[1:] if word.isalpha()), "vllm")
PORTS = {"bare": 8766, "guarded": 8765}
STREAMS, TOKENS, ROUNDS = 16, 64, 10
READY_LIMIT_S = 300
T_19 = 2.093
"""Student's t at 97.5 %, for 20 pairs."""


def main() -> None:
    resolve.ready(resolve.weights("demo", config.models(), storage.cache()))
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        secret = Path(folder) / "key"
        secret.write_text("0123456789abcdef" * 4)
        secret.chmod(0o600)
        for way, port in PORTS.items():
            stack.enter_context(serving(*command(way, port, secret), port, secret.read_text()))
        for port in PORTS.values():
            rate(port, secret.read_text())
        logs = list(compared(secret.read_text()))
    middle, error = statistics.mean(logs), statistics.stdev(logs) / math.sqrt(len(logs))
    low, high = (math.exp(middle + sign * T_19 * error) for sign in (-1, 1))
    median = math.exp(statistics.median(logs))
    print(f"\nguarded/bare, {ENGINE}: {math.exp(middle):.3f} ({low:.3f} to {high:.3f}), median {median:.3f}")


def compared(key: str) -> Iterator[float]:
    """The logarithm of each pair's ratio."""
    for pair in range(PAIRS):
        order = tuple(PORTS) if pair % 2 == 0 else tuple(reversed(PORTS))
        found = {way: rate(PORTS[way], key) for way in order}
        ratio = found["guarded"] / found["bare"]
        rates = f"{found['guarded']:.0f} and {found['bare']:.0f} tokens/s"
        print(f"pair {pair + 1}: {rates}, {ratio:.3f}", flush=True)
        yield math.log(ratio)


def command(way: str, port: int, secret: Path) -> tuple[list[str], Mapping[str, str]]:
    """What medley would start, or the same without the guard."""
    words = ("serve", "demo", "--engine", ENGINE, "--port", str(port), "--api-key", str(secret))
    asked = [sys.executable, "-m", "medley", *words, "--dry-run", "--json"]
    said = json.loads(subprocess.check_output(asked, stderr=subprocess.DEVNULL).splitlines()[-1])
    python, guard, program, *rest = said["argv"]
    bare = [str(Path(python).parent / program), *rest]
    argv = [python, guard, program, *rest] if way == "guarded" else bare
    keys = dict.fromkeys(("VLLM_API_KEY", "MEDLEY_GUARD_KEY"), secret.read_text())
    if ENGINE == "sglang":
        config = secret.with_name(f"{way}.yaml")
        config.write_text(f"api-key: {secret.read_text()}\n")
        at = argv.index("--config")
        argv[at + 1] = str(config)
    kept = {name: value for name, value in os.environ.items() if name not in said["unset"]}
    return argv, kept | said["env"] | keys


@contextmanager
def serving(argv: Sequence[str], env: Mapping[str, str], port: int, key: str) -> Iterator[None]:
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(argv, env=dict(env), stdout=log, stderr=log, process_group=0)
        try:
            deadline = time.monotonic() + READY_LIMIT_S
            while not answers(port, key):
                if process.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    sys.exit(log.read().decode(errors="replace")[-3000:])
                time.sleep(0.5)
            yield
        finally:
            process.terminate()
            process.wait(60)


def answers(port: int, key: str) -> bool:
    try:
        return tokens(port, key, 0) > 0
    except (OSError, http.client.HTTPException):
        return False


def rate(port: int, key: str) -> float:
    began = time.monotonic()
    with ThreadPoolExecutor(STREAMS) as pool:
        done = sum(pool.map(lambda number: tokens(port, key, number), range(STREAMS * ROUNDS)))
    return done / (time.monotonic() - began)


def tokens(port: int, key: str, number: int) -> int:
    """Pieces of one streamed answer, a token each."""
    body = {"model": "demo", "prompt": f"Tell me {number}", "max_tokens": TOKENS, "temperature": 0}
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        text = json.dumps(body | {"ignore_eos": True, "stream": True})
        connection.request("POST", "/v1/completions", text, headers)
        answer = connection.getresponse()
        return sum(line.startswith(b"data: {") for line in answer)
    finally:
        connection.close()


if __name__ == "__main__":
    main()
