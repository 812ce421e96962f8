"""Time the write of a hashed table against AdamW's update of the same table, with 5% of its rows visited.

Run it as `python tests/benchmarks/tables.py`. Peers are interleaved in one process, on one thread; ratios are of
median CPU times. AdamW is torch's fused one on a dense gradient; the write is given a sparse gradient, as a model with
`tables.sparse` gives it in the training loop, and has to keep to the limit; a dense one is shown beside it. The
backward passes of both kinds of gradient are timed as well.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

from gllm_lib.models import HashedTables
from gllm_lib.models.tables import Tables
from gllm_lib.optim.tables import TableWrite

ROWS, COLUMNS, SHARE = 150_855, 96, 0.05  # the printed table at depth 6
ROUNDS = 15
LIMIT = 0.5


def medians(peers: dict[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """Return the median of the seconds that each peer returns, over interleaved rounds, after one to warm up."""
    seconds: dict[str, list[float]] = {name: [] for name in peers}
    for turn in range(rounds + 1):
        for name, peer in peers.items():
            taken = peer()
            if turn:
                seconds[name].append(taken)
    return {name: statistics.median(values) for name, values in seconds.items()}


def timed(action: Callable[[], object]) -> float:
    """Return the CPU seconds an action takes; on one thread they do not feel what else runs."""
    start = time.process_time()
    action()
    return time.process_time() - start


def writes(dtype: torch.dtype, sparse: bool) -> Callable[[], float]:
    """Return a peer that times one write, and prepares gradient and counts before it."""
    rows = torch.randperm(ROWS, generator=torch.Generator().manual_seed(1))[: int(SHARE * ROWS)].sort().values
    table = torch.nn.Parameter(torch.zeros(ROWS, COLUMNS, dtype=dtype))
    counts, values = torch.zeros(ROWS, dtype=torch.int32), torch.randn(len(rows), COLUMNS).to(dtype)
    held = torch.sparse_coo_tensor(rows[None], values, table.shape, is_coalesced=True, check_invariants=False)
    table.grad = held if sparse else held.to_dense()
    write = TableWrite([(table, counts)], 0.1)

    def peer() -> float:
        counts[rows] = 2
        return timed(write.step)

    return peer


def adamw(dtype: torch.dtype) -> Callable[[], float]:
    """Return a peer that times one dense step of AdamW on the same table."""
    table = torch.nn.Parameter(torch.zeros(ROWS, COLUMNS, dtype=dtype))
    table.grad = torch.randn(ROWS, COLUMNS).to(dtype)
    optimizer = torch.optim.AdamW([table], lr=0.1, fused=True)
    return lambda: timed(optimizer.step)


def backward(dtype: torch.dtype, sparse: bool) -> Callable[[], float]:
    """Return a peer that times a backward pass through one bigram table, of as many positions as visits above."""
    storage = "bfloat16" if dtype == torch.bfloat16 else "float32"
    tables = Tables(HashedTables(ROWS, order=2, copies=1, storage=storage), 8192, COLUMNS)
    tables.fill()
    tables.sparse = sparse
    tokens = torch.randint(8192, (8, int(SHARE * ROWS) // 8), generator=torch.Generator().manual_seed(2))

    def peer() -> float:
        tables.zero_grad()
        total = tables(tokens).float().sum()
        return timed(total.backward)

    return peer


def main() -> None:
    """Print one line per type and leave with an error if a write exceeds its limit."""
    torch.set_num_threads(1)
    worst = 0.0
    print(f"one table of {ROWS:,} rows and {COLUMNS} columns, {SHARE:.0%} of the rows visited")
    print("    type   AdamW (ms)   write / AdamW   of a dense gradient   backward, sparse / dense")
    for dtype in (torch.float32, torch.bfloat16):
        peers = {"adamw": adamw(dtype), "sparse": writes(dtype, True), "dense": writes(dtype, False)}
        peers |= {"back sparse": backward(dtype, True), "back dense": backward(dtype, False)}
        median = medians(peers, ROUNDS)
        both = [median[name] / median["adamw"] for name in ("sparse", "dense")]
        back = median["back sparse"] / median["back dense"]
        kind = str(dtype).removeprefix("torch.")
        print(f"{kind:>8}   {median['adamw'] * 1e3:10.1f}   {both[0]:13.3f}   {both[1]:19.3f}   {back:24.3f}")
        worst = max(worst, both[0])
    if worst > LIMIT:
        raise SystemExit(f"a write took {worst:.2f} of AdamW's step; the limit is {LIMIT:g}")


if __name__ == "__main__":
    main()
