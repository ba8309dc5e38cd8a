"""The decorator: a function as it was, with its checks beside it."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys

import numpy as np
import pytest

from specverify import verified
from specverify.core.errors import CheckFailed, UsageError
from specverify.core.outcomes import Outcome
from specverify.faults.verify import FAULTS
from specverify.faults.verify_correct import PointMassVerifier, TokenwiseVerifier

DRAFT = np.array([[0.5, 0.3, 0.2], [0.2, 0.4, 0.4]])
TARGET = np.array([[0.1, 0.6, 0.3], [0.3, 0.3, 0.4], [0.2, 0.2, 0.6]])
RESIDUAL_ARGMAX = next(one.make() for one in FAULTS if one.name == "verify-residual-argmax")


@verified(draft_token_ids="x", draft_probs="q", target_probs="p", rng="generator")
def verify(x, q, p, generator=None):
    """Docstring of the function."""
    return TokenwiseVerifier()(x, q, p, generator)


@verified
def broken(draft_ids, draft_probs, target_probs, rng):
    return RESIDUAL_ARGMAX(draft_ids, draft_probs, target_probs, rng)


class Engine:
    def __init__(self):
        self.rng = np.random.default_rng(1)

    @verified
    def verify(self, draft_ids, draft_probs, target_probs):
        return TokenwiseVerifier()(draft_ids, draft_probs, target_probs, self.rng)


def test_wrapped_function_behaves_as_before():
    """Same answer for the same generator, same name, docstring and signature, and it can be pickled."""
    wanted = TokenwiseVerifier()(np.array([0, 1]), DRAFT, TARGET, np.random.default_rng(7))

    assert wanted == verify(np.array([0, 1]), DRAFT, TARGET, generator=np.random.default_rng(7))
    assert (verify.__name__, verify.__doc__) == ("verify", "Docstring of the function.")
    assert list(inspect.signature(verify).parameters) == ["x", "q", "p", "generator"]
    assert verify is pickle.loads(pickle.dumps(verify))


def test_arguments_are_handed_over_uncopied():
    """The very objects of the caller arrive."""
    seen = []
    wrapped = verified(lambda draft_ids, draft_probs, target_probs: seen.append((draft_ids, draft_probs)))
    ids, probs = [1], [[0.5, 0.5]]

    wrapped(ids, draft_probs=probs, target_probs=None)

    assert seen[0][0] is ids
    assert seen[0][1] is probs


def test_decorating_imports_no_numerics():
    """Importing specverify and decorating costs neither torch nor numpy."""
    code = (
        "import sys; from specverify import verified\n"
        "@verified\n"
        "def verify(draft_ids, draft_probs, target_probs): return draft_ids\n"
        "verify([1], None, None)\n"
        "print([name for name in ('torch', 'numpy', 'scipy', 'hypothesis') if name in sys.modules])"
    )

    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


def test_check_passes_a_correct_function_by_enumeration():
    """The law of a small numpy function is exact, and the report says so."""
    report = verify.specverify.check(ids=["lossless.step-law"])

    assert report.passed
    assert "exact law in" in repr(report)


def test_check_names_the_mistake():
    """The smallest case, the split and the one mistake that fits."""
    report = broken.specverify.check(ids=["lossless.step-law"])

    assert report.exit_status == 1
    assert "always token" in repr(report)
    assert "takes the argmax of max(target - draft, 0)" in repr(report)


def test_check_raises_on_request():
    """raise_on_failure turns failures into CheckFailed, which test runners print as an assertion."""
    with pytest.raises(CheckFailed, match=r"FAILED  lossless\.step-law"):
        broken.specverify.check(ids=["lossless.step-law"], raise_on_failure=True)


def test_decorated_method_is_checked_on_an_object():
    """A method decorated in its class needs the object whose verify it is."""
    engine = Engine()

    assert len(engine.verify(np.array([0]), DRAFT[:1], TARGET[:2])[0]) in (1, 2)
    assert engine.verify.specverify.check(ids=["tokens.step-form"], instance=engine).passed
    with pytest.raises(UsageError, match="instance=object"):
        engine.verify.specverify.check()


def test_law_of_drawn_drafts_is_the_targets():
    """Without given draft tokens the law is that of whole steps, at total variation 0 from the target."""
    law = verify.specverify.law(draft_probs=DRAFT, target_probs=TARGET)

    assert law.total_variation < 1e-15
    assert law[(1, 1, 2)] == pytest.approx(0.3 * 0.3 * 0.6, abs=1e-15)
    assert abs(sum(law.probabilities.values()) - 1.0) < 1e-12


def test_law_of_given_drafts_is_the_closed_form():
    """One draft token that is accepted with target / draft, else replaced from the residual."""
    law = verify.specverify.law(draft_token_ids=[0], draft_probs=DRAFT[:1], target_probs=TARGET[:2])

    assert law[(1,)] == pytest.approx(0.8 * 0.75, abs=1e-15)
    assert law[(0, 2)] == pytest.approx(0.2 * 0.4, abs=1e-15)
    assert law.num_accepted == pytest.approx({0: 0.8, 1: 0.2})
    assert "emitted" in repr(law)


def test_law_without_draft_law():
    """A function that takes no draft law is lossless for each draft by itself."""
    law = verified(PointMassVerifier()).specverify.law(draft_token_ids=[0, 1], target_probs=TARGET)

    assert law.total_variation < 1e-15


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"target_probs": TARGET}, "draft_token_ids, or draft_probs"),
        ({"target_probs": TARGET, "draft_token_ids": [0, 1]}, "takes draft laws"),
        ({"target_probs": TARGET[0], "draft_probs": DRAFT}, r"\[num_draft_tokens \+ 1, vocab\]"),
        ({"target_probs": TARGET * 0.9, "draft_probs": DRAFT}, r"target_probs\[0\] sums to 0\.9"),
        ({"target_probs": TARGET, "draft_probs": DRAFT[:1]}, "one row for each draft token"),
        ({"target_probs": TARGET, "draft_probs": DRAFT, "draft_token_ids": [0, 5]}, "draft_token_ids"),
        ({"target_probs": np.where(TARGET > 0.5, np.nan, TARGET), "draft_probs": DRAFT}, "is not a number"),
        (
            {"target_probs": TARGET, "target_logits": TARGET, "draft_probs": DRAFT},
            "both target_probs and target_logits",
        ),
        ({"draft_probs": DRAFT}, "wants target_probs"),
    ],
)
def test_law_refuses_what_is_no_law(arguments, words):
    """One sentence naming the row and the value."""
    with pytest.raises(UsageError, match=words):
        verify.specverify.law(**arguments)


def test_crash_is_reported_as_a_crash():
    """A function that raises on a legitimate case is not called wrong, nor passed."""

    def crashes(draft_ids, draft_probs, target_probs, rng):
        if (target_probs == 0.0).any():
            raise ZeroDivisionError("nothing is left")
        return TokenwiseVerifier()(draft_ids, draft_probs, target_probs, rng)

    report = verified(crashes).specverify.check(ids=["lossless.step-law"])

    assert [result.outcome for result in report.results] == [Outcome.CRASHED]
    assert "nothing is left" in report.results[0].reason
    with pytest.raises(CheckFailed):
        report.raise_if_failed()
