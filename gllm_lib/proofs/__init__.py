"""Claims, evidence and computed status: what a chapter states, what its code shows, and what follows from both."""

from gllm_lib.proofs.evidence import Refuted, Unknown, evidence
from gllm_lib.proofs.exact import exhaust, identity, smt
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
    "smt",
    "triples",
]
