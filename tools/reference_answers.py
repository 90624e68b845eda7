"""Record the greedy answers of a model folder by transformers in float32; run by an engine's Python.

    "$(medley env path vllm-cpu)/bin/python" tools/reference_answers.py FOLDER ANSWERS.json

pysrc/medley/serving/answers.json keeps its conversations; each step of an answer becomes the token as text,
its log-probability, the best logit, and by how much it beat the second.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
import transformers

TOKENS = 16


def record(model: Any, tokenizer: Any, messages: list[dict[str, str]]) -> dict[str, Any]:
    """Return the first tokens of the answer, at most 16 and the end token among them."""
    prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)[
        "input_ids"
    ]
    steps, cache, fed = list[list[Any]](), None, torch.tensor([prompt])
    while len(steps) < TOKENS:
        with torch.inference_mode():
            out = model(fed, past_key_values=cache, use_cache=True)
        cache, logits = out.past_key_values, out.logits[0, -1].double()
        best = logits.topk(2)
        token = int(best.indices[0])
        if token == model.config.eos_token_id:
            break
        first, second = (float(each) for each in best.values)
        logprob = first - float(logits.logsumexp(0))
        numbers = (round(each, 4) for each in (logprob, first, first - second))
        steps.append([tokenizer.decode([token]), *numbers])
        fed = torch.tensor([[token]])
    return {"messages": messages, "steps": steps}


def main(folder: str, target: str) -> None:
    path = Path(target)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    known = json.loads(path.read_text(encoding="utf-8"))
    answers = [record(model, tokenizer, each["messages"]) for each in known]
    lines = ",\n".join(json.dumps(each, ensure_ascii=False) for each in answers)
    path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
