"""The page's figures are those of specverify.laws.economics, and it shows what it computes."""

from __future__ import annotations

import json

import numpy as np
import pytest

from specverify.laws import economics

ACCEPTANCES = (0.0, 0.1, 0.3, 0.35, 0.5, 0.75, 0.9, 0.99, 1.0)
DRAFT_TOKENS = (1, 2, 4, 6, 10, 16)
COSTS = (0.0, 0.02, 0.12, 0.5)
SEED = 1


def set_sliders(browser, **values) -> None:
    """Moves sliders as a hand would: value and input event."""
    for name, value in values.items():
        browser.evaluate(
            f"(() => {{ const it = document.getElementById({json.dumps(name)}); it.value = {value};"
            "it.dispatchEvent(new Event('input')); })()"
        )


def text_of(browser, name: str) -> str:
    return browser.evaluate(f"document.getElementById({json.dumps(name)}).textContent")


def python_uniforms(seed: int, count: int) -> np.ndarray:
    """mulberry32, written a second time with 64-bit numbers and masks."""
    mask, state, found = 0xFFFFFFFF, seed, []
    for _ in range(count):
        state = (state + 0x6D2B79F5) & mask
        t = ((state ^ (state >> 15)) * (state | 1)) & mask
        t ^= (t + (((t ^ (t >> 7)) * (t | 61)) & mask)) & mask
        found.append(((t ^ (t >> 14)) & mask) / 2**32)
    return np.array(found)


def grid_in_the_page(browser, expression: str) -> np.ndarray:
    """Value of a JavaScript expression of a, k and c over the whole grid."""
    return np.array(
        browser.evaluate(
            f"{json.dumps(ACCEPTANCES)}.map((a) => {json.dumps(DRAFT_TOKENS)}.map((k) => "
            f"{json.dumps(COSTS)}.map((c) => ({expression}) ?? -1)))"
        )
    )


def grid_here(function) -> np.ndarray:
    values = [[[function(a, k, c) for c in COSTS] for k in DRAFT_TOKENS] for a in ACCEPTANCES]
    return np.array([[[-1 if value is None else value for value in row] for row in rows] for rows in values])


@pytest.mark.parametrize(
    ("expression", "function"),
    [
        ("economics.expectedTokens(a, k)", lambda a, k, c: economics.expected_tokens(a, k)),
        ("economics.roundLaw(a, k).mean", lambda a, k, c: economics.round_law(a, k).mean),
        ("economics.roundLaw(a, k).variance", lambda a, k, c: economics.round_law(a, k).variance),
        ("economics.roundLaw(a, k).probabilities[1]", lambda a, k, c: economics.round_law(a, k).probabilities[1]),
        ("economics.roundCost(k, c)", lambda a, k, c: economics.round_cost(k, draft_cost=c)),
        ("economics.speedup(a, k, c)", lambda a, k, c: economics.speedup(a, k, draft_cost=c)),
        ("economics.optimum(a, c).speedup", lambda a, k, c: economics.optimum(a, draft_cost=c).speedup),
        ("economics.breakEven(k, c)", lambda a, k, c: economics.break_even_acceptance(k, draft_cost=c)),
        (
            "economics.requestRounds(a, k, 50).mean",
            lambda a, k, c: economics.request_rounds(economics.round_law(a, k), 50)[0],
        ),
    ],
)
def test_same_formulas(browser, expression, function):
    """Over the whole grid of acceptance, k and cost."""
    assert grid_in_the_page(browser, expression) == pytest.approx(grid_here(function), rel=1e-10, abs=1e-12)


def test_same_spread_of_a_request(browser):
    """A difference of near numbers, so it is compared a little less closely."""
    ours = grid_here(lambda a, k, c: economics.request_rounds(economics.round_law(a, k), 50)[1])

    assert grid_in_the_page(browser, "economics.requestRounds(a, k, 50).spread") == pytest.approx(ours, abs=1e-5)


def test_same_optimum(browser):
    """The best k itself, wherever there is one (free drafting has none: the last digit decides)."""
    found = grid_in_the_page(browser, "c === 0 ? 0 : economics.optimum(a, c).k")

    assert (found == grid_here(lambda a, k, c: c and economics.optimum(a, draft_cost=c).num_draft_tokens)).all()


def test_same_measured_acceptance(browser):
    """Accepted over judged, with its standard error."""
    ours = economics.measured_acceptance([3, 0, 1, 4], [4, 4, 2, 4])

    found = browser.evaluate("economics.measuredAcceptance([3, 0, 1, 4], [4, 4, 2, 4])")

    assert found == pytest.approx(
        {"value": ours.value, "standardError": ours.standard_error, "tests": ours.num_tests}, rel=1e-12
    )


def test_same_dice(browser):
    """The page's random numbers, computed a second time here."""
    found = browser.evaluate("Array.from(economics.uniforms(12345, 500))")

    assert found == python_uniforms(12345, 500).tolist()


def test_dice_are_uniform(browser):
    """Mean, variance and neighbours of 160,000 of them."""
    found = np.array(browser.evaluate("Array.from(economics.uniforms(1, 160000))"))

    assert abs(found.mean() - 0.5) < 5 / np.sqrt(12 * 160_000)
    assert abs(found.var() - 1 / 12) < 5 * np.sqrt(1 / 180 / 160_000)
    assert abs(np.corrcoef(found[:-1], found[1:])[0, 1]) < 5 / np.sqrt(160_000)


@pytest.mark.parametrize("num_rounds", [24, 10_000])
def test_simulated_figure(browser, num_rounds):
    """The simulated tokens per pass are what these dice give, with the standard error of theory."""
    browser.evaluate(
        f"(() => {{ const it = document.getElementById('num-rounds'); it.value = '{num_rounds}';"
        "it.dispatchEvent(new Event('change')); })()"
    )
    is_accepted = python_uniforms(SEED, num_rounds * 16).reshape(num_rounds, 16)[:, :4] < 0.75
    mean = 1 + np.cumprod(is_accepted, axis=1).sum(axis=1).mean()
    law = economics.round_law(0.75, 4)

    assert text_of(browser, "simulated-tokens") == f"{mean:.2f} ± {law.spread(num_rounds):.2f}"
    assert abs(mean - law.mean) < 5 * law.spread(num_rounds)


def test_opens_with_a_draft_model(browser):
    """Acceptance .75, k 4, cost .12: 3.05 tokens, 2.06x, and 4 is the best k, marked on the curve."""
    assert text_of(browser, "theory-tokens") == "3.05"
    assert text_of(browser, "theory-speedup") == "2.06x"
    assert text_of(browser, "best-k") == "4"
    assert "best k = 4, 2.06x" in text_of(browser, "speedup-chart")


def test_too_far_is_slower(browser):
    """Acceptance .35, k 10 with a draft model is below 1x, and the page says so; at n-gram's cost it is above."""
    set_sliders(browser, alpha=0.35, k=10)

    assert text_of(browser, "theory-speedup") == "0.70x"
    assert text_of(browser, "verdict").startswith("0.70x: slower than plain decoding")

    set_sliders(browser, cost=0.02)

    assert text_of(browser, "theory-speedup") == "1.28x"


@pytest.mark.parametrize("source", economics.SOURCES, ids=lambda source: source.name)
def test_sources_set_cost_and_acceptance(browser, source):
    """Choosing a draft source moves both sliders."""
    browser.evaluate(f"document.querySelector('[name=source][value={source.name}]').click()")

    best = economics.optimum(source.acceptance, draft_cost=source.draft_cost)
    assert text_of(browser, "alpha-out") == f"{source.acceptance:.2f}"
    assert text_of(browser, "cost-out") == f"{source.draft_cost:.2f}"
    assert text_of(browser, "best-k") == str(best.num_draft_tokens)


def test_corners(browser):
    """Every end of every slider shows numbers."""
    for alpha in (0, 1):
        for k in (1, 16):
            for cost in (0, 0.5):
                set_sliders(browser, alpha=alpha, k=k, cost=cost)
                words = browser.evaluate("document.body.innerText + document.querySelector('svg').outerHTML")
                assert not {"NaN", "undefined", "Infinity"} & set(words.replace('"', " ").replace(",", " ").split())
