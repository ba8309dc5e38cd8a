"""What of an emitted block a request keeps: up to its end token, and no more than it may still have."""

from __future__ import annotations

from collections.abc import Sequence

from specverify.reference.batch import RunningRequest
from specverify.reference.constraining import Constraining


class Committing(Constraining):
    """The part of the engine that lets texts grow and end. It holds no state."""

    def emitted_tokens(self, draft_token_ids: Sequence[int], num_accepted: int, final_token_id: int) -> list[int]:
        """What a verify call emits: the accepted prefix and one final token, nothing behind a rejection."""
        return [*draft_token_ids[:num_accepted], final_token_id]

    def commit(self, running: RunningRequest, emitted: Sequence[int]) -> list[int]:
        """Appends what the request may still have of the emitted tokens, and returns it.

        The end token is looked for first: a request that meets both ends here ends because of the end token.
        """
        kept = self.cut_at_limit(running, emitted)
        ends = running.request.eos_token_ids
        at_end = self.cut_at_eos(running, kept) if ends else kept
        completion = None
        if running.request.constraint is not None:
            completion = self.completion(running, at_end)
            at_end = at_end[:completion]
        if at_end and at_end[-1] in ends:
            running.finish_reason = "eos"
        elif completion is not None:
            running.finish_reason = "constraint"
        elif len(at_end) >= running.num_remaining:
            running.finish_reason = "length"
        running.token_ids.extend(at_end)
        return at_end

    def cut_at_limit(self, running: RunningRequest, token_ids: Sequence[int]) -> list[int]:
        """No more tokens than max_new_tokens allows."""
        return list(token_ids[: running.num_remaining])

    def cut_at_eos(self, running: RunningRequest, token_ids: Sequence[int]) -> list[int]:
        """Nothing behind the first end token, wherever in the draft it stands."""
        for index, token_id in enumerate(token_ids):
            if token_id in running.request.eos_token_ids:
                return list(token_ids[: index + 1])
        return list(token_ids)
