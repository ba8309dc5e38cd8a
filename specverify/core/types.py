"""Requests in, steps out: the shapes every layer above agrees on. Arrays are numpy; tensors stop at the adapters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from specverify.core.capabilities import Capability
from specverify.core.constraint import Constraint
from specverify.core.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.floating[Any]]
else:
    Array = Any


@dataclass(frozen=True)
class SamplingParams:
    """How logits become the law that a token is drawn from. temperature 0 is greedy; top_k 0 keeps every token.

    Penalties follow the usual servers: repetition divides positive and multiplies negative logits of every
    token seen in prompt or output; presence and frequency are subtracted for tokens seen in the output.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0.0

    @property
    def has_penalties(self) -> bool:
        return (self.repetition_penalty, self.presence_penalty, self.frequency_penalty) != (1.0, 0.0, 0.0)


@dataclass(frozen=True)
class Request:
    """One prompt to continue.

    constraint: what the output must look like; end tokens may come where it accepts, and are no part of it.
    Raises UsageError where an end token is one of the constraint's tokens.
    """

    prompt_token_ids: tuple[int, ...]
    max_new_tokens: int
    sampling: SamplingParams = SamplingParams()
    seed: int | None = None
    eos_token_ids: tuple[int, ...] = ()
    request_id: str = "0"
    constraint: Constraint | None = None

    def __post_init__(self) -> None:
        if self.constraint is not None and (both := self.constraint.token_ids & {*self.eos_token_ids}):
            raise UsageError(
                f"token {min(both)} is an end token of request {self.request_id!r} and a token of its constraint; "
                "give it one meaning"
            )

    def allowed_after(self, output_token_ids: Sequence[int]) -> frozenset[int] | None:
        """The token ids that may follow these new tokens, end tokens among them; None where any token may.

        Any may without a constraint, and behind a token that was not allowed: no output has anything there. The set is
        empty where the output is complete and the request has no end tokens: then the output has ended.
        """
        if self.constraint is None:
            return None
        state = self.constraint.state_after(output_token_ids)
        if state is None:
            return None
        return self.allowed_in(state)

    def allowed_in(self, state: int) -> frozenset[int]:
        """The token ids that may follow in this state of the constraint, end tokens among them."""
        assert self.constraint is not None
        allowed = self.constraint.allowed(state)
        return allowed.union(self.eos_token_ids) if state in self.constraint.accepting else allowed


@dataclass(frozen=True)
class VerifyInput:
    """What a verify function is given.

    draft_token_ids: [k]. draft_probs: [k, vocab], or None for a deterministic proposer.
    target_probs: [k + 1, vocab]; row i is the target law after i draft tokens, the last one is the bonus row.
    parents: for a draft tree, the parent of each token, -1 for those that follow the committed tokens; tokens come
    after their parents, row 0 of target_probs follows the committed tokens and row i + 1 draft token i.
    """

    draft_token_ids: tuple[int, ...]
    draft_probs: Array | None
    target_probs: Array
    parents: tuple[int, ...] | None = None


@dataclass(frozen=True)
class WholeStepInput(VerifyInput):
    """What a function is given that drafts by itself: both laws, to be asked for any prefix of new tokens.

    draft_token_ids is empty, and target_probs holds the first row only.
    """

    draft: Callable[[tuple[int, ...]], Array] | None = None
    target: Callable[[tuple[int, ...]], Array] | None = None
    num_draft_tokens: int = 0


@dataclass(frozen=True)
class VerifyOutput:
    """What one verify call emitted: the accepted draft tokens, then (usually) one final token.

    num_accepted is None where the dialect does not report it.
    """

    token_ids: tuple[int, ...]
    num_accepted: int | None = None


@dataclass(frozen=True, eq=False)
class Step:
    """One verify call of one request.

    start_position: committed tokens (prompt included) when the step starts.
    token_ids: the tokens that the step committed: accepted draft tokens, then the final token. May be cut short
      by an end token or by max_new_tokens, in which case is_truncated is set.
    num_accepted: how many draft tokens the verifier accepted, before any cut.
    draft_probs: [k, vocab] or None; target_probs: [k + 1, vocab] or None: after sampling parameters, as used.
    *_kv_length_after: rows of the cache after the step. *_positions: positions of the tokens that the model
      computed in this step, in order. *_kv_rows: [layers, 2, rows, heads, head_dim] after the step.
    uniforms: the accept test's uniforms where the engine records them.
    parents, accepted_nodes: for a draft tree, as in VerifyInput; and the accepted draft tokens by number, in order.
      Then target_probs row i + 1 is the law after draft token i, and draft_probs row i the law that draft token i was
      drawn from given the siblings before it.
    """

    index: int
    start_position: int
    draft_token_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    num_accepted: int
    is_truncated: bool = False
    draft_probs: Array | None = None
    target_probs: Array | None = None
    uniforms: tuple[float, ...] | None = None
    target_kv_length_after: int | None = None
    draft_kv_length_after: int | None = None
    target_positions: tuple[int, ...] | None = None
    draft_positions: tuple[int, ...] | None = None
    target_kv_rows: Array | None = None
    draft_kv_rows: Array | None = None
    parents: tuple[int, ...] | None = None
    accepted_nodes: tuple[int, ...] | None = None

    @property
    def num_draft_tokens(self) -> int:
        return len(self.draft_token_ids)

    @property
    def is_rejection(self) -> bool:
        """Whether a draft token was rejected where the step ended: in a tree, all the candidates there were."""
        if self.parents is None:
            return self.num_accepted < self.num_draft_tokens
        return (self.accepted_nodes[-1] if self.accepted_nodes else -1) in self.parents


@dataclass(frozen=True, eq=False)
class Trace:
    """The record of one request: everything the checks judge.

    token_ids: the new tokens, prompt not included. first_from_prefill: tokens that came from prefill and not
      from a verify step (usually 1). kv_lag: committed tokens not yet in the target's cache after a step,
      draft_kv_lag the same for the draft model. speculated: whether speculation was switched on.
    proposed / accepted: counts where the engine reports them without steps.
    log_probs: natural logarithm of the probability of each entry of token_ids, as the engine reports it, or None.
      Under the target's logits as they are (temperature 1, no filters, no penalties), at the request's temperature
      before filters, or under the law that the token was drawn from; an engine keeps to one of the three.
    """

    request: Request
    token_ids: tuple[int, ...]
    steps: tuple[Step, ...] = ()
    speculated: bool = True
    first_from_prefill: int = 1
    kv_lag: int = 1
    draft_kv_lag: int | None = None
    num_proposed: int | None = None
    num_accepted: int | None = None
    finish_reason: str = ""
    meta: dict[str, Any] = field(default_factory=dict)
    log_probs: tuple[float, ...] | None = None


class Subject(Protocol):
    """What is under test."""

    name: str
    capabilities: frozenset[Capability]


class Engine(Subject, Protocol):
    """An engine adapter: one small object. Further methods are unlocked by the capabilities it declares.

    LOGPROBS         nothing to call: Trace.log_probs, with speculation on and off
    GRAMMAR          nothing to call: Request.constraint is kept to; Request.allowed_after says what may come next
    SCORE            score(prompt_token_ids, token_ids) -> [tokens, vocab] log-probabilities (temperature 1)
    DRAFT_SCORE      draft_scores(token_ids, draft_token_ids) -> [draft + 1, vocab] log-probabilities (temperature 1) of
                     the drafter, before each draft token and after the last; nothing of earlier steps may be used
    LOAD_CHECKPOINT  checkpoint: the probe pair it has loaded (specverify.probe.ProbePair)
    KV_ROWS          prefill_kv_rows(model, token_ids) -> [layers, 2, rows, heads, head_dim];
                     model is "target" or "draft"
    SCRIPTED_PROPOSER  with_proposer(name) -> Engine; name is "self", "anti", "alternating" or "sometimes-empty"
    TOKENIZER        tokenizers: mapping of "target" and "draft" to tokenizers
    """

    def generate(self, requests: Sequence[Request], *, speculate: bool) -> Sequence[Trace]: ...
