"""Ask a running server through clients' own packages: chat, stream, tool calls, requests that are too long.

    python -m benchmarks.clients --url http://127.0.0.1:8000/v1 --folder /tmp/clients [CLIENT…]

Each client gets a virtualenv of its own below the folder, with its newest release. A key is taken from
MEDLEY_API_KEY. It prints what each client asked and what came back, as in benchmarks/results/clients.txt.
"""

import argparse
import json
import os
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CLIENTS: dict[str, dict[str, str]] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)
_SHOWN = 240
_HEAD = """
import os
URL, ROOT, MODEL, KEY, QUESTION, WORDS = (os.environ[f"TRY_{name}"] for name in
                                          ("URL", "ROOT", "MODEL", "KEY", "QUESTION", "WORDS"))
LONG = "word " * int(WORDS)
def attempt(name, question):
    try:
        said = str(question())
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    print(f"{name}:", " ".join(said.split())[:SHOWN])
"""


def card(url: str) -> dict[str, Any]:
    """Return the first model of a server."""
    with urllib.request.urlopen(f"{url}/models", timeout=10) as answer:
        found: dict[str, Any] = json.load(answer)["data"][0]
    return found


def ask(python: Path, script: str, url: str, key: str) -> Iterator[str]:
    """Yield what a client's script prints, line by line."""
    model = card(url)
    given = {
        "URL": url,
        "ROOT": url.removesuffix("/v1"),
        "MODEL": model["id"],
        "KEY": key,
        "WORDS": str(int(model["max_model_len"]) + 500),
        "QUESTION": "What is the capital of France?",
    }
    environ = {**os.environ, **{f"TRY_{name}": value for name, value in given.items()}, "DO_NOT_TRACK": "1"}
    text = f"SHOWN = {_SHOWN}\n{_HEAD}\n{script}"
    with subprocess.Popen(
        [python, "-u", "-W", "ignore", "-c", text],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environ,
    ) as process:
        yield from (process.stdout or ())
        said = (process.stderr or sys.stdin).read()
        if process.wait():
            yield f"ended with {process.returncode}: {said[-600:]}"


def main() -> None:
    """Install each client that lacks its virtualenv, and ask."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--folder", required=True, type=Path)
    parser.add_argument("clients", nargs="*", default=list(CLIENTS))
    asked = parser.parse_args()
    key = os.environ.get("MEDLEY_API_KEY", "none")  # no switch, because every user can read a command's words
    for name in asked.clients:
        home, package = asked.folder / name, CLIENTS[name]["package"]
        python = home / "bin" / "python"
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", home], check=True)
            subprocess.run([python, "-m", "pip", "install", "-q", package], check=True)
        bare = package.partition("[")[0]
        version = f"from importlib.metadata import version; print(version({bare!r}))"
        shown = subprocess.run([python, "-c", version], capture_output=True, text=True, check=True)
        print(f"{bare} {shown.stdout.strip()}", flush=True)
        for line in ask(python, CLIENTS[name]["script"], asked.url, key):
            print(f"  {line.rstrip()}", flush=True)


if __name__ == "__main__":
    main()
