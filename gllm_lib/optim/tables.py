"""The moment-free write of hashed tables (OE Sec. 2.1): mean gradient per visit, over its root mean square.

R rows of a table, W its columns, r rows visited in a step
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from gllm_lib.checks import InputError, InputTypeError, choose, count, real
from gllm_lib.optim.prepolar import homotopy, neumann_whiten

FLOOR = 1e-30  # of the root mean square (OE Sec. 2.1)
MOST_SEED = 2**31 - 1
Rounding = Literal["nearest", "stochastic"]


class TableWrite(torch.optim.Optimizer):
    """E_r <- storage(E_r - lr g_r / n_r / R) for each row r with n_r > 0 visits; then the counts are zero again.

    R is the root mean square of g_r / n_r over the visited rows and the columns of a table, at least 1e-30; rows not
    visited keep their bits. `tables` are pairs of a parameter (R, W) and its counts (R,), as `model.tables.pairs()`
    gives. A step needs gradients and counts of the same backward passes, those of all its micro-batches: call
    `zero_grad` before the first. A factor of gradients or counts changes no write: leave tables out of a gradient clip.

    - rounding: "nearest" (OE is silent) or, for bfloat16, "stochastic": up or down in proportion, from `seed`
    - neumann: whiten g_r / n_r over the visited rows (OE Sec. 4.3), ramped over as many steps; None does not
    - first: the t of the ramp's first step, 0 or 1
    """

    def __init__(
        self,
        tables: Iterable[tuple[nn.Parameter, Tensor]],
        lr: float,
        *,
        rounding: Rounding = "nearest",
        seed: int = 0,
        neumann: int | None = None,
        first: int = 0,
    ) -> None:
        pairs = [_pair(each) for each in tables]
        if not pairs:
            raise InputError("there are no tables; give pairs of a table and its counts, as model.tables.pairs() does")
        choose("rounding", rounding, get_args(Rounding))
        self._counts = [counts for _, counts in pairs]  # not in the groups: load_state_dict would copy them
        self._rounding, self._seed = rounding, count("seed", seed, 0, MOST_SEED)
        self._neumann = None if neumann is None else count("neumann", neumann, 0)
        self._first = count("first", first, 0, 1)
        super().__init__([table for table, _ in pairs], {"lr": real("lr", lr, least=0.0)})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Take all tables once; raises InputError for one added later, which would have no counts."""
        if self.param_groups:
            raise InputError("a table added later has no counts; give all pairs when the optimizer is made")
        super().add_param_group(param_group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget gradients and counts."""
        super().zero_grad(set_to_none)
        for counts in self._counts:
            counts.zero_()

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Write all tables, or none: raises InputError for a gradient that is not finite or does not fit its counts."""
        with torch.enable_grad():
            loss = None if closure is None else closure()
        lr, writes = real("lr", self.param_groups[0]["lr"], least=0.0), []
        for j, (table, counts) in enumerate(zip(self.param_groups[0]["params"], self._counts, strict=True)):
            done = int(self.state[table].get("step", 0))
            rows_r, sums_rW = visited(table.grad, counts)
            wide = torch.promote_types(table.dtype, torch.float32)
            sums_rW, visits_r1 = sums_rW.to(wide), counts.index_select(0, rows_r)[:, None].to(wide)
            if self._neumann is not None and len(rows_r):
                sums_rW = neumann_whiten(sums_rW / visits_r1, homotopy(done + self._first, self._neumann))
                visits_r1 = torch.ones_like(visits_r1)
            fresh_rW = table.index_select(0, rows_r).to(wide)  # a copy, ten times faster than table[rows_r]
            if len(rows_r):
                fresh_rW.addcdiv_(sums_rW, visits_r1, value=-lr / root_mean_square(sums_rW, visits_r1))
            writes.append((table, counts, rows_r, rounded(fresh_rW, table.dtype, self._source(j, done)), done + 1))
        for table, counts, rows_r, fresh_rW, done in writes:
            table[rows_r] = fresh_rW
            self.state[table]["step"] = torch.tensor(done)
            counts.zero_()
        return loss

    def _source(self, table: int, step: int) -> torch.Generator | None:
        seed = ((self._seed * 1009 + table) * 1_000_000_007 + step) % 2**63
        return None if self._rounding == "nearest" else torch.Generator().manual_seed(seed)


def root_mean_square(sums_rW: Float[Tensor, "r W"], visits_r1: Float[Tensor, "r 1"]) -> float:
    """Return R, the root mean square of g / n, at least 1e-30; raises InputError for a gradient that is not finite."""
    size = sums_rW.numel() ** 0.5
    rows_r1 = torch.linalg.vector_norm(sums_rW, dim=1, keepdim=True) / visits_r1
    root = float(torch.linalg.vector_norm(rows_r1, dtype=torch.float64)) / size
    if not 1e-18 < root < 1e18:  # near the ends of float32 squares are lost
        root = float(torch.linalg.vector_norm(sums_rW.double() / visits_r1)) / size
    if not root < float("inf"):
        raise InputError("the gradient of a table is not finite; go back to a checkpoint from before the run diverged")
    return max(root, FLOOR)


def rounded(value: Tensor, dtype: torch.dtype, generator: torch.Generator | None = None) -> Tensor:
    """Return `value` in `dtype`: to nearest, or, with a `generator` and bfloat16, up or down in proportion."""
    if generator is None or dtype != torch.bfloat16:
        return value.to(dtype)
    noise = torch.randint(2**16, value.shape, dtype=torch.int32, generator=generator)
    bits = value.float().view(torch.int32) + noise & -(2**16)  # bfloat16 is the upper half of float32
    return bits.view(torch.float32).to(dtype)


def visited(gradient: Tensor | None, counts: Int[Tensor, " R"]) -> tuple[Int[Tensor, " r"], Float[Tensor, "r W"]]:
    """Return the rows with visits and their gradients; raises InputError if a sparse gradient has other rows."""
    rows = counts.nonzero().flatten()
    if gradient is not None and not gradient.is_sparse:
        return rows, gradient.index_select(0, rows)
    held = None if gradient is None else gradient.coalesce()
    if not torch.equal(rows, rows[:0] if held is None else held.indices()[0]):
        raise InputError(
            "counts and gradient of a table are of other backward passes; call zero_grad() before the first"
        )
    return rows, torch.empty(0, 0) if held is None else held.values()


def _pair(pair: Any) -> tuple[nn.Parameter, Tensor]:
    if not isinstance(pair, tuple | list) or len(pair) != 2 or not all(isinstance(each, Tensor) for each in pair):
        raise InputTypeError(f"tables hold {pair!r:.60}; give pairs (table, counts), as model.tables.pairs() does")
    if pair[0].ndim != 2 or pair[1].shape != pair[0].shape[:1]:
        raise InputError(f"a table {(*pair[0].shape,)} has counts {(*pair[1].shape,)}; give shapes (R, W) and (R,)")
    return pair[0], pair[1]
