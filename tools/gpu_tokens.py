"""Compare a server's greedy tokens with those of transformers in float32; run by an engine's Python.

    python gpu_tokens.py http://127.0.0.1:8000/v1 FOLDER [--only repetitive|prose]

Prints a line of JSON for each prompt: whether the texts are equal, and where not the distance of the two best
logits at the first other token. Below 0.25 bfloat16 decides by rounding.
"""

import argparse
import json
import urllib.request
from typing import Any

import torch
import transformers

PROMPTS = {
    "repetitive": "one two three four five, one two three four five, one two three four five, one two",
    "prose": "The largest planet of the solar system is",
    "code": "def add(first, second):\n    return",
    "list": "Days of the week: Monday, Tuesday,",
}
TOKENS = 32


def ask(url: str, prompt: str) -> str:
    with urllib.request.urlopen(f"{url}/models") as answer:
        model = json.load(answer)["data"][0]["id"]
    body = {"model": model, "prompt": prompt, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request) as answer:
        return str(json.load(answer)["choices"][0]["text"])


def reference(model: Any, tokenizer: Any, prompt: str) -> tuple[str, list[int], list[float]]:
    """Return the greedy text, its tokens, and the distance of the two best logits at each."""
    ids = tokenizer(prompt, return_tensors="pt").input_ids.to(model.device)
    first, distances = ids.shape[1], list[float]()
    for _ in range(TOKENS):
        with torch.no_grad():
            best = model(ids).logits[0, -1].float().topk(2)
        distances.append(float(best.values[0] - best.values[1]))
        ids = torch.cat([ids, best.indices[:1].view(1, 1)], dim=1)
    made = ids[0, first:].tolist()
    return tokenizer.decode(made), made, distances


def compare(
    tokenizer: Any, served: str, text: str, made: list[int], distances: list[float]
) -> dict[str, Any]:
    if served == text:
        return {"equal": True}
    same = next((at for at in range(len(made)) if not served.startswith(tokenizer.decode(made[: at + 1]))), 0)
    return {
        "equal": False,
        "tokens": same,
        "distance": round(distances[same], 3),
        "served": served,
        "text": text,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("url")
    parser.add_argument("folder")
    parser.add_argument("--only", choices=PROMPTS)
    asked = parser.parse_args()
    tokenizer = transformers.AutoTokenizer.from_pretrained(asked.folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(asked.folder, dtype=torch.float32)
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    for name in [asked.only] if asked.only else PROMPTS:
        served = ask(asked.url, PROMPTS[name])
        found = compare(tokenizer, served, *reference(model, tokenizer, PROMPTS[name]))
        print(json.dumps({"prompt": name, **found}), flush=True)


if __name__ == "__main__":
    main()
