"""Correct verify functions in every torch style: their enumerated laws are the target's, to 1e-12."""

from __future__ import annotations

import pytest
import torch

from specverify.exact.law import enumerate_law
from specverify.laws.mistakes import mistake_named
from specverify.laws.steps import chain_step, step_law
from tests.exact import torch_subjects
from tests.exact.programs import trees
from tests.exact.torch_programs import torch_program, tv

SIZES = [(2, 3), (5, 2), (16, 1)]
STYLES = torch_subjects.STYLES


@pytest.mark.parametrize("verify", STYLES.values(), ids=STYLES)
@pytest.mark.parametrize(("vocab_size", "num_draft_tokens"), SIZES)
def test_every_torch_style_has_the_target_law(verify, vocab_size, num_draft_tokens):
    """A lossless function is enumerated to a total variation below 1e-12, whatever its style of drawing."""
    target, draft = trees(vocab_size)

    law = enumerate_law(torch_program(verify, target, draft, num_draft_tokens), cross_check_calls=200)

    assert tv(law, target) < 1e-12


@pytest.mark.parametrize("verify", STYLES.values(), ids=STYLES)
def test_large_vocabularies_cost_no_more_runs(verify):
    """A last draw over 200 tokens is integrated, not forked: runs follow the draft's support, not the vocabulary."""
    target, draft = trees(200, support=2)

    law = enumerate_law(torch_program(verify, target, draft, 1), cross_check_calls=0)

    assert tv(law, target) < 1e-11
    # int() of a bonus token forks it where the code insists on a Python int.
    assert law.num_runs <= (410 if verify is torch_subjects.one_draw_at_a_time else 4)


@pytest.mark.parametrize("verify", STYLES.values(), ids=STYLES)
def test_the_global_generator_serves_as_well(verify):
    """Without a generator argument the global stream is symbolic, and left as it was."""
    target, draft = trees(4)
    before = torch.get_rng_state()

    law = enumerate_law(torch_program(verify, target, draft, 2, gives_generator=False), cross_check_calls=0)

    assert tv(law, target) < 1e-12
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("verify", STYLES.values(), ids=STYLES)
def test_float32_functions_are_right_to_their_own_rounding(verify):
    """In float32 the law differs from the target by the function's rounding only."""
    target, draft = trees(6)

    law = enumerate_law(torch_program(verify, target, draft, 2, dtype=torch.float32), cross_check_calls=0)

    assert tv(law, target) < 1e-5


def test_the_law_agrees_with_the_closed_form():
    """Not only the completed law: every emitted tuple has the probability of the closed form."""
    target, draft = trees(4, seed=3)

    law = enumerate_law(torch_program(torch_subjects.race_in_place, target, draft, 2), cross_check_calls=0)

    wanted = step_law(chain_step, draft, target, 2)
    assert wanted.keys() == law.probabilities.keys()
    assert max(abs(wanted[tokens] - law.probabilities[tokens]) for tokens in wanted) < 1e-14


def resamples_from_target(draft, draft_probs, target_probs, generator):
    ratio = target_probs[:-1].gather(1, draft[:, None])[:, 0] / draft_probs.gather(1, draft[:, None])[:, 0]
    n = int((torch.rand(len(draft), generator=generator) < ratio).long().cumprod(0).sum())
    return torch.cat([draft[:n], torch.multinomial(target_probs[n], 1, generator=generator)])


def takes_the_residual_argmax(draft, draft_probs, target_probs, generator):
    ratio = target_probs[:-1].gather(1, draft[:, None])[:, 0] / draft_probs.gather(1, draft[:, None])[:, 0]
    n = int((torch.rand(len(draft), generator=generator) < ratio).long().cumprod(0).sum())
    if n < len(draft):
        return torch.cat([draft[:n], (target_probs[n] - draft_probs[n]).argmax().view(1)])
    return torch.cat([draft[:n], torch.multinomial(target_probs[n], 1, generator=generator)])


def shares_one_uniform(draft, draft_probs, target_probs, generator):
    def one_for_all(size, dtype=None, generator=None):
        return torch.rand(1, dtype=torch.float64, generator=generator).expand(size)

    ratio = target_probs[:-1].gather(1, draft[:, None])[:, 0] / draft_probs.gather(1, draft[:, None])[:, 0]
    n = int((one_for_all(len(draft), generator=generator) < ratio).long().cumprod(0).sum())
    weights = target_probs[n] if n == len(draft) else (target_probs[n] - draft_probs[n]).clamp(min=0)
    return torch.cat([draft[:n], torch.multinomial(weights, 1, generator=generator)])


def bonus_of_the_last_row(draft, draft_probs, target_probs, generator):
    return torch_subjects.ratio_and_multinomial(
        draft, draft_probs, torch.cat([target_probs[:-1], target_probs[-2:-1]]), generator
    )


@pytest.mark.parametrize(
    ("verify", "mistake"),
    [
        (resamples_from_target, "resamples-from-target"),
        (takes_the_residual_argmax, "residual-argmax"),
        (shares_one_uniform, "uniform-shared-by-positions"),
        (bonus_of_the_last_row, "bonus-of-last-row"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_planted_mistakes_have_the_law_of_their_closed_form(verify, mistake):
    """A wrong function is enumerated as exactly as a right one, and its law is the mistake's."""
    target, draft = trees(5, seed=4)

    law = enumerate_law(torch_program(verify, target, draft, 2), cross_check_calls=200)

    wanted = step_law(mistake_named(mistake).rule, draft, target, 2)
    keys = {*wanted, *law.probabilities}
    assert max(abs(wanted.get(key, 0.0) - law.probabilities.get(key, 0.0)) for key in keys) < 1e-13
    assert tv(law, target) > 1e-3
