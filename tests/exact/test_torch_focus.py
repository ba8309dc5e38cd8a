"""Batched functions through a focus row: symbolic randomness for one row, fixed numbers for the others."""

from __future__ import annotations

import pytest
import torch

from specverify.exact.errors import NotEnumerable
from specverify.exact.torch_front import FocusRow
from tests.exact.programs import drafted, trees
from tests.exact.torch_programs import torch_law, tv
from tests.exact.torch_subjects import verify_batch


def batched(verify, target, draft, num_draft_tokens, *, num_rows, row):
    """The focus row walks every draft path; the other rows stay on one path of their own."""
    size = draft.vocab_size
    others = [tuple((index + place) % size for place in range(num_draft_tokens)) for index in range(num_rows)]

    def program(source):
        tokens, _ = drafted(source, draft, num_draft_tokens)
        paths = [*others[:row], tokens, *others[row + 1 :]]
        draft_rows = torch.stack([torch.from_numpy(draft.rows(path[:-1])) for path in paths])
        target_rows = torch.stack([torch.from_numpy(target.rows(path)) for path in paths])
        return verify(torch.tensor(paths), draft_rows, target_rows, source.torch_generator())[row]

    return program


@pytest.mark.parametrize("row", [0, 2])
def test_a_correct_batch_has_the_target_law_in_every_row(row):
    """Each row of a correct batched function is lossless."""
    target, draft = trees(4)

    law = torch_law(batched(verify_batch, target, draft, 2, num_rows=3, row=row), focus=FocusRow(row, 3), calls=200)

    assert tv(law, target) < 1e-12


def test_the_number_of_runs_does_not_depend_on_the_batch():
    """Rows that are not in focus cost time, but no runs."""
    target, draft = trees(4)

    few, many = (
        torch_law(batched(verify_batch, target, draft, 2, num_rows=size, row=1), focus=FocusRow(1, size))
        for size in (2, 64)
    )

    assert few.num_runs == many.num_runs
    assert tv(many, target) < 1e-12


def shifted_rows(draft, draft_probs, target_probs, generator):
    return verify_batch(draft, draft_probs, target_probs.roll(1, 0), generator)


def one_uniform_for_a_row(draft, draft_probs, target_probs, generator):
    """The accept tests of a row share one uniform."""
    batch, k = draft.shape
    at_target = target_probs[:, :k].gather(2, draft[..., None]).squeeze(2)
    at_draft = draft_probs.gather(2, draft[..., None]).squeeze(2)
    uniforms = torch.rand(batch, 1, dtype=torch.float64, generator=generator).expand(batch, k)
    n = (uniforms * at_draft < at_target).long().cumprod(1).sum(1)
    rows = torch.arange(batch)
    padded = torch.cat([draft_probs, draft_probs.new_zeros(batch, 1, draft_probs.shape[-1])], 1)
    weights = (target_probs[rows, n] - padded[rows, n]).clamp_min(0)
    kept = torch.where(torch.arange(k) < n[:, None], draft, -1)
    output = torch.cat([kept, torch.full((batch, 1), -1)], 1)
    output[rows, n] = torch.multinomial(weights, 1, generator=generator)[:, 0]
    return output


@pytest.mark.parametrize(("verify", "least"), [(shifted_rows, 0.1), (one_uniform_for_a_row, 0.005)])
def test_mistakes_in_a_batch_are_seen(verify, least):
    """Rows mixed up, and one uniform shared along a row, move the focus row's law."""
    target, draft = trees(5, seed=6)

    law = torch_law(batched(verify, target, draft, 2, num_rows=4, row=1), focus=FocusRow(1, 4), calls=300)

    assert tv(law, target) > least


def test_a_row_that_depends_on_the_noise_of_another_is_refused():
    """The other rows' numbers change between replays; an output that follows them is no law of this row."""

    def program(source):
        uniforms = torch.rand(3, 1, dtype=torch.float64, generator=source.torch_generator())
        return (uniforms.roll(1, 0) < 0.5).long()[1]

    with pytest.raises(NotEnumerable):
        torch_law(program, focus=FocusRow(1, 3), calls=200)


def test_flattened_batches_are_split_by_row():
    """A tensor with k rows for each row of the batch belongs to the batch too."""
    weights = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)

    def program(source):
        noise = torch.empty(8, 3, dtype=torch.float64).exponential_(generator=source.torch_generator())
        return (weights / noise).argmax(-1).view(4, 2)[2]

    law = torch_law(program, focus=FocusRow(2, 4), calls=200)

    assert law.probabilities[0, 2] == pytest.approx(0.1)
    assert law.num_runs == 1
