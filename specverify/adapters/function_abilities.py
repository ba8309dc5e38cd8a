"""What a function can do beyond its dialect, found out by a few more trial calls."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from specverify.adapters.function_cases import certain_case, trial_cases
from specverify.adapters.function_roles import FORMS, signature_of
from specverify.exact.program import NativeSource

if TYPE_CHECKING:
    from specverify.adapters.function import FunctionSubject

_DRAFT_LAWS = tuple(f"draft_{form}" for form in FORMS)


def refuses_infinity(subject: FunctionSubject) -> bool:
    """Whether it says itself that log-probabilities must be finite. Any other error on -inf is a finding."""
    if not any(role.endswith(("_logits", "_logprobs")) for role in subject.dialect.roles):
        return False
    case = certain_case(has_draft_law=subject.dialect.takes_draft_law)
    kept = subject.dialect
    try:
        subject.call(case, NativeSource(0))
    except (ValueError, AssertionError):
        subject.dialect = replace(kept, finite_logs=True)
        try:
            subject.call(case, NativeSource(0))
        except Exception:
            return False
        finally:
            subject.dialect = kept
        return True
    except Exception:
        return False
    return False


def does_without_draft_law(subject: FunctionSubject) -> bool:
    """Whether it says that the draft law may be None, and then still does what it must."""
    names = [name for role, name in subject.dialect.roles.items() if role in _DRAFT_LAWS]
    parameters = signature_of(subject.function) if subject.function is not None and names else None
    if parameters is None or names[0] not in parameters:
        return False
    parameter = parameters[names[0]]
    if parameter.default is not None and not any(word in str(parameter.annotation) for word in ("None", "Optional")):
        return False
    for seed, (case, expected) in enumerate(trial_cases(has_draft_law=False, is_tree=subject.takes_trees)):
        try:
            if subject.call(case, NativeSource(seed)).token_ids != expected.token_ids:
                return False
        except Exception:
            return False
    return True


def takes_two_rows(subject: FunctionSubject) -> bool:
    """Whether a call on two rows works at all; some functions carry a batch axis that must be 1."""
    trials = trial_cases(has_draft_law=subject.dialect.takes_draft_law, is_tree=subject.takes_trees)
    one, other = [case for case, _ in trials]
    for seed, cases in enumerate(((one, other), (other, one), (one, one), (other, other))):
        try:
            subject.call_rows(cases, NativeSource(seed))
        except Exception:
            return False
    return True
