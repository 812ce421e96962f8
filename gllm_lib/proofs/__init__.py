"""Claims, evidence and computed status: what a chapter states, what its code shows, and what follows from both."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gllm_lib.proofs.evidence import Refuted, Unknown, evidence

if TYPE_CHECKING:
    from gllm_lib.proofs.exact import exhaust, identity, show, smt
    from gllm_lib.proofs.strategies import profile_pairs, profiles, rational_profile_pairs, triples

__all__ = [
    "Refuted",
    "Unknown",
    "evidence",
    "exhaust",
    "identity",
    "profile_pairs",
    "profiles",
    "rational_profile_pairs",
    "show",
    "smt",
    "triples",
]


def __getattr__(name: str) -> Any:
    """Load solvers and strategies when they are first used: reading the registry needs none of them."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "exact" if name in ("exhaust", "identity", "show", "smt") else "strategies"
    return getattr(import_module(f"{__name__}.{module}"), name)
