"""The pool's table says in which slot of the KV cache each token of each request lies."""

import torch
from torch import Tensor


def assign_req_to_token_pool_cpu(  # noqa: PLR0917 - as SGLang calls it
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    start_offset: Tensor,
    end_offset: Tensor,
    out_cache_loc: Tensor,
    pool_len: int,
) -> None:
    """Write each request's new slots into its row, from its start to before its end; they stand in one list.

    `pool_len` is the length of a row, which a tensor of two dimensions knows by itself.
    """
    del pool_len
    counts = (end_offset - start_offset).to(torch.int64)
    rows = req_pool_indices.to(torch.int64).repeat_interleave(counts)
    # A slot's column: its place in the list, less where its request begins there, plus where it starts.
    shifts = start_offset.to(torch.int64) - (counts.cumsum(0) - counts)
    places = torch.arange(rows.numel(), device=rows.device)
    columns = places + shifts.repeat_interleave(counts)
    req_to_token[rows, columns] = out_cache_loc[: rows.numel()].to(req_to_token.dtype)
