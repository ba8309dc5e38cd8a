"""The transformers adapter: what it asks of generate(), what it records, and what it says when it can't."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest

from specverify.core.capabilities import Capability
from specverify.core.constraint import Constraint
from specverify.core.errors import UsageError
from specverify.core.types import Request, SamplingParams, Trace
from specverify.exact.law import enumerate_law
from specverify.laws.sequence import sequence_law, total_variation
from specverify.probe import ProbePair, write_probe

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from specverify.adapters.transformers import MODES, TransformersEngine  # noqa: E402

GREEDY = SamplingParams(temperature=0.0)
NEW_TOKENS = 12
# transformers computes norms, rotary angles and softmax in float32 even in a float64 model; measured 2e-6.
FLOAT32_INSIDE = 5e-5


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> ProbePair:
    return write_probe(tmp_path_factory.mktemp("probe") / "pair")


@pytest.fixture(scope="module")
def engines(pair: ProbePair) -> dict[str, TransformersEngine]:
    return {
        mode: TransformersEngine(pair.target_dir, pair.draft_dir, mode=mode, checkpoint=pair, record_kv_rows=True)
        for mode in MODES
    }


def prompt_for(pair: ProbePair, mode: str) -> tuple[int, ...]:
    return pair.lookup_prompts[0] if mode == "prompt-lookup" else pair.prompts[2]


def run(
    engine: TransformersEngine, prompt: tuple[int, ...], sampling: SamplingParams, *, speculate: bool = True, **more
) -> Trace:
    request = replace(Request(prompt, NEW_TOKENS, sampling, seed=5), **more)
    (trace,) = engine.generate([request], speculate=speculate)
    return trace


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("sampling", [GREEDY, SamplingParams(), SamplingParams(temperature=0.7, top_k=5, top_p=0.9)])
def test_steps_add_up_to_the_output(engines, pair: ProbePair, mode: str, sampling: SamplingParams) -> None:
    """Every token of the output came from a step, in order; nothing came from a prefill of its own."""
    prompt = prompt_for(pair, mode)

    trace = run(engines[mode], prompt, sampling)

    assert sum((step.token_ids for step in trace.steps), ()) == trace.token_ids
    assert trace.first_from_prefill == 0
    assert [step.start_position for step in trace.steps] == [
        len(prompt) + sum(len(earlier.token_ids) for earlier in trace.steps[:index])
        for index in range(len(trace.steps))
    ]
    assert any(step.num_draft_tokens for step in trace.steps)


@pytest.mark.parametrize("mode", MODES)
def test_greedy_is_the_same_with_and_without_speculation(engines, pair: ProbePair, mode: str) -> None:
    """On a pair without near ties, and without steps where nothing was speculated."""
    prompt = prompt_for(pair, mode)

    on, off = (run(engines[mode], prompt, GREEDY, speculate=speculate) for speculate in (True, False))

    assert on.token_ids == off.token_ids
    assert off.steps == ()
    assert len(on.token_ids) == NEW_TOKENS


@pytest.mark.parametrize("mode", MODES)
def test_accepted_tokens_are_the_leading_draft_tokens(engines, pair: ProbePair, mode: str) -> None:
    """A step commits what it accepted of the draft, then one token that the rejected draft token was not."""
    trace = run(engines[mode], prompt_for(pair, mode), SamplingParams())

    for step in trace.steps:
        accepted = step.draft_token_ids[: step.num_accepted]
        assert step.token_ids == (*accepted, step.token_ids[-1])
        if step.is_rejection:
            assert step.token_ids[-1] != step.draft_token_ids[step.num_accepted]


@pytest.mark.parametrize("mode", MODES)
def test_counts_are_those_of_the_steps(engines, pair: ProbePair, mode: str) -> None:
    """Proposed and accepted, counted from shapes alone, agree with the tokens of the steps."""
    trace = run(engines[mode], prompt_for(pair, mode), SamplingParams())

    assert trace.num_proposed == sum(step.num_draft_tokens for step in trace.steps)
    assert trace.num_accepted == sum(step.num_accepted for step in trace.steps)


@pytest.mark.parametrize("speculate", [True, False])
@pytest.mark.parametrize("mode", MODES)
def test_log_probabilities_are_those_of_the_logits(engines, pair: ProbePair, mode: str, speculate: bool) -> None:
    """Assisted generation returns the target's logits of every emitted token, before temperature and filters."""
    prompt, sampling = prompt_for(pair, mode), SamplingParams(temperature=0.7, top_k=5, repetition_penalty=1.2)

    trace = run(engines[mode], prompt, sampling, speculate=speculate)

    scores = engines[mode].score(prompt, trace.token_ids)
    wanted = scores[np.arange(len(scores)), list(trace.token_ids)]
    np.testing.assert_allclose(trace.log_probs, wanted, rtol=0, atol=FLOAT32_INSIDE)


def test_log_probabilities_are_asked_for_where_laws_are_recorded(engines, pair: ProbePair) -> None:
    """The quiet engine returns none, declares none, and gives the same tokens."""
    loud, silent = engines["assistant"], engines["assistant"].quiet()

    traces = [run(engine, pair.prompts[2], SamplingParams()) for engine in (loud, silent)]

    assert traces[0].token_ids == traces[1].token_ids
    assert traces[0].log_probs is not None
    assert traces[1].log_probs is None
    assert Capability.LOGPROBS in loud.capabilities - silent.capabilities


@pytest.mark.parametrize("sampling", [GREEDY, SamplingParams(temperature=0.7, top_k=5)], ids=["greedy", "sampled"])
@pytest.mark.parametrize("mode", MODES)
def test_constraints_are_kept(engines, pair: ProbePair, mode: str, sampling: SamplingParams) -> None:
    """With speculation and without; greedily the two give one text."""
    classes = [range(first, 32, 3) for first in (4, 5, 6)]
    constraint = Constraint(
        tuple(tuple((word, (number + 1) % 3) for word in one) for number, one in enumerate(classes)), frozenset({2})
    )

    on, off = (
        run(engines[mode], prompt_for(pair, mode), sampling, speculate=speculate, constraint=constraint)
        for speculate in (True, False)
    )

    assert all(constraint.state_after(trace.token_ids) is not None for trace in (on, off))
    assert len(on.token_ids) == NEW_TOKENS
    assert not sampling.is_greedy or on.token_ids == off.token_ids


def test_a_constraint_that_can_be_complete_needs_an_end_token(engines, pair: ProbePair) -> None:
    """generate() ends outputs by nothing else; with one, the output ends."""
    constraint = Constraint(({4: 1, 5: 1}, {6: 2}, {}), frozenset({2}))
    prompt = pair.prompts[2]

    with pytest.raises(UsageError, match="can be complete, and no eos_token_ids"):
        run(engines["assistant"], prompt, GREEDY, constraint=constraint)
    trace = run(engines["assistant"], prompt, GREEDY, constraint=constraint, eos_token_ids=(pair.eos_token_id,))
    assert trace.token_ids[1:] == (6, pair.eos_token_id)


@pytest.mark.parametrize("mode", MODES)
def test_laws_are_recorded_as_they_were_used(engines, pair: ProbePair, mode: str) -> None:
    """The recorded target rows are the oracle's conditionals, the draft rows those of the model that drafts."""
    prompt = prompt_for(pair, mode)
    # Not a temperature: transformers 5.24 applies it twice to drafts, which costs acceptance and breaks no law.
    sampling = SamplingParams(top_k=5)
    drafter = {"assistant": pair.draft_oracle, "early-exit": pair.target_oracle.early_exit(1)}.get(mode)

    trace = run(engines[mode], prompt, sampling)

    for step in trace.steps:
        said = trace.token_ids[: step.start_position - len(prompt)]
        places = [(*said, *step.draft_token_ids[:index]) for index in range(step.num_draft_tokens + 1)]
        target = pair.target_oracle.conditional(prompt, sampling)
        np.testing.assert_allclose(step.target_probs, [target(place) for place in places], atol=FLOAT32_INSIDE)
        if drafter is None:
            assert step.draft_probs is None
        elif step.draft_token_ids:
            draft = drafter.conditional(prompt, sampling)
            np.testing.assert_allclose(step.draft_probs, [draft(place) for place in places[:-1]], atol=FLOAT32_INSIDE)


@pytest.mark.parametrize("mode", MODES)
def test_cache_rows_are_those_of_a_fresh_prefill(engines, pair: ProbePair, mode: str) -> None:
    """Target one committed token behind, drafter two, and the rows are what a prefill of those tokens gives."""
    prompt = prompt_for(pair, mode)

    trace = run(engines[mode], prompt, SamplingParams())

    committed = (*prompt, *trace.token_ids)
    for step, following in zip(trace.steps, trace.steps[1:], strict=False):
        end = step.start_position + len(step.token_ids)
        assert end - trace.kv_lag == step.target_kv_length_after
        target_rows = engines[mode].prefill_kv_rows("target", committed[: end - 1])
        np.testing.assert_allclose(step.target_kv_rows, target_rows, atol=FLOAT32_INSIDE)
        if mode == "prompt-lookup":
            assert step.draft_kv_length_after is None
        elif following.draft_token_ids:  # that is when the drafter rolls its cache back
            assert end - trace.draft_kv_lag == step.draft_kv_length_after
            draft_rows = engines[mode].prefill_kv_rows("draft", committed[: end - 2])
            np.testing.assert_allclose(step.draft_kv_rows, draft_rows, atol=FLOAT32_INSIDE)


def test_positions_follow_the_tokens(engines, pair: ProbePair) -> None:
    """The target computes what it lacks and the draft; the drafter what it lacks and all draft tokens but the last."""
    trace = run(engines["assistant"], pair.prompts[2], SamplingParams())

    for index, step in enumerate(trace.steps[:-1]):
        first = 0 if index == 0 else step.start_position - 1
        assert step.target_positions == tuple(range(first, step.start_position + step.num_draft_tokens))
        first = 0 if index == 0 else step.start_position - 2
        assert step.draft_positions == tuple(range(first, step.start_position + step.num_draft_tokens - 1))


def test_seed_fixes_the_output_and_leaves_the_users_generator_alone(engines, pair: ProbePair) -> None:
    """Same seed, same tokens; another seed, others; torch's own generator goes on as if nothing had happened."""
    torch.manual_seed(0)
    undisturbed = torch.rand(3)
    torch.manual_seed(0)

    outputs = [run(engines["assistant"], pair.prompts[2], SamplingParams(), seed=seed).token_ids for seed in (1, 1, 2)]

    assert outputs[0] == outputs[1] != outputs[2]
    assert torch.equal(undisturbed, torch.rand(3))


def test_request_without_a_seed_draws_from_torchs_own_generator(engines, pair: ProbePair) -> None:
    """That is where an enumeration, or a user's manual_seed, takes hold."""
    outputs = []
    for _ in range(2):
        torch.manual_seed(7)
        outputs.append(run(engines["assistant"], pair.prompts[2], SamplingParams(), seed=None).token_ids)

    assert outputs[0] == outputs[1]


def test_quiet_engine_gives_the_same_tokens_without_laws_and_rows(engines, pair: ProbePair) -> None:
    """And says so in what it declares."""
    loud = run(engines["assistant"], pair.prompts[2], SamplingParams())
    quiet = run(engines["assistant"].quiet(), pair.prompts[2], SamplingParams())

    assert loud.token_ids == quiet.token_ids
    assert [step.token_ids for step in loud.steps] == [step.token_ids for step in quiet.steps]
    assert all(step.target_probs is None and step.target_kv_rows is None for step in quiet.steps)
    assert {Capability.KV_ROWS, Capability.TARGET_PROBS, Capability.DRAFT_PROBS, Capability.LOGPROBS} == (
        engines["assistant"].capabilities - engines["assistant"].quiet().capabilities
    )


def test_without_steps_the_counts_remain(pair: ProbePair) -> None:
    """Known from shapes alone: nothing is read that the engine does not read itself."""
    engine = TransformersEngine(pair.target_dir, pair.draft_dir, record_steps=False)

    trace = run(engine, pair.prompts[2], SamplingParams())

    assert trace.steps == ()
    assert trace.num_proposed is not None
    assert trace.num_accepted is not None
    assert 0 < trace.num_accepted < trace.num_proposed
    assert Capability.TRACE not in engine.capabilities


def test_lossy_option_is_named_and_not_excused(pair: ProbePair) -> None:
    """Whoever switches it on and means it says so; then, and only then, losslessness is not asked for."""
    engine = TransformersEngine(pair.target_dir, pair.draft_dir, ensemble_weight=0.7)
    plain = TransformersEngine(pair.target_dir, pair.draft_dir)

    assert "assistant_ensemble_weight=0.7" in engine.lossy_option
    assert "" == engine.lossy_by_design == plain.lossy_option
    assert Capability.LOSSY_BY_DESIGN in engine.capabilities - plain.capabilities


@pytest.mark.parametrize("mode", MODES)
def test_end_token_ends_the_output(engines, pair: ProbePair, mode: str) -> None:
    """The checkpoint's own end token does nothing unless a request names it; a named one is the last token."""
    prompt = prompt_for(pair, mode)
    plain = run(engines[mode], prompt, GREEDY)
    end = plain.token_ids[3]
    first = plain.token_ids.index(end)

    ended = run(engines[mode], prompt, GREEDY, eos_token_ids=(end,))

    assert plain.token_ids[: first + 1] == ended.token_ids
    assert (plain.finish_reason, ended.finish_reason) == ("length", "stop")


@pytest.mark.parametrize("mode", MODES)
def test_pad_tokens_in_the_text_are_read_like_any_other(engines, pair: ProbePair, mode: str) -> None:
    """generate() would mask them if it knew a pad token; and chats are full of SmolLM2's."""
    prompt = (*prompt_for(pair, mode)[:4], pair.pad_token_id, *prompt_for(pair, mode)[3:])
    target = pair.target_oracle.conditional(prompt)

    trace = run(engines[mode], prompt, SamplingParams())

    step = trace.steps[0]
    assert step.target_positions == tuple(range(len(prompt) + step.num_draft_tokens))
    np.testing.assert_allclose(step.target_probs[0], target(()), atol=FLOAT32_INSIDE)


def test_scores_are_the_oracles(engines, pair: ProbePair) -> None:
    """Log-probabilities of every token after each prefix."""
    prompt, text = pair.prompts[1], (7, 9, 12, 4)
    conditional = pair.target_oracle.conditional(prompt)

    scores = engines["assistant"].score(prompt, text)

    np.testing.assert_allclose(
        np.exp(scores), [conditional(text[:index]) for index in range(len(text))], atol=FLOAT32_INSIDE
    )


@pytest.mark.parametrize("mode", MODES)
def test_whole_call_enumerates_to_the_targets_law(engines, pair: ProbePair, mode: str) -> None:
    """Every path of drafting, verifying and rolling back: the exact law of the call is the oracle's."""
    engine, prompt = engines[mode].quiet(), prompt_for(pair, mode)
    request = Request(prompt, 3, SamplingParams(top_k=2))

    law = enumerate_law(lambda source: engine.generate([request], speculate=True)[0].token_ids, cross_check_calls=0)

    wanted = sequence_law(pair.target_oracle.conditional(prompt, request.sampling), 3)
    assert total_variation(law.probabilities, wanted) < FLOAT32_INSIDE
    assert len(wanted) == len(law.probabilities)


def test_ensemble_weight_moves_the_law(pair: ProbePair) -> None:
    """transformers' lossy switch is visible in the exact law, far above any rounding."""
    engine = TransformersEngine(
        pair.target_dir, pair.draft_dir, ensemble_weight=0.7, num_draft_tokens=2, record_steps=False
    )
    request = Request(pair.prompts[1], 2, SamplingParams(top_k=2, temperature=1.5))

    law = enumerate_law(lambda source: engine.generate([request], speculate=True)[0].token_ids, cross_check_calls=0)

    wanted = sequence_law(pair.target_oracle.conditional(pair.prompts[1], request.sampling), 2)
    assert total_variation(law.probabilities, wanted) > 0.01


def test_engine_declares_only_what_it_shows(pair: ProbePair) -> None:
    """No draft law and no draft cache for prompt lookup, no probe where none was loaded, no batches ever."""
    lookup = TransformersEngine(pair.target_dir, mode="prompt-lookup")

    missing = {
        Capability.DRAFT_PROBS, Capability.DRAFT_KV, Capability.LOAD_CHECKPOINT, Capability.BATCH,
        Capability.KV_ROWS, Capability.TOKENIZER, Capability.PENALTIES,
    }  # fmt: skip
    assert not missing & lookup.capabilities
    assert {Capability.TRACE, Capability.TARGET_PROBS, Capability.KV_LENGTH} <= lookup.capabilities


def test_models_can_be_handed_over(pair: ProbePair) -> None:
    """A model in memory is used as it is, dtype included, and loses its own end token and sampling defaults."""
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(pair.target_dir)
    engine = TransformersEngine(model, mode="prompt-lookup")

    trace = run(engine, pair.lookup_prompts[0], GREEDY)

    assert engine.dtype == "float32"
    assert len(trace.token_ids) == NEW_TOKENS
    assert engine.tokenizers == {}


def test_classes_of_transformers_are_left_alone(engines, pair: ProbePair) -> None:
    """After a recorded run the model instance shows the method of its class again."""
    engine = engines["assistant"]

    run(engine, pair.prompts[2], SamplingParams())

    assert "_get_candidate_generator" not in vars(engine.target)
    assert not engine.target._forward_pre_hooks


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"mode": "medusa"}, "mode 'medusa' is unknown; choose from assistant, prompt-lookup, early-exit"),
        ({"mode": "assistant"}, "mode 'assistant' needs a draft model"),
        ({"mode": "prompt-lookup", "num_draft_tokens": 0}, "num_draft_tokens is 0"),
        ({"mode": "prompt-lookup", "ensemble_weight": 0.7}, "no draft law to mix in"),
        ({"mode": "early-exit", "ensemble_weight": 1.7}, "ensemble_weight is 1.7"),
        ({"mode": "early-exit", "early_exit_layer": 9}, "early_exit_layer is 9"),
        ({"mode": "prompt-lookup", "dtype": "float8"}, "dtype 'float8' is unknown; choose from float64"),
    ],
)
def test_contradictory_arguments_end_in_one_sentence(pair: ProbePair, arguments: dict, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence.replace("(", r"\(")):
        TransformersEngine(pair.target_dir, **arguments)


def test_missing_and_damaged_checkpoints_end_in_one_sentence(tmp_path) -> None:
    with pytest.raises(UsageError, match=r"target checkpoint .* is no directory"):
        TransformersEngine(tmp_path / "nowhere", mode="prompt-lookup")
    with pytest.raises(UsageError, match=r"holds no config\.json"):
        TransformersEngine(tmp_path, mode="prompt-lookup")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UsageError, match="does not load"):
        TransformersEngine(tmp_path, mode="prompt-lookup")


def test_a_penalty_that_generate_lacks_is_refused(engines, pair: ProbePair) -> None:
    with pytest.raises(UsageError, match=r"presence_penalty is 0\.5"):
        run(engines["assistant"], pair.prompts[0], SamplingParams(presence_penalty=0.5))


def test_missing_transformers_ends_in_one_sentence(pair: ProbePair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)

    with pytest.raises(UsageError, match=r"pip install 'specverify\[transformers\]'"):
        TransformersEngine(pair.target_dir, mode="prompt-lookup")


def test_old_transformers_ends_in_one_sentence(pair: ProbePair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transformers.__version__", "4.57.0")

    with pytest.raises(UsageError, match=r"transformers 4\.57\.0 is installed; this adapter needs 5\.0"):
        TransformersEngine(pair.target_dir, mode="prompt-lookup")
