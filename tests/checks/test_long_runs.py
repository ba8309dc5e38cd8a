"""Long texts: who is asked for them, and how."""

from __future__ import annotations

import pytest

from specverify.checks import evidence
from specverify.checks.long_runs import long_runs
from specverify.checks.registry import CheckContext
from specverify.core.randomness import Streams
from specverify.faults.engine_parts import OwnDrafterOnly, probe_engine


def context() -> CheckContext:
    return CheckContext(streams=Streams(0), alpha=1e-9)


@pytest.fixture(scope="module")
def engine():
    return probe_engine("long texts", num_threads=1)


def test_standard_drafters_are_put_in_and_texts_pass_128_and_256_in_company(engine) -> None:
    runs = long_runs(engine, context())

    assert [(run.drafter, run.sampling.is_greedy) for run in runs] == [("self", True), ("self", False), ("anti", True)]
    for run in runs:
        lengths = [len(trace.request.prompt_token_ids) + len(trace.token_ids) for trace in run.traces]
        assert len(lengths) == 3
        assert len(set(lengths)) == 3
        assert max(lengths) > 256
        assert any(128 < length < 256 for length in lengths)


def test_rows_are_shown_only_where_drafts_are_rejected_at_the_end_of_a_page(engine) -> None:
    *quiet, seams = long_runs(engine, context())

    assert all(step.target_kv_rows is None for run in quiet for trace in run.traces for step in trace.steps)
    assert all(step.target_kv_rows is not None for trace in seams.traces for step in trace.steps)
    crossed = {
        step.num_accepted
        for trace in seams.traces
        for step in trace.steps
        if step.start_position <= 128 < step.start_position + step.num_draft_tokens
    }
    assert crossed == {0}


def test_an_engine_with_its_own_drafter_only_is_sampled(engine) -> None:
    (run,) = long_runs(OwnDrafterOnly(engine), context())

    assert (run.drafter, run.sampling) == ("own", evidence.SAMPLED)


def test_they_are_made_once(engine) -> None:
    shared = context()

    assert all(one is two for one, two in zip(long_runs(engine, shared), long_runs(engine, shared), strict=True))


class _Short:
    """Says nothing of its positions, or says that they are few."""

    def __init__(self, **attributes: object) -> None:
        self.name = "short"
        self.capabilities = frozenset()
        self.generate = None
        self.__dict__.update(attributes)


@pytest.mark.parametrize("attributes", [{}, {"max_positions": 256}, {"max_positions": 4096, "is_slow": True}])
def test_none_where_positions_are_few_or_unknown_or_the_engine_is_slow(attributes) -> None:
    assert long_runs(_Short(**attributes), context()) == ()
