"""Sampling parameters, against small cases written out and against transformers' own processors."""

import numpy as np
import pytest

from specverify.core.errors import UsageError
from specverify.core.types import SamplingParams
from specverify.laws.sampling import law_from_logits, processed_logits

LOGITS = np.log([0.4, 0.3, 0.2, 0.1])


def law(logits=LOGITS, *, prompt=(), output=(), **parameters):
    return law_from_logits(logits, SamplingParams(**parameters), prompt_token_ids=prompt, output_token_ids=output)


def test_plain_sampling_is_softmax():
    """Without parameters the law is the softmax of the logits."""
    np.testing.assert_allclose([0.4, 0.3, 0.2, 0.1], law())


def test_temperature_zero_is_the_lowest_of_the_best():
    """Greedy puts everything on the argmax, the lowest id on a tie."""
    np.testing.assert_array_equal([0.0, 1.0, 0.0], law([0.0, 2.0, 2.0], temperature=0.0))


def test_top_k_keeps_ties_with_the_last_one():
    """Of tied tokens none is preferred."""
    np.testing.assert_allclose([0.5, 0.25, 0.25, 0.0], law(np.log([0.4, 0.2, 0.2, 0.1]), top_k=2))


def test_top_p_keeps_the_token_that_crosses():
    """The smallest set of likeliest tokens with at least top_p of the mass."""
    np.testing.assert_allclose(np.array([4, 3, 0, 0]) / 7, law(top_p=0.6))
    np.testing.assert_allclose([1.0, 0.0, 0.0, 0.0], law(top_p=0.01))


def test_min_p_is_relative_to_the_likeliest():
    """Tokens below min_p times the largest probability go."""
    np.testing.assert_allclose(np.array([4, 3, 0, 0]) / 7, law(min_p=0.6))


def test_temperature_comes_before_top_p():
    """A hot temperature flattens the law first, so more tokens stay."""
    assert np.count_nonzero(law(top_p=0.65)) == 2
    assert np.count_nonzero(law(top_p=0.65, temperature=3.0)) == 3


def test_repetition_divides_positive_and_multiplies_negative_logits():
    """Prompt and output both count as seen."""
    values = processed_logits(
        [2.0, -2.0, 1.0], SamplingParams(repetition_penalty=2.0), prompt_token_ids=[0], output_token_ids=[1]
    )

    np.testing.assert_allclose([1.0, -4.0, 1.0], values)


def test_presence_and_frequency_see_only_the_output():
    """Presence is paid once, frequency per occurrence, the prompt is free."""
    sampling = SamplingParams(presence_penalty=0.5, frequency_penalty=0.25)

    values = processed_logits([0.0, 0.0, 0.0], sampling, prompt_token_ids=[0], output_token_ids=[1, 1, 2])

    np.testing.assert_allclose([0.0, -1.0, -0.75], values)


@pytest.mark.parametrize(
    "parameters",
    [
        {"temperature": 0.7},
        {"top_k": 5},
        {"top_p": 0.8},
        {"min_p": 0.1},
        {"repetition_penalty": 1.4},
        {"temperature": 1.3, "top_k": 12, "top_p": 0.9, "min_p": 0.02, "repetition_penalty": 1.2},
    ],
)
def test_transformers_agrees(parameters):
    """Values and order are those of transformers' processors, in float64."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    history = [3, 7, 3]
    logits = np.random.default_rng(1).normal(size=20) * 2
    config = transformers.GenerationConfig(do_sample=True, **{"top_k": 0, **parameters})
    warpers = {
        "repetition_penalty": transformers.RepetitionPenaltyLogitsProcessor,
        "temperature": transformers.TemperatureLogitsWarper,
        "top_k": transformers.TopKLogitsWarper,
        "top_p": transformers.TopPLogitsWarper,
        "min_p": transformers.MinPLogitsWarper,
    }
    scores = torch.tensor(logits)[None]
    for name, warper in warpers.items():
        if name in parameters:
            scores = warper(getattr(config, name))(torch.tensor([history]), scores)

    values = processed_logits(
        logits, SamplingParams(**parameters), prompt_token_ids=history[:2], output_token_ids=history[2:]
    )

    np.testing.assert_allclose(scores[0].numpy(), values, rtol=1e-12)


@pytest.mark.parametrize(
    ("logits", "parameters", "says"),
    [
        ([0.0, np.nan], {}, r"logits\[1\] is nan"),
        ([-np.inf, -np.inf], {}, "at least one token"),
        ([0.0, 1.0], {"temperature": -1.0}, "temperature is -1.0"),
        ([0.0, 1.0], {"top_p": 0.0}, "above 0 and at most 1"),
        ([0.0, 1.0], {"top_k": -1}, "top_k is -1"),
        ([0.0, 1.0], {"min_p": 2.0}, "between 0 and 1"),
        ([0.0, 1.0], {"repetition_penalty": 0.0}, "above 0"),
    ],
)
def test_bad_logits_and_parameters_are_refused(logits, parameters, says):
    """Each refusal names the value and the rule."""
    with pytest.raises(UsageError, match=says):
        law(logits, **parameters)


def test_a_seen_token_outside_the_vocabulary_is_refused():
    """A history from another tokenizer is named, not wrapped around."""
    with pytest.raises(UsageError, match=r"output_token_ids\[0\] is 9"):
        law(output=[9], presence_penalty=1.0)


def test_forbidden_tokens_are_gone_before_everything_else():
    """Filters count allowed tokens only, and greedy takes the best of them."""
    allowed = [False, True, True, True]

    def constrained(**parameters):
        return law_from_logits(LOGITS, SamplingParams(**parameters), is_allowed=allowed)

    np.testing.assert_allclose(np.array([0, 3, 2, 1]) / 6, constrained())
    np.testing.assert_allclose(np.array([0, 3, 2, 0]) / 5, constrained(top_k=2))
    np.testing.assert_array_equal([0.0, 1.0, 0.0, 0.0], constrained(temperature=0.0))


def test_rows_may_allow_different_tokens():
    """And one that allows none is refused."""
    rows = law_from_logits([LOGITS, LOGITS], SamplingParams(), is_allowed=np.eye(4, dtype=bool)[[2, 0]])

    np.testing.assert_array_equal(np.eye(4)[[2, 0]], rows)
    with pytest.raises(UsageError, match="-inf everywhere"):
        law_from_logits(LOGITS, SamplingParams(), is_allowed=[False] * 4)
