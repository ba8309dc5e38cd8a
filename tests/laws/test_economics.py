"""The economics of speculation: closed forms against published figures, against each other and against simulation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from specverify.core.errors import UsageError
from specverify.laws.economics import (
    SOURCES,
    batch_speedup,
    break_even_acceptance,
    expected_tokens,
    measured_acceptance,
    optimum,
    request_rounds,
    request_speedup,
    required_acceptance,
    round_law,
    simulated_rounds,
    speedup,
    speedup_from_accepted,
)
from specverify.laws.tree_economics import best_tree, child_acceptance, tree_round_law

DOCS = Path(__file__).parent.parent.parent / "docs" / "economics.md"
GRID = [(a, k) for a in (0.0, 0.2, 0.5, 0.75, 0.99, 1 - 1e-12, 1.0) for k in (0, 1, 2, 4, 10)]
# Five standard deviations; every seed here is fixed, so this is a bound on the code and not on luck.
FAR = 5.0


def doc_rows() -> list[str]:
    """Rows of the tables of docs/economics.md."""
    rows = []
    for a in (0.3, 0.5, 0.7, 0.8, 0.9):
        tokens = [*(expected_tokens(a, k) for k in (1, 2, 4, 6, 10)), 1 / (1 - a)]
        best = [optimum(a, draft_cost=cost) for cost in (0.01, 0.05, 0.12, 0.2, 0.3)]
        rows.append(f"| {a:.2f} | {' | '.join(f'{n:.2f}' for n in tokens)} |")
        rows.append(f"| {a:.2f} | {' | '.join(f'{k}: {gain:.2f}x' for k, gain in best)} |")
    for source in SOURCES:
        k, gain = optimum(source.acceptance, draft_cost=source.draft_cost)
        rows.append(f"| {source.label} | {source.acceptance:.2f} | {source.draft_cost:.2f} | {k}: {gain:.2f}x |")
    for label, size in (("300 million", 0.3), ("700 million", 0.7), ("1.3 billion", 1.3)):
        gains = ", ".join(f"{speedup(a, 6, draft_cost=size / 7):.2f}x" for a in (0.7, 0.75, 0.8, 0.85))
        needed = required_acceptance(2.5, 6, draft_cost=size / 7)
        rows.append(f"| {label} | {size / 7:.3f} | {needed:.2f} | {gains} |".replace(" 0.", " ."))
    for size in (1, 32, 64, 128):
        gains = [batch_speedup(0.75, k, batch_size=size, ridge=150.0, draft_cost=0.12) for k in (1, 2, 4, 8)]
        rows.append(f"| {size} | {' | '.join(f'{gain:.2f}x' for gain in gains)} |")
    shares = child_acceptance([0.6, 0.3, 0.2, 0.1])
    for num_tokens in (4, 8, 16, 32):
        law = tree_round_law(best_tree(num_tokens, shares), shares)
        depth = len(law.probabilities) - 1
        rows.append(f"| {num_tokens} | {expected_tokens(0.6, num_tokens):.2f} | {law.mean:.2f} | {depth} |")
    return rows


class TestPublishedFigures:
    """Figures that two widely read lessons on speculative decoding print."""

    @pytest.mark.parametrize(
        ("acceptance", "k", "printed"), [(0.9, 6, 5.2), (0.8, 4, 3.4), (0.5, 4, 1.9), (0.3, 4, 1.4), (0.75, 4, 3.05)]
    )
    def test_expected_tokens(self, acceptance, k, printed):
        """(1 - a^(k+1)) / (1 - a), to the digits that are printed."""
        digits = len(str(printed).split(".")[1])

        assert printed == round(expected_tokens(acceptance, k), digits)

    def test_speedup_and_optimum_of_a_draft_model(self):
        """Acceptance .75, k 4, a draft token for .12 of a pass: 2.06x, and no other k is better."""
        assert round(speedup(0.75, 4, draft_cost=0.12), 2) == 2.06
        assert optimum(0.75, draft_cost=0.12).num_draft_tokens == 4

    def test_twenty_four_rounds(self):
        """2.79 tokens a pass and 1.89x over 24 rounds are 67 tokens, within one standard deviation of 3.05."""
        tokens = 67 / 24

        assert round(tokens, 2) == 2.79
        assert round(speedup_from_accepted(tokens - 1, 4 * 0.12), 2) == 1.89
        assert abs(tokens - 3.05) < round_law(0.75, 4).spread(24)

    def test_too_far_with_a_draft_model(self):
        """Acceptance .35, k 10: slower than plain decoding, for ten draft passes that bring half a token."""
        assert speedup(0.35, 10, draft_cost=0.12) < 1.0
        assert expected_tokens(0.35, 10) - 1.0 == pytest.approx(0.54, abs=0.005)

    def test_the_same_at_next_to_no_cost(self):
        """The same poor acceptance pays when drafting costs next to nothing."""
        lookup = next(source for source in SOURCES if source.name == "n-gram")

        assert speedup(0.35, 10, draft_cost=lookup.draft_cost) > 1.0

    def test_weak_source_wants_one_or_two(self):
        """With a weak draft source the best k is 1 or 2."""
        lookup = next(source for source in SOURCES if source.name == "n-gram")

        assert optimum(lookup.acceptance, draft_cost=lookup.draft_cost).num_draft_tokens in (1, 2)

    def test_drafts_that_see_hidden_states_reach_three_to_four(self):
        """Trained heads bring 3 to 4 times."""
        eagle = next(source for source in SOURCES if source.name == "eagle")

        assert 3.0 < optimum(eagle.acceptance, draft_cost=eagle.draft_cost).speedup < 4.0

    def test_from_mean_accepted(self):
        """(mean accepted + 1) / (1 + draft share): 2 to 3 accepted bring 2 to 3 times where drafting is cheap."""
        assert speedup_from_accepted(2.0, 0.0) == 3.0
        assert speedup_from_accepted(2.0, 0.5) == 2.0
        assert round(speedup_from_accepted(3.0, 1 / 3), 9) == 3.0

    @pytest.mark.parametrize("draft_cost", [0.05, 0.1])
    @pytest.mark.parametrize("acceptance", [0.6, 0.7, 0.8])
    def test_a_tenth_to_a_twentieth_of_the_target(self, acceptance, draft_cost):
        """Draft passes of 5 to 10 %, acceptance 60 to 80 %: well above 1.5x, best k from 3 to 8."""
        best = optimum(acceptance, draft_cost=draft_cost)

        assert best.speedup > 1.6
        assert 3 <= best.num_draft_tokens <= 8

    def test_a_small_draft_of_a_large_model(self):
        """300 million parameters drafting for 7 billion: 2.5x at k 6 means acceptance .71, whose best k is 6."""
        draft_cost = 0.3 / 7

        acceptance = required_acceptance(2.5, 6, draft_cost=draft_cost)

        assert acceptance == pytest.approx(0.711, abs=5e-4)
        assert optimum(acceptance, draft_cost=draft_cost).num_draft_tokens == 6

    def test_larger_drafts_gain_less(self):
        """700 million need acceptance above .80 for the same 2.5x; 1.3 billion at .80 lose most of the gain."""
        at_no_cost = expected_tokens(0.8, 6) - 1.0

        assert required_acceptance(2.5, 6, draft_cost=0.1) > 0.80
        assert speedup(0.8, 6, draft_cost=1.3 / 7) - 1.0 < 0.5 * at_no_cost

    def test_short_outputs_gain_less(self):
        """Costs that speculation does not touch weigh more in 50 tokens than in 300."""
        short, long = (request_speedup(2.5, n, fixed_cost=10.0) for n in (50, 300))

        assert short < long < 2.5

    def test_batches_use_up_what_was_idle(self):
        """At batch 1 a large gain; at batch 128, once arithmetic is the limit, every k loses."""
        gains = [
            [batch_speedup(0.75, k, batch_size=size, ridge=150.0, draft_cost=0.12) for k in range(1, 9)]
            for size in (1, 128)
        ]

        assert max(gains[0]) > 2.0
        assert max(gains[1]) < 1.0


class TestForms:
    @pytest.mark.parametrize(("acceptance", "k"), GRID)
    def test_expected_tokens_is_the_geometric_sum(self, acceptance, k):
        """1 + a + ... + a^k, also at 0, at 1 and a hair below."""
        assert expected_tokens(acceptance, k) == pytest.approx(sum(acceptance**j for j in range(k + 1)), rel=1e-12)

    @pytest.mark.parametrize(("acceptance", "k"), GRID)
    def test_round_law_is_a_law_with_that_mean(self, acceptance, k):
        """Probabilities of 1 to k + 1 tokens sum to 1 and average to the expected tokens."""
        law = round_law(acceptance, k)

        assert law.probabilities.shape == (k + 1,)
        assert law.probabilities.sum() == pytest.approx(1.0, abs=1e-14)
        assert law.mean == pytest.approx(expected_tokens(acceptance, k), rel=1e-12)

    @pytest.mark.parametrize(("acceptance", "k"), [(a, k) for a, k in GRID if a < 0.999])
    def test_variance_closed_form(self, acceptance, k):
        """(a - (2k + 1) a^(k+1) (1 - a) - a^(2k+2)) / (1 - a)^2."""
        a = acceptance
        closed = (a - (2 * k + 1) * a ** (k + 1) * (1 - a) - a ** (2 * k + 2)) / (1 - a) ** 2

        assert round_law(a, k).variance == pytest.approx(closed, rel=1e-8, abs=1e-14)

    def test_one_interior_maximum(self):
        """The speed-up rises to the optimum and falls behind it."""
        curve = [speedup(0.75, k, draft_cost=0.12) for k in range(13)]
        best = int(np.argmax(curve))

        assert (np.diff(curve[: best + 1]) > 0).all()
        assert (np.diff(curve[best:]) < 0).all()
        assert best == optimum(0.75, draft_cost=0.12).num_draft_tokens

    def test_not_worth_it(self):
        """Acceptance below the cost of a draft token pays at no k: the optimum is not to speculate."""
        assert optimum(0.1, draft_cost=0.12) == (0, 1.0)
        assert optimum(0.13, draft_cost=0.12).num_draft_tokens == 1

    def test_fixed_cost_moves_the_optimum_up(self):
        """A cost per round is shared by more tokens."""
        assert optimum(0.75, draft_cost=0.12, fixed_cost=0.5).num_draft_tokens > 4
        assert speedup(0.75, 4, draft_cost=0.12, fixed_cost=0.5) == pytest.approx(3.05078125 / 1.98)

    @pytest.mark.parametrize(("k", "cost"), [(1, 0.12), (4, 0.12), (10, 0.02), (10, 0.5)])
    def test_break_even(self, k, cost):
        """At the break-even acceptance the speed-up is 1; for one draft token it is the cost itself."""
        acceptance = break_even_acceptance(k, draft_cost=cost)

        assert speedup(acceptance, k, draft_cost=cost) == pytest.approx(1.0, abs=1e-12)
        assert k > 1 or acceptance == pytest.approx(cost)

    def test_no_break_even(self):
        """Drafting as dear as the target never pays."""
        assert break_even_acceptance(4, draft_cost=1.01) is None

    @pytest.mark.parametrize(
        "wrong",
        [
            lambda: expected_tokens(1.5, 4),
            lambda: expected_tokens(0.5, -1),
            lambda: expected_tokens(float("nan"), 4),
            lambda: speedup(0.5, 4, draft_cost=-0.1),
            lambda: speedup(0.5, 4, draft_cost=float("inf")),
            lambda: measured_acceptance([0], [0]),
            lambda: measured_acceptance([3], [2]),
        ],
    )
    def test_wrong_arguments(self, wrong):
        """What cannot be meant is refused."""
        with pytest.raises(UsageError):
            wrong()


class TestSimulation:
    @pytest.mark.parametrize("num_rounds", [24, 10_000])
    @pytest.mark.parametrize(("acceptance", "k"), [(0.75, 4), (0.35, 10), (0.9, 6)])
    def test_mean(self, acceptance, k, num_rounds):
        """Simulated tokens per pass lie within the spread that the closed form gives for so many rounds."""
        tokens = simulated_rounds(acceptance, k, num_rounds=num_rounds, rng=np.random.default_rng(7))
        law = round_law(acceptance, k)

        assert abs(tokens.mean() - law.mean) < FAR * law.spread(num_rounds)

    @pytest.mark.parametrize(("acceptance", "k"), [(0.75, 4), (0.35, 10), (0.9, 6)])
    def test_law(self, acceptance, k):
        """How often 1, 2, ... k + 1 tokens came out of 10,000 rounds."""
        num_rounds = 10_000
        tokens = simulated_rounds(acceptance, k, num_rounds=num_rounds, rng=np.random.default_rng(8))
        wanted = round_law(acceptance, k).probabilities

        seen = np.bincount(tokens - 1, minlength=k + 1) / num_rounds

        assert len(seen) == k + 1
        assert (np.abs(seen - wanted) <= FAR * np.sqrt(wanted * (1 - wanted) / num_rounds) + 1e-3).all()

    def test_spread_of_short_runs(self):
        """The means of many runs of 24 rounds scatter as the closed form says."""
        law = round_law(0.75, 4)
        tokens = simulated_rounds(0.75, 4, num_rounds=24 * 5_000, rng=np.random.default_rng(9))

        scatter = tokens.reshape(5_000, 24).mean(axis=1).std()

        # The standard deviation of 5,000 runs is itself known to 1 %.
        assert scatter == pytest.approx(law.spread(24), rel=0.04)

    def test_rounds_of_a_request(self):
        """Mean and spread of the rounds that 200 tokens take: the price in latency variance."""
        law = round_law(0.75, 4)
        tokens = simulated_rounds(0.75, 4, num_rounds=4_000 * 200, rng=np.random.default_rng(10)).reshape(4_000, 200)

        needed = (np.cumsum(tokens, axis=1) < 200).sum(axis=1) + 1
        mean, spread = request_rounds(law, 200)

        assert abs(needed.mean() - mean) < FAR * spread / np.sqrt(4_000)
        assert needed.std() == pytest.approx(spread, rel=0.06)

    def test_plain_decoding_has_no_spread(self):
        """Without draft tokens every token takes one pass."""
        mean, spread = request_rounds(round_law(0.75, 0), 50)

        assert (mean, spread) == (50.0, 0.0)

    def test_measured_acceptance(self):
        """Rounds give the acceptance back that they were drawn with; accepted over proposed would be far too low."""
        accepted = simulated_rounds(0.75, 4, num_rounds=10_000, rng=np.random.default_rng(11)) - 1

        measured = measured_acceptance(accepted, np.full(10_000, 4))

        assert abs(measured.value - 0.75) < FAR * measured.standard_error
        assert accepted.sum() / 40_000 < 0.55


class TestDocs:
    """The tables of docs/economics.md are what the functions give."""

    @pytest.mark.parametrize("row", doc_rows(), ids=lambda row: row.split("|")[1].strip())
    def test_row(self, row):
        """Every row, computed again."""
        assert row in DOCS.read_text(encoding="utf-8")
