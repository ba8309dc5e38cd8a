"""Engine faults of constraints: the state or the mask is that of another position, another step, or another row."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specverify.faults.engine_parts import Planted
from specverify.reference.batch import Batch, RunningRequest
from specverify.reference.constraining import State
from specverify.reference.engine import ReferenceEngine
from specverify.reference.proposers import Drafts

plant = Planted()


@plant("grammar-not-rolled-back", "vllm-project/vllm#9423")
class _NotRolledBack(ReferenceEngine):
    """The automaton reads the draft tokens, as far as it takes them, and keeps that state when they are rejected."""

    def committed_state(self, running: RunningRequest) -> State:
        constraint = running.request.constraint
        if constraint is None or not running.steps:
            return super().committed_state(running)
        read = running.token_ids[running.prompt_length : running.steps[0].start_position]
        for step in running.steps:
            read += [*step.draft_token_ids, *step.token_ids[step.num_accepted :]]
        state = 0
        for token in read:
            following = constraint.state_from(state, (token,))
            state = state if following is None else following
        return state


@plant("grammar-one-mask-per-step", "vllm-project/vllm#9423 (one state for all scored positions)")
class _OneMaskPerStep(ReferenceEngine):
    """All positions of a verify pass are masked by the state in which the step begins."""

    def states_along(
        self, running: RunningRequest, draft_token_ids: Sequence[int], parents: Sequence[int] | None
    ) -> list[State]:
        states = super().states_along(running, draft_token_ids, parents)
        return states[:1] * len(states)


@plant("grammar-mask-one-late", "sgl-project/sglang#25361")
class _MaskOneLate(ReferenceEngine):
    """The position behind a draft token is masked by the state before that token."""

    def states_along(
        self, running: RunningRequest, draft_token_ids: Sequence[int], parents: Sequence[int] | None
    ) -> list[State]:
        states = super().states_along(running, draft_token_ids, parents)
        above = range(len(draft_token_ids)) if parents is None else [parent + 1 for parent in parents]
        return [*states[:1], *(states[number] for number, _ in zip(above, draft_token_ids, strict=False) if states)]


@plant("grammar-zeros-for-others", "vllm-project/vllm-gaudi#1200")
class _ZerosForOthers(ReferenceEngine):
    """In a mixed batch, the masks of rows without a constraint are zeros: the lowest token id is all that is left."""

    def allowed_along(self, batch: Batch, drafts: Drafts) -> Tensor:
        masks = super().allowed_along(batch, drafts)
        for row, running in enumerate(batch.running):
            if running.request.constraint is None:
                masks[row] = False
                masks[row, :, 0] = True
        return masks


@plant("grammar-end-missed", "sgl-project/sglang#9187")
class _EndMissed(ReferenceEngine):
    """At verified positions nobody sees that the constraint is complete: any token may follow."""

    def states_along(
        self, running: RunningRequest, draft_token_ids: Sequence[int], parents: Sequence[int] | None
    ) -> list[State]:
        states = super().states_along(running, draft_token_ids, parents)
        constraint = running.request.constraint
        return [
            None if state is None or constraint is None or constraint.is_complete(state) else state for state in states
        ]


@plant("grammar-mask-row-missing", "vllm-project/vllm#50952")
class _MaskRowMissing(ReferenceEngine):
    """Masks are laid down one after the other and read k + 1 a row: behind a short draft come those of the next row."""

    def allowed_along(self, batch: Batch, drafts: Drafts) -> Tensor:
        masks = super().allowed_along(batch, drafts)
        laid = [row[: num + 1] for row, num in zip(masks, drafts.num_tokens, strict=True)]
        missing = masks.shape[0] * masks.shape[1] - sum(map(len, laid))
        laid.append(torch.ones((missing, masks.shape[2]), dtype=torch.bool, device=masks.device))
        return torch.cat(laid).reshape(masks.shape)


FAULTS = plant.faults
