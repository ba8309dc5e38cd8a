"""The engine: speculation changes nothing, caches are what a fresh prefill gives, every request is on its own."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from specverify.core.errors import UsageError
from specverify.core.types import Request, SamplingParams, Trace
from specverify.laws.sampling import law_from_logits
from specverify.reference.cached_model import prefill_rows
from specverify.reference.engine import ReferenceEngine
from specverify.reference.model import Model
from specverify.reference.proposers import (
    AlternatingProposer,
    AntiProposer,
    DraftModelProposer,
    NgramProposer,
    Proposer,
    SelfProposer,
    SometimesEmptyProposer,
)
from specverify.reference.verifiers import RejectionVerifier
from tests.reference import tiny
from tests.reference.test_model import logits_of

GREEDY = SamplingParams(temperature=0.0)
# float64 sums of a few dozen terms; measured 3e-15.
ROWS_TOLERANCE = 1e-12
DRAFTERS = ("draft-model", "n-gram", "self", "anti", "alternating", "sometimes-empty")


def proposer(name: str, target: Model) -> Proposer:
    draft = tiny.disturbed(0, 0.1)
    made: dict[str, Proposer] = {
        "draft-model": DraftModelProposer(draft),
        "n-gram": NgramProposer(),
        "self": SelfProposer(target),
        "anti": AntiProposer(target),
        "alternating": AlternatingProposer(target),
        "sometimes-empty": SometimesEmptyProposer(draft),
    }
    return made[name]


def engine(drafter: str = "draft-model", **options: object) -> ReferenceEngine:
    target = tiny.model()
    return ReferenceEngine(target, proposer(drafter, target), **options)  # type: ignore[arg-type]


def requests(sampling: SamplingParams, new_tokens: int = 20, *, eos: tuple[int, ...] = ()) -> list[Request]:
    """Four ragged prompts, seeded."""
    prompts = [(3, 1), (4, 1, 5, 9, 2), (6, 5, 3, 6, 5, 3), (8,)]
    return [
        Request(prompt, new_tokens, sampling, seed=100 + index, eos_token_ids=eos, request_id=str(index))
        for index, prompt in enumerate(prompts)
    ]


def texts(traces: list[Trace]) -> list[tuple[int, ...]]:
    return [trace.token_ids for trace in traces]


# Losslessness ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("penalties", [False, True], ids=["plain", "penalties"])
@pytest.mark.parametrize("verifier", [None, RejectionVerifier()], ids=["argmax", "rejection"])
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_greedy_text_is_the_same_with_speculation_on_and_off(
    drafter: str, verifier: RejectionVerifier | None, penalties: bool
) -> None:
    """Token for token, with every drafter and both verifiers, in a ragged batch."""
    sampling = SamplingParams(temperature=0.0, repetition_penalty=1.4, frequency_penalty=0.3) if penalties else GREEDY
    made = engine(drafter, verifier=verifier)

    off = made.generate(requests(sampling), speculate=False)

    assert texts(off) == texts(made.generate(requests(sampling), speculate=True))


@pytest.mark.parametrize("drafter", ["draft-model", "n-gram", "alternating"])
def test_sampled_sequences_follow_the_targets_law(drafter: str) -> None:
    """Joint law of the three tokens after the prefill's, from 3,000 seedless requests in one batch."""
    torch.manual_seed(5)
    target = tiny.model(vocab_size=3, logit_scale=0.6)
    draft = tiny.model(9, vocab_size=3, num_layers=1)
    proposers = {
        "draft-model": DraftModelProposer(draft),
        "n-gram": NgramProposer(),
        "alternating": AlternatingProposer(target),
    }
    num, sampling = 3000, SamplingParams(temperature=0.9, frequency_penalty=0.4)
    made = ReferenceEngine(target, proposers[drafter], num_draft_tokens=2, record_probs=False)
    counts = Counter(texts(made.generate([Request((0, 1, 2, 0), 4, sampling)] * num, speculate=True)))

    wanted = exact_law(target, (0, 1, 2, 0), 4, sampling)

    for text, probability in wanted.items():
        # 6.5 standard deviations: less than once in 10^9 runs, and the seed is fixed.
        spread = np.sqrt(num * probability * (1 - probability))
        assert abs(counts[text] - num * probability) <= 6.5 * spread + 1, text


def exact_law(
    target: Model, prompt: tuple[int, ...], length: int, sampling: SamplingParams
) -> dict[tuple[int, ...], float]:
    """Probability of every text of that length, by plain passes over each prefix."""
    law: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(length):
        longer = {}
        for text, probability in law.items():
            logits = logits_of(target, torch.tensor([(*prompt, *text)]))[0, -1].numpy()
            row = law_from_logits(logits, sampling, prompt_token_ids=prompt, output_token_ids=text)
            longer |= {(*text, token): probability * float(p) for token, p in enumerate(row)}
        law = longer
    return law


# Caches ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampling", [GREEDY, SamplingParams()], ids=["greedy", "sampled"])
@pytest.mark.parametrize("drafter", [name for name in DRAFTERS if name != "n-gram"])
def test_cache_rows_are_those_of_a_fresh_prefill(drafter: str, sampling: SamplingParams) -> None:
    """After every step, both models, every accept length: content and number of rows."""
    made = engine(drafter, record_kv_rows=True)
    draft = made.proposer.model  # type: ignore[attr-defined]
    lengths = set()

    for trace in made.generate(requests(sampling), speculate=True):
        text = (*trace.request.prompt_token_ids, *trace.token_ids)
        for step in trace.steps:
            committed = step.start_position + len(step.token_ids)
            lengths.add(step.num_accepted)
            is_full = step.num_draft_tokens > 0 and not step.is_rejection and not step.is_truncated
            assert committed - 1 == step.target_kv_length_after
            assert committed - (2 if is_full else 1) == step.draft_kv_length_after
            for model, rows in ((made.target, step.target_kv_rows), (draft, step.draft_kv_rows)):
                assert rows is not None
                wanted = prefill_rows(model, text[: rows.shape[2]]).numpy()
                np.testing.assert_allclose(rows, wanted, rtol=0, atol=ROWS_TOLERANCE)

    if drafter == "alternating":
        assert {0, 1, 2, 3} == lengths


@pytest.mark.parametrize("drafter", [name for name in DRAFTERS if name != "n-gram"])
def test_every_token_is_computed_at_its_own_position_and_once(drafter: str) -> None:
    """The target computes the newest token and all drafts; the draft model whatever its cache lacks, then drafts."""
    for trace in engine(drafter).generate(requests(GREEDY), speculate=True):
        draft_rows = 0
        for step in trace.steps:
            start, num = step.start_position, step.num_draft_tokens
            assert tuple(range(start - 1, start + num)) == step.target_positions
            assert tuple(range(draft_rows, max(start, start + num - 1))) == step.draft_positions
            assert step.draft_kv_length_after is not None
            draft_rows = step.draft_kv_length_after


def test_step_that_proposes_nothing_still_ingests_the_text() -> None:
    """The draft model keeps up with the text through empty steps, so its next draft starts from all of it."""
    traces = engine("sometimes-empty").generate(requests(GREEDY), speculate=True)

    empty = [step for trace in traces for step in trace.steps if not step.num_draft_tokens]

    assert empty
    assert all(step.draft_positions and step.draft_positions[-1] == step.start_position - 1 for step in empty)


def test_buffers_grow_when_a_lane_outgrows_them() -> None:
    """A cache that keeps too much (a planted bug, or a later scheduler) runs on instead of writing out of bounds."""

    class KeepsEverything(ReferenceEngine):
        def rows_to_keep(self, row: int, running: object) -> int:
            return self.cached.cache.lengths[row]

    target = tiny.model()
    traces = KeepsEverything(target, AntiProposer(target)).generate(requests(GREEDY, 40), speculate=True)

    assert [len(trace.token_ids) for trace in traces] == [40] * 4


# Requests on their own ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_a_request_in_a_batch_is_the_request_alone(drafter: str) -> None:
    """Steps and text depend on nothing but the request and its seed, at ragged lengths and accept lengths."""
    made = engine(drafter)
    mixed = [
        Request((3, 1, 4), 24, SamplingParams(), seed=1, request_id="a"),
        Request((1, 5), 7, GREEDY, seed=2, request_id="b"),
        Request((9, 2, 6, 5), 15, SamplingParams(0.7, top_k=5, repetition_penalty=1.3), seed=3, request_id="c"),
        Request((9, 2, 6, 5), 15, SamplingParams(0.7, top_k=5, repetition_penalty=1.3), seed=4, request_id="d"),
    ]

    together = made.generate(mixed, speculate=True)

    for request, trace in zip(mixed, together, strict=True):
        alone = made.generate([request], speculate=True)[0]
        assert alone.token_ids == trace.token_ids
        assert [s.num_accepted for s in alone.steps] == [s.num_accepted for s in trace.steps]
    assert together[2].token_ids != together[3].token_ids


def test_a_seed_repeats_and_another_seed_does_not() -> None:
    """Two runs of one seed agree in every uniform; another seed gives another text."""
    made = engine()
    first, again = (made.generate(requests(SamplingParams()), speculate=True) for _ in range(2))
    other = made.generate([Request((3, 1), 20, SamplingParams(), seed=999)], speculate=True)[0]

    assert texts(first) == texts(again)
    assert [s.uniforms for t in first for s in t.steps] == [s.uniforms for t in again for s in t.steps]
    assert other.token_ids != first[0].token_ids


def test_request_without_a_seed_follows_the_global_generator() -> None:
    """torch.manual_seed decides, and no uniforms are read out of the call."""
    made, request = engine(), Request((3, 1), 20, SamplingParams())
    runs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        runs.append(made.generate([request], speculate=True)[0])

    assert runs[0].token_ids == runs[1].token_ids != runs[2].token_ids
    assert all(step.uniforms is None for step in runs[0].steps)


def test_seeded_request_leaves_the_global_generator_alone() -> None:
    """Nobody else's randomness depends on a seeded request."""
    torch.manual_seed(1)
    state = torch.get_rng_state()

    engine().generate(requests(SamplingParams()), speculate=True)

    assert torch.equal(state, torch.get_rng_state())


# Ends --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("speculate", [True, False])
@pytest.mark.parametrize("drafter", ["self", "draft-model", "anti"])
def test_nothing_follows_an_end_token(drafter: str, speculate: bool) -> None:
    """The text ends with the first end token, also where that stands inside an accepted draft."""
    whole = engine(drafter).generate(requests(GREEDY, 30), speculate=False)
    ends = [trace.token_ids[5] for trace in whole]

    for trace, end in zip(whole, ends, strict=True):
        request = Request(trace.request.prompt_token_ids, 30, GREEDY, eos_token_ids=(end,))
        cut = engine(drafter).generate([request], speculate=speculate)[0]
        wanted = trace.token_ids[: trace.token_ids.index(end) + 1]
        assert (wanted, "eos") == (cut.token_ids, cut.finish_reason)


def test_end_token_inside_a_draft_is_marked_as_a_cut() -> None:
    """The self drafter drafts past the end: num_accepted is what the verifier said, the text is cut."""
    whole = engine("self").generate(requests(GREEDY, 30), speculate=False)[0]
    end = whole.token_ids[2]
    assert whole.token_ids.index(end) == 2
    trace = engine("self").generate([Request((3, 1), 30, GREEDY, eos_token_ids=(end,))], speculate=True)[0]

    step = trace.steps[0]

    assert (step.num_draft_tokens, step.num_accepted) == (3, 3)
    assert step.is_truncated
    assert whole.token_ids[1:3] == step.token_ids


@pytest.mark.parametrize("speculate", [True, False])
@pytest.mark.parametrize("new_tokens", [1, 2, 3, 4, 5, 6])
def test_exactly_max_new_tokens_come_out(new_tokens: int, speculate: bool) -> None:
    """The limit holds wherever in a step it falls."""
    for trace in engine("self").generate(requests(GREEDY, new_tokens), speculate=speculate):
        assert (new_tokens, "length") == (len(trace.token_ids), trace.finish_reason)


def test_end_token_at_the_limit_ends_the_request_as_eos() -> None:
    """Both at once: the end token is the reason."""
    whole = engine().generate([Request((3, 1), 6, GREEDY)], speculate=False)[0]
    assert whole.token_ids[5] not in whole.token_ids[:5]

    trace = engine("self").generate([Request((3, 1), 6, GREEDY, eos_token_ids=(whole.token_ids[5],))], speculate=True)[
        0
    ]

    assert (len(trace.token_ids), trace.finish_reason) == (6, "eos")


# Types and errors --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_low_precision_runs_the_same_path(dtype: torch.dtype) -> None:
    """A trace of the same kind comes out; laws are float32."""
    target = tiny.model(dtype=dtype)
    traces = ReferenceEngine(target, SelfProposer(target), record_kv_rows=True).generate(
        requests(SamplingParams()), speculate=True
    )

    assert [len(trace.token_ids) for trace in traces] == [20] * 4
    step = traces[0].steps[0]
    assert step.target_probs is not None
    assert step.target_kv_rows is not None
    assert (np.float32, np.float32) == (step.target_probs.dtype, step.target_kv_rows.dtype)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_gpu_gives_the_greedy_text_of_the_cpu() -> None:
    """Same code, another device."""
    target = tiny.model(device="cuda")
    on_gpu = ReferenceEngine(target, SelfProposer(target)).generate(requests(GREEDY), speculate=True)

    assert texts(engine("self").generate(requests(GREEDY), speculate=True)) == texts(on_gpu)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Request((), 4), "empty prompt"),
        (Request((1, 16), 4), "prompt token 16; the model has tokens 0 to 15"),
        (Request((1,), 0), "asks for 0 new tokens"),
        (Request((1,), 128), "may reach 129 tokens; the model takes 128"),
        (Request((1,), 4, SamplingParams(top_p=0.0)), "top_p is 0.0"),
        (Request((1,), 4, SamplingParams(temperature=-1.0)), "temperature is -1.0"),
    ],
    ids=["empty", "unknown token", "no tokens", "too long", "top_p", "temperature"],
)
def test_impossible_request_is_refused(request_: Request, message: str) -> None:
    """With a sentence that says what came and what was wanted."""
    with pytest.raises(UsageError, match=message):
        engine().generate([request_], speculate=True)


def test_models_of_different_vocabularies_are_refused() -> None:
    """Draft token ids would mean other tokens."""
    with pytest.raises(UsageError, match="draft model has 12 tokens and the target 16"):
        ReferenceEngine(tiny.model(), DraftModelProposer(tiny.model(vocab_size=12)))


def test_zero_draft_tokens_are_refused() -> None:
    """Plain decoding is asked for with speculate=False."""
    with pytest.raises(UsageError, match="num_draft_tokens is 0"):
        engine(num_draft_tokens=0)


def test_no_requests_give_no_traces() -> None:
    """An empty batch is not an error."""
    assert engine().generate([], speculate=True) == []
