"""Golden traces: what the engine did when they were recorded, it does today."""

import pytest

from specverify.core.outcomes import Outcome
from specverify.golden import replay_file
from specverify.report.text import render_result


def test_trace_repeats(specverify_golden):
    """Replaying the golden trace repeats every draft, law, decision and token."""
    engine, file = specverify_golden
    # A crash is a failure here: the trace did not repeat.
    wrong = (Outcome.FAILED, Outcome.CRASHED)
    failures = [result for result in replay_file(file, engine=engine).results if result.outcome in wrong]
    if failures:
        pytest.fail("\n\n".join(render_result(result) for result in failures), pytrace=False)
