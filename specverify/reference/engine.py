"""The reference engine: speculative decoding of a batch, each request at its own pace.

One step: the proposer drafts, the target computes the newest token and all drafts in one pass, the verifier decides,
texts grow, both caches are rolled back to what was committed. Read `generate`, then `speculative_step`.

Everything that a real engine gets wrong somewhere is a small method of its own here, so that a planted bug is one
override: see specverify.faults.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specverify.core.errors import UsageError
from specverify.core.types import Request, Trace
from specverify.reference.batch import MANY_ROWS, Batch, RunningRequest, along_paths, gaps_filled, padded
from specverify.reference.cached_model import CachedModel
from specverify.reference.committing import Committing
from specverify.reference.draws import RequestStreams
from specverify.reference.limits import check_request
from specverify.reference.model import Model
from specverify.reference.proposers import Drafts, Proposer, TargetReader, TargetStates
from specverify.reference.recorder import Recorder, finished_trace
from specverify.reference.reporting import Reporting
from specverify.reference.rolling_back import RollingBack
from specverify.reference.tree import Branches, ancestors, verify_branches
from specverify.reference.verifiers import (
    GreedyVerifier,
    RejectionVerifier,
    TreeGreedyVerifier,
    TreeRejectionVerifier,
    Verdict,
    Verifier,
)


class ReferenceEngine(Committing, Reporting, RollingBack):
    """Decodes requests with a target model, a proposer and a verifier.

    verifier: None compares argmaxes where all requests are greedy and does rejection sampling otherwise.
    record_probs, record_kv_rows: what each step of a trace holds; KV rows are copies of both caches.
    record_log_probs: whether a trace holds those of its tokens; None is as record_probs.
    Uniforms are recorded for requests that have a seed; without one they come from torch's global generator.
    """

    cached_model_class: type[CachedModel] = CachedModel

    def __init__(
        self,
        target: Model,
        proposer: Proposer,
        *,
        verifier: Verifier | None = None,
        num_draft_tokens: int = 3,
        record_probs: bool = True,
        record_kv_rows: bool = False,
        record_log_probs: bool | None = None,
    ) -> None:
        if num_draft_tokens < 1:
            raise UsageError(
                f"num_draft_tokens is {num_draft_tokens}; give at least 1, or generate with speculate=False"
            )
        draft = getattr(proposer, "model", None)
        if draft is not None and draft.config.vocab_size != target.config.vocab_size:
            raise UsageError(
                f"the draft model has {draft.config.vocab_size} tokens and the target {target.config.vocab_size}; "
                "draft token ids would mean other tokens: give models of one vocabulary"
            )
        self.target = target
        self.proposer = proposer
        self.verifier = verifier
        self.num_draft_tokens = num_draft_tokens
        self.reader = proposer if isinstance(proposer, TargetReader) else None
        log_probs = record_probs if record_log_probs is None else record_log_probs
        self.recorder = Recorder(record_probs, record_kv_rows, log_probs)

    @torch.inference_mode()
    def generate(self, requests: Sequence[Request], *, speculate: bool = True) -> list[Trace]:
        """Decodes all requests in one batch; traces in the order of the requests.

        Raises UsageError for a request that the model can't take.
        """
        if not requests:
            return []
        for request in requests:
            check_request(self.target.config, request)
        everyone = [self.start_request(index, request) for index, request in enumerate(requests)]
        batch = Batch(everyone, self.target.config.vocab_size, self.target.device)
        num_nodes = getattr(self.proposer, "num_nodes", self.num_draft_tokens)
        capacity = max(len(r.prompt_token_ids) + r.max_new_tokens for r in requests) + num_nodes + 1
        if speculate:
            self.proposer.start(batch, capacity)
        self.prefill(batch, capacity, speculate)
        batch = self.drop_finished(batch, speculate)
        while batch.num_rows:
            if speculate:
                self.speculative_step(batch)
            else:
                self.plain_step(batch)
            batch = self.drop_finished(batch, speculate)
        draft_lag = getattr(self.proposer, "kv_lag", 1)
        return [finished_trace(running, speculated=speculate, draft_kv_lag=draft_lag) for running in everyone]

    # The two ways to take a step -----------------------------------------------------------------------------

    def speculative_step(self, batch: Batch) -> None:
        """Drafts, verifies and commits: between 1 and num_draft_tokens + 1 tokens per row."""
        drafts = self.proposer.propose(batch, [self.num_to_propose(running) for running in batch.running])
        logits = self.verify_pass(batch, drafts)
        target_probs = self.target_law(batch, logits, drafts)
        verdict = self.choose_verifier(batch, drafts).verify(batch, drafts, target_probs)
        step = self.recorder.begin(batch, drafts, target_probs, verdict, self.cached)
        paths = None if verdict.accepted_nodes is None else verdict.accepted_nodes.tolist()
        accepted: list[Sequence[int]] = []
        kept: list[list[int]] = []
        for row, (running, outcome) in enumerate(zip(batch.running, self.outcomes(drafts, verdict), strict=True)):
            draft_token_ids, num_accepted, final_token_id = outcome
            accepted.append(range(num_accepted) if paths is None else paths[row][:num_accepted])
            chain = draft_token_ids if paths is None else [draft_token_ids[node] for node in accepted[row]]
            emitted = self.emitted_tokens(chain, num_accepted, final_token_id)
            kept.append(self.commit(running, emitted))
            step.commits(row, draft_token_ids, accepted[row], emitted, kept[row])
        if self.recorder.record_log_probs:
            self.report_verified(batch, drafts, logits, accepted, kept)
        hidden, taps = self.cached.last_hidden, self.cached.last_taps
        if drafts.parents is not None:
            self.compact(drafts, accepted)
            hidden, taps = along_paths(hidden, accepted), None if taps is None else along_paths(taps, accepted)
        self.roll_back(batch)
        self.show_states(batch, hidden, taps)
        self.proposer.commit(batch, accepted)
        step.end(self.proposer)

    def plain_step(self, batch: Batch) -> None:
        """One token per row, without anything to verify or to roll back.

        It shares no method with the speculative step that a bug of speculation could sit in.
        """
        newest = torch.tensor([running.token_ids[-1:] for running in batch.running], device=batch.device)
        positions = [running.newest_position for running in batch.running]
        hidden = self.cached.compute(newest, first_positions=positions, num_new=[1] * batch.num_rows)
        self.draw_plainly(batch, self.target.logits(hidden))

    def prefill(self, batch: Batch, capacity: int, speculate: bool) -> None:
        """Computes the prompts and draws the first token of every row. Equal prompts are computed once."""
        row_of: dict[tuple[int, ...], int] = {}
        rows = [row_of.setdefault(running.request.prompt_token_ids, len(row_of)) for running in batch.running]
        prompts = list(row_of)
        num_new = [len(prompt) for prompt in prompts]
        self.cached = self.cached_model_class(self.target, num_rows=len(prompts), capacity=capacity)
        if speculate and self.reader is not None:
            self.cached.taps = tuple(self.reader.taps)
        tokens = padded(prompts, batch.device)
        hidden = self.cached.compute(tokens, first_positions=[0] * len(prompts), num_new=num_new)
        last = [num_new[row] - 1 for row in rows]
        self.cached.select(rows)
        self.draw_plainly(batch, self.target.logits(hidden[rows, last][:, None]))
        if speculate and self.reader is not None:
            taps = self.cached.last_taps
            self.show_states(batch, hidden[rows], None if taps is None else taps[rows])

    def draw_plainly(self, batch: Batch, logits: Tensor) -> None:
        """Draws and commits one token per row from logits [rows, 1, vocab]."""
        is_allowed = self.allowed_next(batch) if batch.has_constraints else None
        law = batch.sampling.law(logits, batch.token_counts(), is_allowed=is_allowed)[:, 0]
        drawn = zip(batch.running, batch.draw(law).tolist(), strict=True)
        kept = [self.commit(running, [token_id]) for running, token_id in drawn]
        if self.recorder.record_log_probs:
            self.report(batch, logits, [[0]] * batch.num_rows, kept)

    def show_states(self, batch: Batch, hidden: Tensor, taps: Tensor | None) -> None:
        """Hands what the last pass computed of committed tokens to a proposer that reads it; rows as in the batch."""
        if self.reader is None:
            return
        first_positions = [positions[0] for positions in self.cached.last_positions]
        ends = zip(batch.running, first_positions, strict=True)
        num_tokens = [running.newest_position - first for running, first in ends]
        self.reader.observe(batch, TargetStates(hidden, taps, num_tokens, first_positions, self.cached))

    # What a speculative step consists of ---------------------------------------------------------------------

    def num_to_propose(self, running: RunningRequest) -> int:
        """Draft tokens to ask for: never more than the request may still emit."""
        return min(self.num_draft_tokens, running.num_remaining)

    def verify_pass(self, batch: Batch, drafts: Drafts) -> Tensor:
        """Target logits [rows, k + 1, vocab]: after the newest token, then after each draft token."""
        tokens = torch.cat([self.newest_tokens(batch), drafts.token_ids], dim=1)
        num_new = [1 + num for num in drafts.num_tokens]
        hidden = self.cached.compute(
            tokens,
            first_positions=self.newest_positions(batch),
            num_new=num_new,
            branches=None if drafts.parents is None else self.branches(drafts),
        )
        return self.target.logits(hidden)

    def branches(self, drafts: Drafts) -> Branches:
        """How a draft tree lies on top of the target's cache: depths give positions, ancestors the mask."""
        assert drafts.parents is not None
        return verify_branches(drafts.parents, list(self.cached.cache.lengths))

    def newest_tokens(self, batch: Batch) -> Tensor:
        """The newest committed token of each row, [rows, 1]: it is the only one without a KV row."""
        return torch.tensor([running.token_ids[-1:] for running in batch.running], device=batch.device)

    def newest_positions(self, batch: Batch) -> list[int]:
        """The position of each row's newest committed token, where the target's next pass begins."""
        return [running.newest_position for running in batch.running]

    def target_law(self, batch: Batch, logits: Tensor, drafts: Drafts) -> Tensor:
        """The target's laws [rows, k + 1, vocab] under each request's sampling parameters.

        Penalties and constraints at position i have seen the draft tokens before i, as they would in plain decoding.
        """
        is_allowed = self.allowed_along(batch, drafts) if batch.has_constraints else None
        counts = batch.token_counts()
        if counts is None:
            return batch.sampling.law(logits, is_allowed=is_allowed)
        is_ancestor = None if drafts.parents is None else ancestors(drafts.parents)
        return batch.sampling.law(logits, counts, counts.along(drafts.token_ids, is_ancestor), is_allowed)

    def choose_verifier(self, batch: Batch, drafts: Drafts) -> Verifier:
        if self.verifier is not None:
            return self.verifier
        if drafts.parents is not None:
            return TreeGreedyVerifier() if batch.sampling.is_greedy else TreeRejectionVerifier()
        return GreedyVerifier() if batch.sampling.is_greedy else RejectionVerifier()

    def outcomes(self, drafts: Drafts, verdict: Verdict) -> list[tuple[list[int], int, int]]:
        """(draft tokens, number accepted, final token) of every row, brought to the host in one transfer."""
        together = torch.cat([drafts.token_ids, verdict.num_accepted[:, None], verdict.final_token_ids[:, None]], dim=1)
        return [(row[: drafts.num_tokens[index]], row[-2], row[-1]) for index, row in enumerate(together.tolist())]

    # Committing and ending -----------------------------------------------------------------------------------

    def drop_finished(self, batch: Batch, speculate: bool) -> Batch:
        """The batch without finished rows; caches follow in the same order."""
        rows = [row for row, running in enumerate(batch.running) if not running.finish_reason]
        if len(rows) == batch.num_rows:
            return batch
        if len(rows) >= MANY_ROWS:
            rows = gaps_filled(rows)
        if rows:
            self.cached.select(rows)
            if speculate:
                self.proposer.select(rows)
        return batch.select(rows)

    # Starting ------------------------------------------------------------------------------------------------

    def start_request(self, index: int, request: Request) -> RunningRequest:
        return RunningRequest(request, index, list(request.prompt_token_ids), self.make_streams(request))

    def make_streams(self, request: Request) -> RequestStreams:
        """The request's own random streams, from its seed."""
        return RequestStreams(request.seed, self.target.device)
