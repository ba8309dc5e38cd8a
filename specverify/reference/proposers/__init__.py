"""Proposers make draft tokens: a draft model, a look into the text, or a script that forces accept lengths."""

from specverify.reference.proposers.base import Drafts, Proposer, TargetReader, TargetStates
from specverify.reference.proposers.draft_model import DraftModelProposer
from specverify.reference.proposers.growth import DynamicTree, FixedTree, Growth, TreeSource
from specverify.reference.proposers.ngram import NgramProposer
from specverify.reference.proposers.scripted import (
    AlternatingProposer,
    AntiProposer,
    SelfProposer,
    SometimesEmptyProposer,
)
from specverify.reference.proposers.tree import TreeProposer

__all__ = [
    "AlternatingProposer",
    "AntiProposer",
    "DraftModelProposer",
    "Drafts",
    "DynamicTree",
    "FixedTree",
    "Growth",
    "NgramProposer",
    "Proposer",
    "SelfProposer",
    "SometimesEmptyProposer",
    "TargetReader",
    "TargetStates",
    "TreeProposer",
    "TreeSource",
]
