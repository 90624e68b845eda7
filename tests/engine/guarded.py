"""Run a real uvicorn behind the guard, in an engine environment's Python: `guarded.py PORT FOLDER`."""

import sys
from typing import Any

sys.path.insert(0, sys.argv[2])

import api_guard
import uvicorn


async def application(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    parts = 20_000 if scope["path"] == "/stream" else 1
    for number in range(parts):
        await send({"type": "http.response.body", "body": b"x" * 16_384, "more_body": number < parts - 1})


api_guard.HEAD_S, api_guard.BODY_S, api_guard.STALL_S, api_guard.STRANGER_S = 2.0, 2.0, 3.0, 4.0
api_guard.install()
uvicorn.Server(uvicorn.Config(application, "127.0.0.1", int(sys.argv[1]), log_level="critical")).run()
