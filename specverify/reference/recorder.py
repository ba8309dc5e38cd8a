"""Turns what happened in a step into core.types.Step: tensors become numpy here and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specverify.core.types import Step, Trace
from specverify.reference.batch import Batch, RunningRequest
from specverify.reference.cached_model import CachedModel
from specverify.reference.proposers import Drafts, Proposer
from specverify.reference.verifiers import Verdict


@dataclass(frozen=True)
class Recorder:
    """What to record. Laws and KV rows are large; lengths, positions and tokens are always recorded."""

    record_probs: bool = True
    record_kv_rows: bool = False
    record_log_probs: bool = True

    def begin(
        self, batch: Batch, drafts: Drafts, target_probs: Tensor, verdict: Verdict, cached: CachedModel
    ) -> StepRecord:
        """Notes what the step used. To be called before anything is committed."""
        record = StepRecord(self, batch, drafts, cached, [len(running.token_ids) for running in batch.running])
        if self.record_probs:
            record.target_probs = to_numpy(target_probs)
            record.draft_probs = None if drafts.probs is None else to_numpy(drafts.probs)
        # Reading uniforms would spoil a call whose global randomness is being enumerated, hence seeded rows only.
        if verdict.uniforms is not None and all(running.request.seed is not None for running in batch.running):
            record.uniforms = verdict.uniforms.tolist()
        return record


@dataclass
class StepRecord:
    """One step of every row, in the making."""

    recorder: Recorder
    batch: Batch
    drafts: Drafts
    cached: CachedModel
    start_positions: Sequence[int]
    target_probs: NDArray[Any] | None = None
    draft_probs: NDArray[Any] | None = None
    uniforms: list[list[float]] | None = None
    commits_by_row: list[dict[str, Any]] = field(default_factory=list)

    def commits(
        self,
        row: int,
        draft_token_ids: Sequence[int],
        accepted: Sequence[int],
        emitted: Sequence[int],
        kept: Sequence[int],
    ) -> None:
        """Notes what the row accepted, by number, what it emitted, and what of that was kept."""
        self.commits_by_row.append(
            {
                "start_position": self.start_positions[row],
                "draft_token_ids": tuple(draft_token_ids),
                "token_ids": tuple(kept),
                "num_accepted": len(accepted),
                "accepted_nodes": None if self.drafts.parents is None else tuple(accepted),
                "is_truncated": len(kept) < len(emitted),
            }
        )

    def end(self, proposer: Proposer) -> None:
        """Notes both caches after the rollback and hands each request its step."""
        draft_lengths = proposer.kv_lengths()
        parents = None if self.drafts.parents is None else self.drafts.parents.tolist()
        for row, running in enumerate(self.batch.running):
            num_tokens = self.drafts.num_tokens[row]
            positions = self.drafts.positions
            has_rows = self.recorder.record_kv_rows
            draft_rows = proposer.kv_rows(row) if has_rows else None
            running.steps.append(
                Step(
                    index=len(running.steps),
                    **self.commits_by_row[row],
                    draft_probs=None if self.draft_probs is None else self.draft_probs[row, :num_tokens],
                    target_probs=None if self.target_probs is None else self.target_probs[row, : num_tokens + 1],
                    uniforms=None if self.uniforms is None else tuple(self.uniforms[row][:num_tokens]),
                    target_kv_length_after=self.cached.cache.lengths[row],
                    draft_kv_length_after=None if draft_lengths is None else draft_lengths[row],
                    target_positions=tuple(self.cached.last_positions[row]),
                    draft_positions=None if positions is None else tuple(positions[row]),
                    target_kv_rows=to_numpy(self.cached.cache.rows(row)) if has_rows else None,
                    draft_kv_rows=None if draft_rows is None else to_numpy(draft_rows),
                    parents=None if parents is None else tuple(parents[row][:num_tokens]),
                )
            )


def finished_trace(running: RunningRequest, *, speculated: bool, draft_kv_lag: int = 1) -> Trace:
    """The record of one request. Its first token came from prefill, everything else from steps."""
    steps = tuple(running.steps)
    num_passes = len(steps) if speculated else running.num_output_tokens - 1
    return Trace(
        request=running.request,
        token_ids=tuple(running.token_ids[running.prompt_length :]),
        steps=steps,
        speculated=speculated,
        draft_kv_lag=draft_kv_lag if any(step.draft_kv_length_after is not None for step in steps) else None,
        num_proposed=sum(step.num_draft_tokens for step in steps),
        num_accepted=sum(step.num_accepted for step in steps),
        finish_reason=running.finish_reason,
        meta={"num_target_passes": num_passes + 1},
        log_probs=None if running.log_probs is None else tuple(running.log_probs),
    )


def to_numpy(tensor: Tensor) -> NDArray[Any]:
    """The tensor on the host; bfloat16, which numpy lacks, as float32."""
    if tensor.dtype in (torch.bfloat16, torch.float16):
        tensor = tensor.to(torch.float32)
    array: NDArray[Any] = np.asarray(tensor.cpu().numpy())
    return array
