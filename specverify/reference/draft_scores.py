"""What a drafter says when it is run afresh on a text: no cache, no state and no hidden states of earlier steps."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specverify.core.errors import UsageError
from specverify.core.types import Request
from specverify.reference.batch import Batch, RunningRequest
from specverify.reference.cached_model import CachedModel
from specverify.reference.draws import RequestStreams
from specverify.reference.model import Model
from specverify.reference.proposers import Proposer, TargetReader, TargetStates, TreeProposer, TreeSource
from specverify.reference.proposers.draft_model import DraftModelProposer
from specverify.reference.proposers.growth import FixedTree
from specverify.reference.tree import ROOT, Topology


def draft_scores(target: Model, proposer: Proposer, token_ids: Sequence[int], draft_token_ids: Sequence[int]) -> Tensor:
    """Log-probabilities [draft + 1, vocab], temperature 1, that the drafter gives before each token of a draft and
    after the last.

    token_ids: the text, its newest token included; two tokens at least. proposer: one of its own, not in use.
    Raises UsageError for a proposer that computes no law.
    """
    if len(token_ids) < 2:
        raise UsageError(f"the text has {len(token_ids)} tokens; give at least 2, so that one has a hidden state")
    if isinstance(proposer, DraftModelProposer) and not isinstance(proposer, TreeProposer):
        proposer = TreeProposer(proposer.model, FixedTree(Topology((ROOT,))))
    if not isinstance(proposer, TreeSource):
        raise UsageError(f"proposer {proposer.name!r} computes no law; only models and heads do")
    text = tuple(token_ids)
    running = RunningRequest(Request(text, 1), 0, list(text), RequestStreams(0, target.device))
    batch = Batch([running], target.config.vocab_size, target.device)
    capacity = len(text) + len(draft_token_ids) + 1
    proposer.start(batch, capacity)
    if isinstance(proposer, TargetReader):
        cached = CachedModel(target, num_rows=1, capacity=capacity, taps=proposer.taps)
        tokens = torch.tensor([text[:-1]], device=target.device)
        hidden = cached.compute(tokens, first_positions=[0], num_new=[len(text) - 1])
        proposer.observe(batch, TargetStates(hidden, cached.last_taps, [len(text) - 1], [0], cached))
    logits = [proposer.root_logits(batch)[0]]
    for depth, token in enumerate(draft_token_ids, start=1):
        node, parent = torch.tensor([[token], [depth - 2]], device=target.device)[:, None]
        logits.append(proposer.extend_nodes(batch, node, parent, depth, [True])[0, 0])
    return torch.log_softmax(torch.stack(logits).to(target.wide_dtype), dim=-1)
