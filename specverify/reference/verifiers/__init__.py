"""Verifiers decide which draft tokens stay, and draw the one token that follows them."""

from specverify.reference.verifiers.base import Verdict, Verifier
from specverify.reference.verifiers.greedy import GreedyVerifier
from specverify.reference.verifiers.rejection import RejectionVerifier
from specverify.reference.verifiers.tree import TreeGreedyVerifier, TreeRejectionVerifier

__all__ = ["GreedyVerifier", "RejectionVerifier", "TreeGreedyVerifier", "TreeRejectionVerifier", "Verdict", "Verifier"]
