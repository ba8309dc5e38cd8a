"""Which tokens a request's constraint allows, at every position that is computed."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specverify.reference.batch import Batch, RunningRequest
from specverify.reference.proposers import Drafts

State = int | None
"""A state of the automaton; None behind a token that was not allowed, where nothing can be committed any more."""


class Constraining:
    """The part of the engine that keeps outputs to their constraints. It holds no state.

    The automaton reads the committed text again in every step: nothing has to be rolled back.
    """

    def allowed_next(self, batch: Batch) -> Tensor:
        """Which tokens may follow the committed text, [rows, 1, vocab], bool."""
        return self.allowed_rows(batch, [[self.committed_state(running)] for running in batch.running])

    def allowed_along(self, batch: Batch, drafts: Drafts) -> Tensor:
        """Which tokens may follow the committed text, and each draft token, [rows, k + 1, vocab], bool."""
        tokens = drafts.token_ids.tolist()
        parents = [None] * batch.num_rows if drafts.parents is None else drafts.parents.tolist()
        states = [
            self.states_along(running, tokens[row][:num], parents[row])
            for row, (running, num) in enumerate(zip(batch.running, drafts.num_tokens, strict=True))
        ]
        return self.allowed_rows(batch, [[*row, *[None] * (drafts.width + 1 - len(row))] for row in states])

    def states_along(
        self, running: RunningRequest, draft_token_ids: Sequence[int], parents: Sequence[int] | None
    ) -> list[State]:
        """The state before any draft token, and after each one and those that it follows; none without a constraint.

        parents: of each draft token, for a tree; -1 where it follows the committed text.
        """
        if running.request.constraint is None:
            return []
        states = [self.committed_state(running)]
        for number, token in enumerate(draft_token_ids):
            above = states[number if parents is None else parents[number] + 1]
            states.append(self.state_behind(running, above, [token]))
        return states

    def committed_state(self, running: RunningRequest) -> State:
        """The state after the committed text."""
        return self.state_behind(running, 0, running.token_ids[running.prompt_length :])

    def state_behind(self, running: RunningRequest, state: State, token_ids: Sequence[int]) -> State:
        """The state that these tokens lead to; None without a constraint, and behind an end token."""
        constraint = running.request.constraint
        if constraint is None or state is None:
            return None
        # Where a whole call is enumerated a token may be undecided: the automaton has to know it.
        return constraint.state_from(state, map(int, token_ids))

    def allowed_rows(self, batch: Batch, states: Sequence[Sequence[State]]) -> Tensor:
        """Which tokens each row may have in each of these states, [rows, n, vocab], bool; without a state, all."""
        rows = []
        for running, own in zip(batch.running, states, strict=True):
            table = self.allowed_table(running, batch)
            last = table.shape[0] - 1
            rows.append(table[[last if state is None else state for state in own]])
        return torch.stack(rows)

    def allowed_table(self, running: RunningRequest, batch: Batch) -> Tensor:
        """Which tokens the request may have in each state, [states + 1, vocab], bool; in the last row, all.

        All tokens are there too where none may follow: the output has ended then, and what is drawn is dropped.
        """
        if running.allowed_table is None:
            constraint = running.request.constraint
            num_states = 0 if constraint is None else len(constraint.transitions)
            table = torch.ones((num_states + 1, batch.vocab_size), dtype=torch.bool)
            for state in range(num_states):
                allowed = sorted(running.request.allowed_in(state))
                if allowed:
                    table[state] = False
                    table[state, allowed] = True
            running.allowed_table = table.to(batch.device)
        return running.allowed_table

    def completion(self, running: RunningRequest, token_ids: Sequence[int]) -> int | None:
        """After how many of these tokens the output is complete; None where it is not, or an end token will follow."""
        constraint = running.request.constraint
        if constraint is None or running.request.eos_token_ids:
            return None
        state = self.committed_state(running)
        for index, token in enumerate(token_ids):
            state = self.state_behind(running, state, [token])
            if state is not None and constraint.is_complete(state):
                return index + 1
        return None
