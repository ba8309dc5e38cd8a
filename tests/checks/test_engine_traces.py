"""The checks that are pure functions of traces, on traces made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from engine_handmade import Recorded, edited, honest_trace, result_of

from specverify.core.capabilities import Capability
from specverify.core.outcomes import Outcome

RECORDS = (Capability.TRACE, Capability.KV_LENGTH, Capability.DRAFT_KV, Capability.POSITIONS)
EVERY_LENGTH = (0, 1, 3, 2, 3, 0)
LENGTH_CHECKS = ("kv.rejected-rows-dropped", "kv.draft-rows-dropped", "positions.drafted-tokens")
TRACE_CHECKS = (*LENGTH_CHECKS, "tokens.prefix-termination")


@pytest.mark.parametrize("check_id", TRACE_CHECKS)
def test_an_honest_trace_passes_every_check(check_id):
    """All accept lengths, none of them suspicious."""
    result = result_of(check_id, Recorded([honest_trace(EVERY_LENGTH)], capabilities=RECORDS))

    assert result.outcome is Outcome.PASSED, result


@pytest.mark.parametrize("check_id", TRACE_CHECKS)
def test_a_trace_without_a_rejection_decides_nothing(check_id):
    """Fully accepted drafts leave nothing to roll back: inconclusive, never passed."""
    result = result_of(check_id, Recorded([honest_trace((3, 3, 3))], capabilities=RECORDS))

    assert result.outcome is Outcome.INCONCLUSIVE
    assert "rejections" in result.reason


@pytest.mark.parametrize("check_id", LENGTH_CHECKS)
def test_records_that_are_missing_are_not_judged(check_id):
    """A trace that declares records and has none is inconclusive, not a crash."""
    trace = honest_trace(EVERY_LENGTH)
    bare = replace(
        trace,
        steps=tuple(
            replace(
                step,
                target_kv_length_after=None,
                draft_kv_length_after=None,
                target_positions=None,
                draft_positions=None,
            )
            for step in trace.steps
        ),
    )

    assert result_of(check_id, Recorded([bare], capabilities=RECORDS)).outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize("surplus", [1, -1])
def test_one_row_too_many_or_too_few_is_found(surplus):
    """The rows after a step are counted exactly."""
    trace = honest_trace(EVERY_LENGTH)
    wrong = edited(trace, 1, target_kv_length_after=trace.steps[1].target_kv_length_after + surplus)

    result = result_of("kv.rejected-rows-dropped", Recorded([wrong], capabilities=RECORDS))

    assert result.outcome is Outcome.FAILED
    assert "Step 1 starts with" in result.findings[0].headline


def test_a_cache_that_drops_nothing_is_recognised():
    """The cause is named where every rejection shows it."""
    trace = honest_trace(EVERY_LENGTH)
    kept = replace(
        trace,
        steps=tuple(
            replace(step, target_kv_length_after=step.start_position + step.num_draft_tokens) for step in trace.steps
        ),
    )

    (finding,) = result_of("kv.rejected-rows-dropped", Recorded([kept], capabilities=RECORDS)).findings

    assert "not dropped at all" in finding.likely_cause


def test_rows_after_a_truncated_step_are_not_judged():
    """A request that is over may leave anything in its cache."""
    trace = honest_trace(EVERY_LENGTH)
    cut = edited(trace, 5, is_truncated=True, target_kv_length_after=0, draft_kv_length_after=99)

    for check_id in ("kv.rejected-rows-dropped", "kv.draft-rows-dropped"):
        assert result_of(check_id, Recorded([cut], capabilities=RECORDS)).outcome is Outcome.PASSED


def test_a_step_without_bonus_token_is_lossless():
    """Some engines add no bonus token after a full accept: their cache lacks nothing then."""
    trace = honest_trace((0, 3))
    last = trace.steps[1]
    no_bonus = replace(
        edited(trace, 1, token_ids=last.token_ids[:3], target_kv_length_after=last.start_position + 3),
        token_ids=trace.token_ids[:-1],
    )

    for check_id in TRACE_CHECKS:
        assert result_of(check_id, Recorded([no_bonus], capabilities=RECORDS)).outcome is Outcome.PASSED, check_id


def test_a_draft_cache_may_lack_the_last_token_only_after_a_full_accept():
    """The last draft token was never computed by the draft model; after a rejection nothing is missing."""
    trace = honest_trace(EVERY_LENGTH)
    lacking = edited(trace, 1, draft_kv_length_after=trace.steps[1].draft_kv_length_after - 1)

    result = result_of("kv.draft-rows-dropped", Recorded([lacking], capabilities=RECORDS))

    assert result.outcome is Outcome.FAILED


def test_an_empty_draft_is_judged_leniently():
    """Nothing drafted, nothing to drop: the draft model need not even have run."""
    trace = honest_trace((0, 1), num_draft_tokens=2)
    step = trace.steps[1]
    empty = edited(
        trace,
        0,
        draft_token_ids=(),
        draft_positions=(),
        draft_kv_length_after=0,
        target_positions=trace.steps[0].target_positions[:1],
    )
    caught_up = edited(empty, 1, draft_positions=tuple(range(step.start_position + 1)))

    for check_id in ("kv.draft-rows-dropped", "positions.drafted-tokens", "tokens.prefix-termination"):
        assert result_of(check_id, Recorded([caught_up], capabilities=RECORDS)).outcome is Outcome.PASSED, check_id


@pytest.mark.parametrize(("model", "cause"), [("target", "1 position ahead"), ("draft", "1 position ahead")])
def test_a_constant_offset_is_named(model, cause):
    """Every position of every step one too far."""
    trace = honest_trace(EVERY_LENGTH)
    field = f"{model}_positions"
    shifted = replace(
        trace,
        steps=tuple(replace(s, **{field: tuple(p + 1 for p in getattr(s, field))}) for s in trace.steps),
    )

    (finding,) = result_of("positions.drafted-tokens", Recorded([shifted], capabilities=RECORDS)).findings

    assert cause in finding.likely_cause


def test_a_target_that_skips_a_draft_token_is_found():
    """All k draft tokens must be computed, or they were not verified."""
    trace = honest_trace(EVERY_LENGTH)
    short = edited(trace, 2, target_positions=trace.steps[2].target_positions[-2:])

    assert result_of("positions.drafted-tokens", Recorded([short], capabilities=RECORDS)).outcome is Outcome.FAILED


def test_a_token_kept_after_a_rejection_is_found_and_named():
    """Accepted one, emitted two draft tokens more."""
    trace = honest_trace(EVERY_LENGTH)
    step = trace.steps[1]
    leaking = edited(trace, 1, token_ids=(*step.token_ids, *step.draft_token_ids[2:]))

    (finding,) = result_of("tokens.prefix-termination", Recorded([leaking], capabilities=RECORDS)).findings

    assert "draft tokens after the first rejection were kept" in finding.likely_cause


def test_a_lost_final_token_is_found():
    """A rejection without its residual token."""
    trace = honest_trace(EVERY_LENGTH)
    lost = edited(trace, 1, token_ids=trace.steps[1].token_ids[:-1])

    assert result_of("tokens.prefix-termination", Recorded([lost], capabilities=RECORDS)).outcome is Outcome.FAILED


def test_steps_that_do_not_add_up_to_the_output_are_found():
    """What the steps emitted is what the user gets."""
    trace = honest_trace(EVERY_LENGTH)
    output = list(trace.token_ids)
    output[4] += 1

    result = result_of(
        "tokens.prefix-termination", Recorded([replace(trace, token_ids=tuple(output))], capabilities=RECORDS)
    )

    assert result.outcome is Outcome.FAILED
    assert "part at new token 4" in result.findings[0].headline
