"""Many requests, then the first ones again: what may change, and what may not."""

from __future__ import annotations

import pytest

from specverify.core.capabilities import Capability
from specverify.core.outcomes import Outcome
from specverify.core.types import Trace
from specverify.runner import run_checks
from tests.checks.engine_handmade import ScriptedEngine, result_of

CHECK = "activity.speculation-lasts"
KNOWN = {"vocab_size": 40}


def serving(*, changed_after=None, drafts=lambda served: 3, raises=lambda served, request: False, **attributes):
    """An engine that counts its requests; drafts: how many tokens for a request, given the requests before it."""
    served = []

    def answer(requests, speculate):
        traces = []
        for request in requests:
            if raises(len(served), request):
                raise RuntimeError("no free slots")
            shift = changed_after is not None and len(served) >= changed_after
            tokens = tuple(4 + (i + shift * (i > 3)) % 30 for i in range(request.max_new_tokens))
            traces.append(Trace(request, tokens, speculated=speculate, num_proposed=drafts(len(served))))
            served.append(request)
        return traces

    return ScriptedEngine(answer, **attributes)


def test_an_engine_that_goes_on_as_it_began_passes():
    """Six requests, one at a time, 24 others, and the six."""
    result = result_of(CHECK, serving())

    assert Outcome.PASSED is result.outcome
    assert result.worth == "72 tokens as before, after 30 requests; 18 tokens drafted for them at first, 18 at the end"


def test_a_slow_engine_is_asked_less():
    """Two requests, eight others, and the two."""
    assert "after 10 requests" in result_of(CHECK, serving(is_slow=True)).worth


def test_other_tokens_at_the_end_fail():
    """From the fifth new token on, in every output."""
    (finding,) = result_of(CHECK, serving(changed_after=20)).findings

    assert finding.headline == "After 30 requests a greedy one got other tokens than at first, from new token 4 on."


def test_drafting_less_is_allowed():
    """An engine may adapt, or find out that a request is not worth it."""
    assert Outcome.PASSED is result_of(CHECK, serving(drafts=lambda served: 3 if served < 20 else 1)).outcome


def test_drafting_nothing_any_more_fails():
    """The request after which it ended is named."""
    (finding,) = result_of(CHECK, serving(drafts=lambda served: 3 if served < 20 else 0)).findings

    assert finding.headline == "After 20 requests nothing is drafted any more."


def test_silence_that_ends_when_asked_again_is_allowed():
    """Nothing for the requests number 20 to 36."""
    result = result_of(CHECK, serving(drafts=lambda served: 0 if 20 <= served < 37 else 3))

    assert Outcome.PASSED is result.outcome


def test_drafting_nothing_from_the_start_is_inconclusive():
    """There is no speculation that could last."""
    assert Outcome.INCONCLUSIVE is result_of(CHECK, serving(drafts=lambda served: 0)).outcome


def test_silence_that_began_in_another_check_fails():
    """Drafts of earlier requests are remembered for the whole run."""
    subject = serving(drafts=lambda served: 3 if served < 20 else 0)

    results = run_checks(subject, ids=["activity.*"]).results

    assert Outcome.FAILED is {result.check_id: result.outcome for result in results}[CHECK]


@pytest.mark.parametrize("attributes", [KNOWN, {}], ids=["known vocabulary", "made-up prompts"])
def test_an_engine_that_no_longer_answers_fails(attributes):
    """It answered the very same requests before."""
    (finding,) = result_of(CHECK, serving(raises=lambda served, request: served >= 24, **attributes)).findings

    assert "After 24 requests the engine raises" in finding.headline
    assert "no free slots" in finding.where[0]


def test_an_engine_that_cannot_take_one_of_the_others_crashes():
    """The first ones are still answered: what it cannot take is another matter, and it is said when."""
    subject = serving(
        raises=lambda served, request: bool(request.eos_token_ids),
        capabilities=(Capability.GENERATE, Capability.STOP),
        **KNOWN,
    )

    result = result_of(CHECK, subject)

    assert Outcome.CRASHED is result.outcome
    assert "after 8 requests: RuntimeError: no free slots" in result.reason
