"""A small program that behaves as an engine does: it listens late, answers, and fails on demand.

usage: engine_program.py PORT BEHAVIOUR
"""

import json
import sys
import threading
import time
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

requests: list[str] = []
PORT, BEHAVIOUR = int(sys.argv[1]), sys.argv[2]


def _words(messages: list[dict[str, str]]) -> Iterable[str]:
    """The same words to anything; a server that converses repeats what it was sent, or counts for long."""
    if BEHAVIOUR != "converses":
        return ("so ", "it ", "is")
    if messages[-1]["content"] == "count":
        return (f"{number} " for number in range(3000))
    return [" | ".join(each["content"] for each in messages)]


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._json({"data": [{"id": "tiny"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if BEHAVIOUR == "dies-at-first-request":
            print("(EngineCore pid=1) ERROR 11-21 08:01:33 [core.py:1] KeyError: 'cmpl-1'", flush=True)
            import os

            os._exit(3)
        if body["model"] != "tiny":
            self._json({"error": {"message": f"The model `{body['model']}` does not exist."}}, 404)
        elif body.get("stream"):
            self._stream(body)
        else:
            if BEHAVIOUR == "loses-a-rank":
                threading.Timer(
                    0.5, print, ["RayWorkerProc rank=[1] died unexpectedly"], {"flush": True}
                ).start()
            self._wait()
            is_chat = self.path.endswith("/chat/completions")
            choice = {"message": {"content": " ba lu"}} if is_chat else {"text": " ba lu"}
            self._json({"choices": [choice], "usage": {"completion_tokens": 2}})

    def _wait(self) -> None:
        """From the second completion on: sleep for ever or so many seconds, or use the CPU."""
        requests.append(self.path)
        if len(requests) > 1 and BEHAVIOUR == "hangs":
            time.sleep(3600)
        if len(requests) == 2 and BEHAVIOUR.startswith("waits-"):
            time.sleep(float(BEHAVIOUR.removeprefix("waits-")))
        if len(requests) == 2 and BEHAVIOUR.startswith("computes-"):
            end = time.monotonic() + float(BEHAVIOUR.removeprefix("computes-"))
            while time.monotonic() < end:
                pass

    def _json(self, table: object, status: int = 200) -> None:
        text = json.dumps(table).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _stream(self, body: dict[str, Any]) -> None:
        self.send_response(200)
        self.end_headers()
        if BEHAVIOUR == "converses":
            self._event({"choices": [{"delta": {"reasoning": "(thinking) "}}]})
        for word in _words(body["messages"]):
            self._event({"choices": [{"delta": {"content": word}}]})
            time.sleep(0.02)
        if BEHAVIOUR == "converses" and body.get("max_tokens"):
            self._event({"choices": [{"delta": {}, "finish_reason": "length"}]})
        if BEHAVIOUR == "breaks-off":
            self._event({"error": {"message": "engine is gone"}})
        elif body.get("stream_options"):
            self._event({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 3}})
        self.wfile.write(b"data: [DONE]\n\n")

    def _event(self, table: object) -> None:
        self.wfile.write(f"data: {json.dumps(table)}\n\n".encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


print("starting", flush=True)
if BEHAVIOUR == "never-ready":
    time.sleep(60)
if BEHAVIOUR == "dies-at-start":
    print("RuntimeError: Engine core initialization failed. See root cause above.", flush=True)
    sys.exit(4)
time.sleep(0.05)
ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
