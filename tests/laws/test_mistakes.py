"""Laws of named mistakes, against broken code run over every path of its random choices."""

import functools

import numpy as np
import pytest

from specverify.core.errors import UsageError
from specverify.laws.mistakes import MISTAKES, mistake_named
from specverify.laws.sequence import completed_distance, total_variation
from specverify.laws.steps import chain_step, draft_paths, step_law
from specverify.laws.tree import ConditionalTree
from specverify.laws.wrong_rules import bfloat16_rounded

NAMES = [mistake.name for mistake in MISTAKES]
# Wrong only where a step has a second draft token.
NEEDS_TWO = {"uniform-shared-by-positions", "accept-row-late", "draft-rows-late", "block-stops-at-first"}
ACCEPT_ROW = {"accept-row-early": 1, "accept-row-late": -1}


class Choices:
    """Replays a list of choices and extends it, so that code with a few random choices is run over all paths."""

    def __init__(self):
        self.stack = []
        self.depth = 0

    def choose(self, probabilities):
        if self.depth == len(self.stack):
            self.stack.append([[float(p) for p in probabilities], 0])
        self.depth += 1
        return self.stack[self.depth - 1][1]

    def law_of(self, program):
        law = {}
        while True:
            self.depth = 0
            output = program(choices=self)
            weight = np.prod([weights[index] for weights, index in self.stack])
            law[output] = law.get(output, 0.0) + weight
            while self.stack and self.stack[-1][1] == len(self.stack[-1][0]) - 1:
                self.stack.pop()
            if not self.stack:
                return {output: probability for output, probability in law.items() if probability > 0.0}
            self.stack[-1][1] += 1


def softened(rows, temperature):
    return np.array([row ** (1 / temperature) / (row ** (1 / temperature)).sum() for row in rows])


def nucleus(row, top_p):
    kept, total = np.zeros_like(row), 0.0
    for token in sorted(range(len(row)), key=lambda token: (-row[token], token)):
        if total < top_p:
            kept[token] = row[token]
        total += row[token]
    return kept / kept.sum()


def wrong_rows(name, q, p):
    """The rows as the broken code sees them."""
    k = len(q)
    if name == "target-rows-early":
        p = [p[min(i + 1, k)] for i in range(k + 1)]
    if name == "target-rows-late":
        p = [p[max(i - 1, 0)] for i in range(k + 1)]
    if name == "draft-rows-late":
        q = [q[max(i - 1, 0)] for i in range(k)]
    if name == "greedy-target":
        p = [np.eye(len(row))[row.argmax()] for row in p]
    if name == "softmax-twice":
        p = [np.exp(row) / np.exp(row).sum() for row in p]
    if name == "target-in-bfloat16":
        p = bfloat16_rounded(np.array(p))
    if name == "target-in-float16":
        p = np.array(p, dtype=np.float16).astype(float)
    if name == "target-mixed-with-draft":
        p = [0.7 * p[i] + 0.3 * q[i] if i < k else p[i] for i in range(k + 1)]
    if name == "draft-at-other-temperature":
        q = softened(q, 1.1)
    if name == "target-at-other-temperature":
        p = softened(p, 1.1)
    if name == "target-cut-to-nucleus":
        p = [nucleus(row, 0.95) for row in p]
    return q, p


def threshold(name, i, drafted, wanted):
    if name == "ratio-inverted":
        return drafted / wanted
    if name == "always-accepts" or (name == "first-draft-unchecked" and i == 0):
        return 1.0
    if name == "never-accepts":
        return 0.0
    if name == "draft-not-divided-by":
        return wanted
    if name == "uniform-fixed":
        return float(wanted / drafted > 0.5)
    return (1.02 if name == "accept-ratio-scaled" else 1.0) * wanted / drafted


def replacement(name, i, token, q, p):
    k = len(q)
    mass = np.maximum(p[i] - q[i], 0.0)
    if name == "resamples-from-target":
        mass = p[i].copy()
    if name == "rejected-token-excluded":
        mass = p[i] * (np.arange(len(p[i])) != token)
    if name == "resamples-from-draft":
        mass = q[i]
    if name == "residual-not-clipped":
        mass = abs(p[i] - q[i])
    if name == "residual-inverted":
        mass = np.maximum(q[i] - p[i], 0.0)
    if name == "residual-argmax":
        mass = np.eye(len(mass))[mass.argmax()]
    if name == "residual-of-wrong-row":
        mass = np.maximum(p[i + 1] - q[min(i + 1, k - 1)], 0.0)
    if name == "residual-floor":
        mass = np.maximum(p[i] - q[i], 0.01)
    if name == "residual-offset":
        mass += 0.003
    if name == "residual-not-normalised":
        # The index of the first running sum above a uniform, cut to the last token.
        mass[-1] = 1.0 - mass[:-1].sum()
    return mass / mass.sum()


def broken_chain(name, *, choices, tokens, q, p):
    """Token-wise verification as people write it, with one mistake. A uniform is an interval that narrows."""
    q, p = wrong_rows(name, q, p)
    low, high = 0.0, 1.0
    for i, token in enumerate(tokens):
        if name != "uniform-shared-by-positions":
            low, high = 0.0, 1.0
        tested = p[max(i + ACCEPT_ROW.get(name, 0), 0)]
        edge = min(max(threshold(name, i, q[i][token], tested[token]), low), high)
        accepted = choices.choose([(edge - low) / (high - low), (high - edge) / (high - low)]) == 0
        if accepted:
            high = edge
            if high == low:
                return ()  # a path of probability zero
            continue
        law = replacement(name, i, token, q, p)
        if name == "uniform-reused":
            upper = np.cumsum(law)
            upper[-1] = 1.0
            lower = np.concatenate([[0.0], upper[:-1]])
            law = np.clip(np.minimum(upper, 1.0) - np.maximum(lower, edge), 0.0, None) / max(1.0 - edge, 1e-300)
        return (*tokens[:i], choices.choose(law))
    bonus = p[-1]
    if name == "bonus-of-last-row":
        bonus = p[-2]
    if name == "bonus-argmax":
        bonus = np.eye(len(bonus))[bonus.argmax()]
    if name == "bonus-at-other-temperature":
        (bonus,) = softened([bonus], 1.1)
    return (*tokens, choices.choose(bonus / bonus.sum()))


def broken_block(name, *, choices, tokens, q, p):
    """Block verification that breaks out of its loop at the first failed test."""
    kept, weight, weights = 0, 1.0, [1.0]
    for i, token in enumerate(tokens):
        weight = min(1.0, weight * p[i][token] / q[i][token])
        weights.append(weight)
        mass = np.maximum(weight * p[i + 1] - q[i + 1], 0.0).sum() if i + 1 < len(tokens) else 0.0
        passes = weight if i + 1 == len(tokens) else mass / (mass + 1.0 - weight)
        if choices.choose([passes, 1.0 - passes]) == 1:
            break
        kept = i + 1
    law = p[-1] if kept == len(tokens) else np.maximum(weights[kept] * p[kept] - q[kept], 0.0)
    if law.sum() == 0.0:
        return ()  # a path of probability zero
    return (*tokens[:kept], choices.choose(law / law.sum()))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("vocab_size", "num_draft_tokens", "seed"), [(3, 2, 1), (4, 1, 2), (3, 3, 3)])
def test_closed_form_is_what_the_broken_code_emits(name, vocab_size, num_draft_tokens, seed):
    """Every path of the broken code, weighted, gives the closed form to rounding."""
    target = ConditionalTree(vocab_size, seed)
    draft = target.draft(seed + 1)
    broken = broken_block if name == "block-stops-at-first" else broken_chain
    for tokens, _ in list(draft_paths(draft, num_draft_tokens))[::3]:
        q, p = draft.rows(tokens)[:-1], target.rows(tokens)

        wanted = Choices().law_of(functools.partial(broken, name, tokens=tokens, q=q, p=p))

        assert total_variation(wanted, mistake_named(name).rule(tokens, q, p)) < 1e-12


@pytest.mark.parametrize("name", NAMES)
def test_every_mistake_is_a_mistake(name):
    """Each moves the completed law of some small scenario, those that need two draft tokens only there."""
    target = ConditionalTree(4, 1)
    draft = target.draft(2)
    rule = mistake_named(name).rule

    one, three = (completed_distance(step_law(rule, draft, target, k), target).tv for k in (1, 3))

    assert three > 5e-5
    assert (one < 1e-12) == (name in NEEDS_TWO)


def test_a_point_mass_draft_can_be_wrong_too():
    """Without draft rows the rules take a point mass: resampling from the target repeats the rejected token."""
    target = ConditionalTree(4, 1)

    law = mistake_named("resamples-from-target").rule((2,), None, target.rows((2,)))

    certain = target(())[2]
    assert law[(2,)] == pytest.approx((1 - certain) * certain)


def test_strength_can_be_set_where_there_is_one():
    """A graded mistake at strength 1 is the correct rule, and its sentence states the strength."""
    target = ConditionalTree(4, 1)
    tokens = (2, 1)
    arguments = tokens, target.draft(2).rows(tokens)[:-1], target.rows(tokens)
    scaled = mistake_named("accept-ratio-scaled")

    assert scaled.at(1.0).rule(*arguments) == pytest.approx(chain_step(*arguments))
    assert "1.3" in scaled.at(1.3).sentence
    with pytest.raises(UsageError, match="no strength"):
        mistake_named("bonus-argmax").at(2.0)


def test_an_unknown_mistake_is_refused_with_the_names():
    """The names to choose from are listed."""
    with pytest.raises(UsageError, match="ratio-inverted"):
        mistake_named("typo")


def test_bfloat16_rounds_to_nearest_even():
    """Eight bits of precision, ties to even, as torch does."""
    torch = pytest.importorskip("torch")
    values = np.random.default_rng(1).random((5, 7))

    np.testing.assert_array_equal(torch.tensor(values).float().bfloat16().double().numpy(), bfloat16_rounded(values))
