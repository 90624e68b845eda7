"""The limits of a model: into how many parts it can be cut, and why not into others."""

from collections.abc import Iterator

from medley.layout.need import padded_vocabulary
from medley.layout.width import BLOCK, known_feed_forward
from medley.tables import Shape


def refusals(shape: Shape, tensor: int, *, expert_parallel: bool = False) -> tuple[str, ...]:
    """Why its layers cannot be spread over so many devices; none where they can."""
    return tuple(_refusals(shape, tensor, expert_parallel=expert_parallel)) if tensor > 1 else ()


def too_many_stages(shape: Shape, stages: int) -> str | None:
    if stages <= shape.layers:
        return None
    return f"{stages} stages are more than its {shape.layers} layers"


def _refusals(shape: Shape, tensor: int, *, expert_parallel: bool) -> Iterator[str]:
    if shape.heads % tensor:
        yield f"{shape.heads} attention heads are no multiple of {tensor}"
    # MLA has one latent for all heads, whatever its table calls KV heads.
    split = shape.kv_heads % tensor == 0 or tensor % shape.kv_heads == 0
    if shape.kv_bytes_per_token is None and not split:
        yield f"{shape.kv_heads} KV heads neither divide by {tensor} nor divide it"
    if padded_vocabulary(shape) % tensor:
        yield f"a vocabulary of {padded_vocabulary(shape)} (padded to 64) is no multiple of {tensor}"
    if expert_parallel:
        if shape.experts % tensor:
            yield f"{shape.experts} experts are no multiple of {tensor}"
        return
    block, inner = BLOCK.get(shape.weights), known_feed_forward(shape)
    if block and inner and inner % (tensor * block):
        what = "an expert's" if shape.experts else "the feed-forward part's"
        yield f"{what} {inner} rows over {tensor} are no multiple of {shape.weights}'s block of {block}"
