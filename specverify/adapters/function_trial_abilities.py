"""What a verify function can be asked, found out by trial calls: infinite logits, no draft law, no drafts, two rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from specverify.adapters.function_cases import certain_case, empty_case, trial_cases
from specverify.adapters.function_names import FORMS
from specverify.adapters.function_roles import signature_of
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


def refusal_of_two_rows(subject: FunctionSubject) -> str:
    """What goes wrong in calls on two rows, empty where nothing does. Some batch axes must be 1."""
    trials = trial_cases(has_draft_law=subject.dialect.takes_draft_law, is_tree=subject.takes_trees)
    one, other = [case for case, _ in trials]
    for seed, cases in enumerate(((one, other), (other, one), (one, one), (other, other))):
        try:
            subject.call_rows(cases, NativeSource(seed))
        except Exception as error:
            return f"{type(error).__name__}: {(str(error).strip().splitlines() or ['no message'])[0]}"
    return ""


def does_without_drafts(subject: FunctionSubject) -> bool:
    """Whether a call without any draft token gives one token of the target's law, as far as a certain case can tell."""
    if subject.takes_trees or subject.dialect.drafts_itself:
        return False
    case, expected = empty_case(has_draft_law=subject.dialect.takes_draft_law)
    try:
        return subject.call(case, NativeSource(0)).token_ids == expected.token_ids
    except Exception:
        return False
