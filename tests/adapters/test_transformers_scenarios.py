"""What `specverify check transformers` puts its engines through: the options must bite, and the drafts must count."""

from __future__ import annotations

import numpy as np
import pytest

from specverify.core.errors import UsageError
from specverify.core.scenario import EOS_OPTION, Purpose, Scenario, scenarios_of
from specverify.core.types import SamplingParams
from specverify.laws.sequence import sequence_law, total_variation
from specverify.probe import ProbePair, write_probe

pytest.importorskip("torch")
pytest.importorskip("transformers")

from specverify.adapters.telling_prompts import find_telling_prompt, lookup_draft_law
from specverify.adapters.transformers import MODES
from specverify.adapters.transformers_scenarios import engines, probe_scenarios, telling_prompt

NEEDED_OPTIONS = {"", "temperature", "top_p", "repetition_penalty", EOS_OPTION}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> ProbePair:
    return write_probe(tmp_path_factory.mktemp("probe") / "pair")


@pytest.fixture(scope="module")
def scenarios(pair: ProbePair) -> dict[str, tuple[Scenario, ...]]:
    return {mode: probe_scenarios(pair, mode) for mode in MODES}


def exact_law(pair: ProbePair, scenario: Scenario) -> dict[tuple[int, ...], float]:
    request = scenario.request()
    conditional = pair.target_oracle.conditional(request.prompt_token_ids, request.sampling)
    return sequence_law(conditional, request.max_new_tokens, eos_token_ids=request.eos_token_ids)


@pytest.mark.parametrize("mode", MODES)
def test_every_option_has_a_stream_and_an_exact_scenario(scenarios, mode: str) -> None:
    """Plain, temperature, top-k, top-p, repetition penalty and end tokens, each by itself."""
    exact = {one.option for one in scenarios[mode] if one.purpose is Purpose.EXACT}
    streams = {one.option for one in scenarios[mode] if one.purpose is Purpose.STREAM}

    assert exact == NEEDED_OPTIONS
    assert NEEDED_OPTIONS | {"top_k"} == streams


@pytest.mark.parametrize("mode", MODES)
def test_every_option_moves_the_exact_law(pair: ProbePair, scenarios, mode: str) -> None:
    """By a tenth at least; with an option that changes nothing, a pass would say nothing about it."""
    for scenario in scenarios[mode]:
        without = scenario.without_option()
        if scenario.purpose is Purpose.EXACT and without is not None:
            assert total_variation(exact_law(pair, scenario), exact_law(pair, without)) > 0.1, scenario.name


@pytest.mark.parametrize("mode", MODES)
def test_exact_scenarios_are_small_and_not_certain(pair: ProbePair, scenarios, mode: str) -> None:
    """Few outputs, so that an enumeration is quick; none nearly certain, so that there is something to get wrong."""
    for scenario in scenarios[mode]:
        if scenario.purpose is Purpose.EXACT:
            law = exact_law(pair, scenario)
            assert 3 <= len(law) <= 300, scenario.name
            assert max(law.values()) < 0.9, scenario.name


@pytest.mark.parametrize("mode", MODES)
def test_first_draft_token_can_be_accepted_and_rejected(pair: ProbePair, mode: str) -> None:
    assert 0.15 < telling_prompt(pair, mode).acceptance < 0.95


def test_telling_prompts_are_reproducible(pair: ProbePair) -> None:
    """The same pair gives the same prompts: a failure can be rerun."""
    assert telling_prompt(pair, "assistant") == telling_prompt(pair, "assistant")


def test_telling_prompt_is_the_best_candidate(pair: ProbePair) -> None:
    """Of a prompt that leaves hardly a choice and one that does, the one that does."""
    plain = SamplingParams(top_k=2)
    oracle = pair.target_oracle
    first_laws = {word: np.sort(oracle.conditional((1, word), plain)(())) for word in range(4, pair.vocab_size)}
    certain = max(first_laws, key=lambda word: first_laws[word][-1])
    open_ended = min(first_laws, key=lambda word: first_laws[word][-1])

    found = find_telling_prompt(
        oracle, lambda ids: oracle.conditional(ids, plain)(()), [(1, certain), (1, open_ended)],
        plain=plain, options=[], num_tokens=1,
    )  # fmt: skip

    assert (1, open_ended) == found.token_ids


def test_telling_prompt_needs_candidates(pair: ProbePair) -> None:
    with pytest.raises(UsageError, match="no candidate prompts"):
        find_telling_prompt(
            pair.target_oracle, lookup_draft_law(32), [], plain=SamplingParams(), options=[], num_tokens=1
        )


@pytest.mark.parametrize(
    ("token_ids", "drafted"),
    [((5, 6, 7, 5), 6), ((5, 6, 7, 8, 6, 9, 5, 6), 7), ((5, 6, 7), None), ((5, 5), 5)],
)
def test_lookup_drafts_what_followed_the_last_tokens_before(token_ids: tuple[int, ...], drafted: int | None) -> None:
    """Two matching tokens go before one, the first occurrence before later ones; no match, no draft."""
    law = lookup_draft_law(16)(token_ids)

    assert ({drafted} if drafted is not None else set()) == set(np.flatnonzero(law).tolist())


def test_engines_are_one_for_each_mode(pair: ProbePair) -> None:
    """Named as a reader would call them, with the probe loaded and their scenarios on board."""
    made = engines(probe=pair)

    assert [e.name for e in made] == ["transformers assistant", "transformers prompt-lookup", "transformers early-exit"]
    assert all(engine.checkpoint is pair and scenarios_of(engine, Purpose.STREAM) for engine in made)


def test_lossy_switch_leaves_out_the_mode_without_a_draft_law(pair: ProbePair) -> None:
    made = engines(probe=pair, assistant_ensemble_weight=0.7)

    assert [engine.mode for engine in made] == ["assistant", "early-exit"]
    assert all(engine.ensemble_weight == 0.7 and not engine.lossy_by_design for engine in made)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"model": "gpt-5"}, "model 'gpt-5' is unknown; choose from probe, smollm2"),
        ({"modes": "assistant,medusa"}, "mode 'medusa' is unknown; choose from assistant, prompt-lookup, early-exit"),
        ({"modes": "prompt-lookup", "assistant_ensemble_weight": 0.7}, "no draft law to mix in"),
        ({"probe": "/nowhere"}, "holds no probe pair"),
    ],
)
def test_wrong_options_end_in_one_sentence(pair: ProbePair, options: dict, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        engines(**({"probe": pair} if options.get("model") is None and "probe" not in options else {}), **options)
