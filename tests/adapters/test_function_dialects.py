"""One verify rule in every dialect: each must be placed without help and called right."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from specverify.adapters.function import FunctionSubject
from specverify.adapters.function_cases import trial_cases
from specverify.exact.program import NativeSource

GLOBAL = np.random.default_rng(0)


def _step(drafts: Any, draft: Any, target: Any, uniform: Callable[[], float], choice: Callable[[Any], int]) -> Any:
    for position, token in enumerate(drafts):
        if uniform() * draft[position][token] >= target[position][token]:
            mass = np.maximum(np.asarray(target[position]) - np.asarray(draft[position]), 0.0)
            return [*drafts[:position], int(choice(mass / mass.sum()))], position
    return [*drafts, int(choice(np.asarray(target[len(drafts)])))], len(drafts)


def _numpy(drafts: Any, draft: Any, target: Any, rng: Any) -> Any:
    return _step([int(token) for token in drafts], draft, target, rng.random, lambda law: rng.choice(len(law), p=law))


def numpy_generator(draft_ids, q, p, generator):
    return _numpy(draft_ids, q, p, generator)


def letters_exchanged(draft_ids, p, q, rng):
    """As in gpt-fast, where q is the target."""
    return _numpy(draft_ids, p, q, rng)


def python_lists(drafted: list[int], draft_dists: list[list[float]], target_dists: list[list[float]], rng=random):
    tokens, _ = _step(drafted, draft_dists, target_dists, rng.random,
                      lambda law: rng.choices(range(len(law)), weights=list(law))[0])  # fmt: skip
    return tokens


def log_probabilities(draft_tokens, draft_logprobs, target_logprobs, rng):
    return _numpy(draft_tokens, np.exp(draft_logprobs), np.exp(target_logprobs), rng)[0]


def count_and_token(candidates, draft_probs, target_probs, rng):
    tokens, count = _numpy(candidates, draft_probs, target_probs, rng)
    return count, tokens[-1]


def bonus_row_apart(candidates, draft_probs, target_probs, bonus_probs, seed):
    return _numpy(candidates, draft_probs, np.vstack([target_probs, bonus_probs]), np.random.default_rng(seed))


def uniforms_given(draft_tokens, draft_probs, target_probs, u):
    stream = iter(u)
    return _step([int(token) for token in draft_tokens], draft_probs, target_probs, lambda: next(stream),
                 lambda law: np.searchsorted(np.cumsum(law)[:-1], u[-1], side="right"))  # fmt: skip


def random_function(draft_tokens, draft_probs, target_probs, rand_fn: Callable[[], float]):
    return _step([int(token) for token in draft_tokens], draft_probs, target_probs, rand_fn,
                 lambda law: np.searchsorted(np.cumsum(law)[:-1], rand_fn(), side="right"))  # fmt: skip


def no_draft_law(draft_ids, target_probs, rng):
    return _numpy(draft_ids, np.eye(np.asarray(target_probs).shape[1])[draft_ids], target_probs, rng)


def samples_given(draft_ids, target_ids):
    count = 0
    while count < len(draft_ids) and draft_ids[count] == target_ids[count]:
        count += 1
    return count, int(target_ids[count])


@dataclass
class Answer:
    accepted: int
    tokens: list[int]
    note: str = ""


def dataclass_answer(draft_ids, draft_probs, target_probs, rng):
    tokens, count = _numpy(draft_ids, draft_probs, target_probs, rng)
    return Answer(count, tokens)


def dict_answer(draft_ids, draft_probs, target_probs, rng):
    tokens, count = _numpy(draft_ids, draft_probs, target_probs, rng)
    return {"n": count, "out": np.array(tokens)}


def padded_with_zeros(draft_ids, draft_probs, target_probs, rng):
    tokens, count = _numpy(draft_ids, draft_probs, target_probs, rng)
    return np.array(tokens + [0] * (len(draft_ids) + 1 - len(tokens))), count


def padded_with_minus_one(draft_ids, draft_probs, target_probs, rng):
    tokens, _ = _numpy(draft_ids, draft_probs, target_probs, rng)
    return np.array(tokens + [-1] * (len(draft_ids) + 1 - len(tokens)))


def prefix_returned(input_ids, draft_ids, draft_probs, target_probs, rng):
    tokens, _ = _numpy(draft_ids, draft_probs, target_probs, rng)
    return [*input_ids, *tokens]


def global_generator(draft_ids, draft_probs, target_probs):
    return _numpy(draft_ids, draft_probs, target_probs, GLOBAL)


def _torch_rows(draft_tokens: Any, draft: Any, target: Any, generator: Any) -> Any:
    batch, k = draft_tokens.shape
    output = torch.full((batch, k + 1), -1)
    for row in range(batch):
        tokens, _ = _step(
            draft_tokens[row].tolist(), draft[row].double().numpy(), target[row].double().numpy(),
            lambda: torch.rand((), generator=generator).item(),
            lambda law: torch.multinomial(torch.tensor(law), 1, generator=generator).item(),
        )  # fmt: skip
        output[row, : len(tokens)] = torch.tensor(tokens)
    return output


def lengths_of_rows(draft_tokens, draft_probs, target_probs, draft_lens):
    """One length for each row, as an array that is indexed."""
    assert draft_lens[:, None].shape == (len(draft_tokens), 1)
    return _torch_rows(draft_tokens, draft_probs, target_probs, None)


def torch_batch(draft_tokens, draft_logits, target_logits, gen=None):
    return _torch_rows(draft_tokens, draft_logits.softmax(-1), target_logits.softmax(-1), gen)


def torch_single_global(draft_tokens: torch.Tensor, draft_probs: torch.Tensor, target_probs: torch.Tensor):
    row = _torch_rows(draft_tokens[None], draft_probs[None], target_probs[None], None)[0]
    return row[row >= 0]


def candidates_behind_prefix(candidate_input_ids, candidate_logits, candidate_length, new_logits):
    """The dialect of transformers."""
    drafts = candidate_input_ids[:, -candidate_length:]
    row = _torch_rows(drafts, candidate_logits.softmax(-1), new_logits.softmax(-1), None)
    return row[:, row[0] >= 0], (row[0] >= 0).sum() - 1


def list_of_tensor_rows(gen_toks: list[int], small_distributions: list[torch.Tensor], big_probs: torch.Tensor):
    small = torch.cat([row.reshape(1, -1) for row in small_distributions])
    return _torch_rows(torch.tensor([gen_toks]), small[None], big_probs[None], None)[0].tolist()


def accepts_only(draft_ids, draft_probs, target_probs, uniforms):
    for position, token in enumerate(draft_ids):
        if uniforms[position] * draft_probs[position, token] >= target_probs[position, token]:
            return position
    return len(draft_ids)


class Engine:
    def __init__(self) -> None:
        self.rng = np.random.default_rng(3)

    def verify(self, draft_ids, draft_probs, target_probs):
        return _numpy(draft_ids, draft_probs, target_probs, self.rng)


DIALECTS: dict[str, Any] = {
    function.__name__: function
    for function in (
        numpy_generator, letters_exchanged, python_lists, log_probabilities, count_and_token, bonus_row_apart,
        uniforms_given, random_function, no_draft_law, samples_given, dataclass_answer, dict_answer, padded_with_zeros,
        padded_with_minus_one, prefix_returned, global_generator, lengths_of_rows, torch_batch, torch_single_global,
        candidates_behind_prefix, list_of_tensor_rows, accepts_only,
    )
}  # fmt: skip
DIALECTS["bound method"] = Engine().verify


@pytest.mark.parametrize("function", DIALECTS.values(), ids=DIALECTS.keys())
def test_dialect_is_found_without_help(function):
    """Names, annotations and trial calls are enough: the one possible outcome comes back, in our terms."""
    subject = FunctionSubject(function)

    for seed, (case, expected) in enumerate(trial_cases(has_draft_law=subject.takes_draft_law)):
        output = subject.call(case, NativeSource(100 + seed))
        wanted = expected.token_ids[: expected.num_accepted] if subject.decides_only else expected.token_ids
        assert wanted == output.token_ids
        assert output.num_accepted in (None, expected.num_accepted)


def test_letters_are_told_apart_by_trial():
    """p and q are used both ways round; the function itself shows which is the target."""
    assert FunctionSubject(numpy_generator).dialect.roles["target_probs"] == "p"
    assert FunctionSubject(letters_exchanged).dialect.roles["target_probs"] == "q"


def test_batch_of_two_is_read_row_by_row():
    """Each row of a batch is read as a call of its own."""
    subject = FunctionSubject(torch_batch)
    (first, wanted_first), (second, wanted_second) = trial_cases(has_draft_law=True)

    outputs = subject.call_rows([first, second], NativeSource(1))

    assert subject.takes_batches
    assert [wanted_first.token_ids, wanted_second.token_ids] == [output.token_ids for output in outputs]


def test_batch_axis_that_must_be_one_is_no_batch():
    """A function that carries a batch axis of one is never asked two rows."""
    assert not FunctionSubject(candidates_behind_prefix).takes_batches


def test_flat_ragged_layout():
    """Rows laid end to end with running sums of draft lengths, as serving engines do."""

    def flat(draft_token_ids, num_draft_tokens, cu_num_draft_tokens, draft_probs, target_probs, bonus_token_ids, rng):
        rows, start = [], 0
        for row, end in enumerate(cu_num_draft_tokens):
            target = np.vstack([target_probs[start:end], np.eye(target_probs.shape[1])[bonus_token_ids[row]]])
            tokens, _ = _numpy(draft_token_ids[start:end], draft_probs[start:end], target, rng)
            rows.append(tokens + [-1] * (num_draft_tokens[row] + 1 - len(tokens)))
            start = end
        return np.array(rows)

    subject = FunctionSubject(flat)
    cases = trial_cases(has_draft_law=True)

    outputs = subject.call_rows([case for case, _ in cases], NativeSource(1))

    assert [expected.token_ids for _, expected in cases] == [output.token_ids for output in outputs]


def test_broken_function_still_gets_a_dialect():
    """A function that accepts everything fails one trial; what the other one shows is enough."""

    def accepts_all(draft_ids, draft_probs, target_probs, rng):
        return [*map(int, draft_ids), int(rng.choice(target_probs.shape[1], p=target_probs[-1]))]

    assert FunctionSubject(accepts_all).dialect.returns.names == ("token_ids",)


def test_escape_hatch_makes_the_whole_call():
    """call= covers what no mapping does; only the answer is read."""
    state = SimpleNamespace(calls=0)

    def call(case, source):
        state.calls += 1
        return _numpy(case.draft_token_ids, case.draft_probs, case.target_probs, source.numpy_generator())

    subject = FunctionSubject(None, call=call, name="by hand")
    (case, expected), _ = trial_cases(has_draft_law=True)

    assert expected.token_ids == subject.call(case, NativeSource(0)).token_ids
    assert state.calls > 1


def test_setup_runs_before_every_call():
    """State that a call leaves behind is reset by setup."""
    left = []

    def leaves_state(draft_ids, draft_probs, target_probs, rng):
        assert not left
        left.append(1)
        return _numpy(draft_ids, draft_probs, target_probs, rng)

    subject = FunctionSubject(leaves_state, setup=left.clear)
    (case, _), _ = trial_cases(has_draft_law=True)

    for seed in range(3):
        subject.call(case, NativeSource(seed))


def test_global_random_state_is_kept():
    """Finding the dialect by trial calls does not move the caller's generators."""
    torch.manual_seed(5)
    random.seed(5)
    wanted = torch.rand(3).tolist(), random.random()
    torch.manual_seed(5)
    random.seed(5)

    FunctionSubject(torch_single_global)

    assert wanted == (torch.rand(3).tolist(), random.random())


def test_draft_law_that_may_be_none():
    """A function that says the draft law is optional is also asked without it."""

    def verify(draft_ids, draft_probs: np.ndarray | None, target_probs: np.ndarray, rng):
        law = np.eye(target_probs.shape[1])[draft_ids] if draft_probs is None else draft_probs
        return _numpy(draft_ids, law, target_probs, rng)

    assert FunctionSubject(verify).draft_law_is_optional
    assert not FunctionSubject(numpy_generator).draft_law_is_optional


def test_tree_of_candidates_is_found_by_its_parents():
    """A parameter called parents makes it a tree: paths of nodes, or tokens, come back."""

    def verify(draft_token_ids, parents, draft_probs, target_probs, rng):
        node, path = -1, []
        while True:
            children = [child for child in range(len(parents)) if parents[child] == node]
            chosen = [child for child in children if rng.random() < target_probs[node + 1, draft_token_ids[child]]]
            if not chosen:
                return path, int(rng.choice(target_probs.shape[1], p=target_probs[node + 1]))
            node = chosen[0]
            path.append(node)

    subject = FunctionSubject(verify)

    assert subject.takes_trees
    assert subject.dialect.returns.names == ("accepted_nodes", "final_token_id")


def test_whole_step_that_drafts_by_itself():
    """step= covers functions that draw the draft tokens too: they are served both laws."""

    def step(draft, target, num_draft_tokens, source):
        rng, drafts = source.numpy_generator(), ()
        for _ in range(num_draft_tokens):
            drafts += (int(rng.choice(len(draft(drafts)), p=draft(drafts))),)
        rows = [target(drafts[:length]) for length in range(num_draft_tokens + 1)]
        return _numpy(drafts, [draft(drafts[:length]) for length in range(num_draft_tokens)], rows, rng)

    subject = FunctionSubject(None, step=step, name="whole step")

    assert subject.drafts_itself
    assert subject.dialect.returns.names == ("token_ids", "num_accepted")


def next_target_row(draft_ids, q, p, rng):
    """Tests against the row of the next position; where that rejects by mistake there may be no residual."""
    for position, token in enumerate(int(token) for token in draft_ids):
        if rng.random() * q[position][token] >= p[position + 1][token]:
            mass = np.maximum(np.asarray(p[position]) - np.asarray(q[position]), 0.0)
            if not mass.any():
                raise ValueError("probabilities sum to 0")
            return [*draft_ids[:position], int(rng.choice(len(mass), p=mass / mass.sum()))], position
    return [*draft_ids, int(rng.choice(p.shape[1], p=p[-1]))], len(draft_ids)


def test_a_function_that_reads_a_wrong_row_is_understood():
    """It crashes on every trial case whose rows differ; how to call it is still found out, so that it can be judged."""
    subject = FunctionSubject(next_target_row)

    assert subject.dialect.returns.names == ("token_ids", "num_accepted")
    with pytest.raises(ValueError, match="sum to 0"):
        next_target_row(*_arguments_of(trial_cases(has_draft_law=True)[0][0]))


def _arguments_of(case: Any) -> tuple[Any, ...]:
    return np.array(case.draft_token_ids), case.draft_probs, case.target_probs, np.random.default_rng(0)
