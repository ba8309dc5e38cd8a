"""The most likely mistake: found from exact laws and from counts, and refused wherever two fit."""

import numpy as np
import pytest

from specverify.core.errors import UsageError
from specverify.laws.diagnosis import Observation, fitting_mistakes, most_likely_mistake
from specverify.laws.mistakes import MISTAKES, mistake_named
from specverify.laws.steps import block_step, chain_step, step_law
from specverify.laws.tree import ConditionalTree

TARGET = ConditionalTree(3, 1)
DRAFT = TARGET.draft(2)


def exact(rule, num_draft_tokens=2):
    return Observation(step_law(rule, DRAFT, TARGET, num_draft_tokens), DRAFT, TARGET, num_draft_tokens)


def sampled(rule, num_calls, num_draft_tokens=2):
    law = step_law(rule, DRAFT, TARGET, num_draft_tokens)
    counts = np.random.default_rng(1).multinomial(num_calls, np.array(list(law.values())) / sum(law.values()))
    return Observation(dict(zip(law, counts.tolist(), strict=True)), DRAFT, TARGET, num_draft_tokens)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_every_mistake_is_recognised_from_its_exact_law(mistake):
    """The mistake itself is named, and nothing else."""
    fit = most_likely_mistake(exact(mistake.rule))

    assert fit is not None
    assert fit.mistake.name == mistake.name
    assert fit.num_refuted == len(MISTAKES) - 1


@pytest.mark.parametrize(
    ("name", "strength"),
    [
        ("accept-ratio-scaled", 1.07),
        ("draft-at-other-temperature", 0.8),
        ("target-mixed-with-draft", 0.15),
        ("residual-floor", 0.003),
        ("residual-offset", 0.0007),
        ("residual-offset", 1e-6),
    ],
)
def test_the_strength_is_found(name, strength):
    """A graded mistake is recognised at any strength, and the strength is stated."""
    fit = most_likely_mistake(exact(mistake_named(name).at(strength).rule), tolerance=1e-7)

    assert fit is not None
    assert fit.mistake.name == name
    assert fit.mistake.value == pytest.approx(strength, rel=1e-5)


@pytest.mark.parametrize("name", ["residual-argmax", "ratio-inverted", "bonus-of-last-row", "uniform-reused"])
def test_gross_mistakes_are_recognised_from_counts(name):
    """Twenty thousand calls are enough to name the cause."""
    fit = most_likely_mistake(sampled(mistake_named(name).rule, 20_000))

    assert fit is not None
    assert fit.mistake.name == name
    assert fit.p_value > 1e-4


@pytest.mark.parametrize("observation", [exact(chain_step), sampled(chain_step, 20_000)])
def test_nothing_is_named_where_nothing_is_wrong(observation):
    """A correct verifier has no mistake, although tiny ones would fit its counts."""
    assert most_likely_mistake(observation) is None


def test_nothing_is_named_where_two_fit():
    """With one draft token, always accepting and not checking the first draft token are the same thing."""
    always = exact(mistake_named("always-accepts").rule, 1)

    assert most_likely_mistake(always) is None
    assert {"always-accepts", "first-draft-unchecked"} == {fit.mistake.name for fit in fitting_mistakes([always])}


def test_a_second_scenario_tells_them_apart():
    """Scenarios are explained together: what fits one of them only is refuted."""
    rule = mistake_named("always-accepts").rule

    fit = most_likely_mistake([exact(rule, 1), exact(rule, 2)])

    assert fit is not None
    assert fit.mistake.name == "always-accepts"


def test_too_few_counts_name_nothing():
    """Thirty calls cannot tell mistakes apart, so none is named."""
    assert most_likely_mistake(sampled(mistake_named("residual-not-clipped").rule, 30)) is None


def test_an_unknown_mistake_is_not_forced_into_a_known_one():
    """A law that no mistake predicts gets no cause; nor does a correct method of another kind."""

    def halfway(tokens, draft, target):
        first, second = mistake_named("bonus-argmax").rule, mistake_named("ratio-inverted").rule
        law = {}
        for rule in (first, second):
            for emitted, probability in rule(tokens, draft, target).items():
                law[emitted] = law.get(emitted, 0.0) + 0.5 * probability
        return law

    assert most_likely_mistake(exact(halfway)) is None
    assert most_likely_mistake(exact(block_step)) is None


def test_missing_evidence_is_refused():
    """No observation is a usage error."""
    with pytest.raises(UsageError, match="at least one"):
        most_likely_mistake([])
