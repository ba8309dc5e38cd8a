"""Watched all the time, on every correct method, no process cries wolf more often than it may."""

import math

import numpy as np
import pytest

from specverify.laws.multi import multi_step_law
from specverify.laws.steps import block_step, chain_step, point_mass_step, step_law
from specverify.laws.tree import ConditionalTree
from specverify.stats.step import StepProcess

RUNS = 60


@pytest.mark.parametrize("method", ["chain", "block", "point-mass", "with-replacement", "without-replacement"])
def test_evidence_on_correct_methods_stays_within_villes_bound(method):
    """Over 60 seeded runs, watched at four looks, none exceeds 100; one in a hundred may."""
    target = ConditionalTree(3, 5, specials=("zeros", "ties"))
    draft = target.draft(6, specials=("disjoint", "near-equal"))
    rules = {"chain": chain_step, "block": block_step, "point-mass": point_mass_step}
    if method in rules:
        law = step_law(rules[method], draft, target, 2)
    else:
        law = multi_step_law(draft, target, (2, 2), with_replacement=method == "with-replacement")
    probabilities = np.array(list(law.values())) / sum(law.values())
    highest = []
    for seed in range(RUNS):
        rng = np.random.default_rng(seed)
        process = StepProcess(target, draft, 2)
        looks = []
        for count in (50, 100, 200, 400):
            process.update(dict(zip(law, rng.multinomial(count, probabilities).tolist(), strict=True)))
            looks.append(process.log_e)
        highest.append(max(looks))

    assert max(highest) < math.log(100)
