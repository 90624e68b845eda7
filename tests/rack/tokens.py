"""The greedy tokens of a served model, and how clear its choices are: equal ones are the same model.

`python -m tests.rack.matrix` records those of the demo model in float32, which both engines give alone.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from medley import config
from medley.model import demo
from medley.schema import DemoSpec
from tests.rack.host import Host

MODEL = "/tmp/home/model"
PROMPTS = (
    "seven north question The wire",
    "layer green bread switch stone",
    "The wire RTX",
    "slow The wire",
    "stone zu debe RTX fast The wire",
    "memory green",
    "A model seven",
    "cuju desk Two hosts A model",
)
"""Prompts to the demo model whose 32 greedy tokens have the largest margins."""
TOKENS = 32
RECORD = Path(__file__).with_name("tokens.json")
CLEAR_NATS = 0.02  # rounding in float32 moves a logprob by some 0.00001
ASK = f"""
import json, urllib.request
body = {{"model": "{MODEL}", "prompt": {list(PROMPTS)!r}, "max_tokens": {TOKENS}, "temperature": 0,
        "logprobs": 2, "return_token_ids": True}}
request = urllib.request.Request("http://127.0.0.1:8000/v1/completions", json.dumps(body).encode(),
                                 {{"Content-Type": "application/json"}})
choices = json.load(urllib.request.urlopen(request, timeout=240))["choices"]
print(json.dumps(sorted(choices, key=lambda each: each["index"])))
"""


@dataclass(frozen=True)
class Answer:
    tokens: list[list[int]]
    margin: float
    """The smallest distance between first and second choice, in nats."""


def recorded() -> list[list[int]]:
    """The tokens of each prompt, as one host gives them."""
    found: list[list[int]] = json.loads(RECORD.read_text())
    return found


def asked(host: Host) -> Answer:
    """What the server on this host says to the prompts."""
    choices = json.loads(host.says(sys.executable, "-c", ASK, limit_s=300))
    tops = [
        sorted(top.values(), reverse=True) for each in choices for top in each["logprobs"]["top_logprobs"]
    ]
    margin = min(first - second for first, second, *_ in tops)
    return Answer([each["token_ids"] for each in choices], margin)


def made() -> DemoSpec:
    """What the model is made of."""
    found = config.load_models()["demo"].made
    assert found is not None
    return found


def bring(host: Host) -> None:
    """The model to a host, as it was made."""
    folder = host.path(MODEL)
    folder.mkdir(exist_ok=True)
    demo.write_model(made(), folder)


def spoil(host: Host) -> None:
    """Zero the last layer's way back into the stream, which is a model with that layer's MLP left out."""
    with (host.path(MODEL) / "model.safetensors").open("r+b") as file:
        size = int.from_bytes(file.read(8), "little")
        name = f"model.layers.{made().layers - 1}.mlp.down_proj.weight"
        begin, end = json.loads(file.read(size))[name]["data_offsets"]
        file.seek(8 + size + begin)
        file.write(bytes(end - begin))
