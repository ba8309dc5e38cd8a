"""The standard runs that checks share."""

from specverify.checks import evidence
from specverify.checks.registry import CheckContext
from specverify.core.randomness import Streams
from specverify.faults.engine_parts import probe_engine


def test_no_accept_test_of_the_drafting_runs_counts_twice():
    """Plain and filtered runs are judged as one sample: a uniform that came in both would double its evidence."""
    context = CheckContext(alpha=1e-9, streams=Streams(5), effort=0.25)
    runs = evidence.drafting_runs(probe_engine("drafting", max_new_tokens=24), context)

    uniforms = [set(step.uniforms) for run in runs for trace in run.traces for step in trace.steps if step.uniforms]

    assert sum(map(len, uniforms)) == len(set().union(*uniforms)) > 500
