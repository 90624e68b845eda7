"""What `medley serve` says once its server answers: where it is, and what to type next."""

import json
import os
from shlex import quote
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from medley import api
    from medley.engine import Serving


def url(listens: "Serving") -> str:
    """Where this host itself reaches the server."""
    everywhere = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 - compared, not bound
    address = everywhere.get(listens.address, listens.address)
    return f"http://{address}:{listens.port}/v1"


def ready(
    where: str, listens: "Serving", completion: "api.Completion", seconds: float, *, as_json: bool
) -> None:
    model, key = listens.name, listens.key
    if as_json:
        print(
            json.dumps({"url": where, "model": model, "pid": os.getpid(), "key": str(key) if key else None}),
            flush=True,
        )
        return
    header = f""" -H "Authorization: Bearer $(cat {quote(str(key))})\"""" if key else ""
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "Hello"}]})
    print(
        f"\nready after {seconds:.0f} s: {model} at {where}, and it answered {completion.text!r}\n\n"
        f"    curl {where}/chat/completions -H 'Content-Type: application/json'{header} -d '{body}'\n"
        f'    medley ask "Hello"\n\nCtrl-C ends it.\n',
        flush=True,
    )
