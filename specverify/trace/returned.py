"""The door through which everything enters that an engine returns: what no check could judge is named here, once.

A law with NaN in it passes every comparison that is written as "not larger than", and a missing row moves all that
follow: such records would turn into a pass that means nothing, or into an exception in the middle of a check.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specverify.core.errors import SubjectCrashed
from specverify.core.types import Request, Step, Trace

# Rows in bfloat16 (8 bits) sum to 1 within 1e-2; a forgotten softmax or mask is far outside.
LAW_SUM_TOLERANCE = 2e-2
_STEP_IDS = ("draft_token_ids", "token_ids")
_STEP_OPTIONAL_IDS = ("target_positions", "draft_positions", "parents", "accepted_nodes")
_STEP_COUNTS = ("start_position", "num_accepted")
# Field, rows beyond the k draft tokens, and how a reader is told the number of rows.
_LAWS = (("target_probs", 1, "k + 1"), ("draft_probs", 0, "k"))


def returned_traces(name: str, made: Any, requests: Sequence[Request], *, with_laws: bool = True) -> tuple[Trace, ...]:
    """What `generate` of the engine called name returned, with tuples of int and numpy arrays where others came.

    with_laws: also check the laws, which costs a pass over them; wrong while randomness is undecided (enumeration).
    Raises SubjectCrashed naming request, step, field and row of the first thing that is not as Trace and Step say.
    """
    if isinstance(made, Trace) or not hasattr(made, "__iter__"):
        raise SubjectCrashed(f"{name} returned {_type(made)} from generate; return a list with one Trace per request")
    traces = tuple(made)
    for number, trace in enumerate(traces):
        if not isinstance(trace, Trace):
            raise SubjectCrashed(
                f"{name} returned {_type(trace)} for request {number}; give a specverify.core.types.Trace"
            )
    if len(traces) != len(requests):
        raise SubjectCrashed(
            f"{name} returned {len(traces)} traces for {len(requests)} requests; return one per request, in their order"
        )
    return tuple(_trace(f"{name}:", trace, number, with_laws) for number, trace in enumerate(traces))


def _trace(name: str, trace: Trace, number: int, with_laws: bool) -> Trace:
    changes = _ids(f"{name} Trace", f"of request {number}", trace, ("token_ids",))
    if not isinstance(trace.steps, tuple):
        changes["steps"] = tuple(trace.steps)
    steps = tuple(
        _step(name, step, f"of request {number}, step {index}", with_laws)
        for index, step in enumerate(changes.get("steps", trace.steps))
    )
    if with_laws and trace.log_probs is not None:
        log_probs = _log_probs(f"{name} Trace.log_probs", f"of request {number}", trace.log_probs)
        if log_probs is not trace.log_probs:
            changes["log_probs"] = log_probs
    if any(new is not old for new, old in zip(steps, changes.get("steps", trace.steps), strict=True)):
        changes["steps"] = steps
    return replace(trace, **changes) if changes else trace


def _step(name: str, step: Any, where: str, with_laws: bool) -> Step:
    if not isinstance(step, Step):
        raise SubjectCrashed(f"{name} the record {where} is {_type(step)}; give a specverify.core.types.Step")
    optional = tuple(field for field in _STEP_OPTIONAL_IDS if getattr(step, field) is not None)
    changes = _ids(f"{name} Step", where, step, (*_STEP_IDS, *optional))
    for field in _STEP_COUNTS:
        value = getattr(step, field)
        if isinstance(value, np.integer):
            changes[field] = int(value)
        elif not hasattr(value, "__index__"):
            raise SubjectCrashed(f"{name} Step.{field} {where} is {_type(value)}; give an int")
    if with_laws:
        num_drafted = len(changes.get("draft_token_ids", step.draft_token_ids))
        for field, more, formula in _LAWS:
            given = getattr(step, field)
            if given is not None and (num_drafted or more):
                rows = _law(f"{name} Step.{field}", where, given, num_drafted + more, formula)
                if rows is not given:
                    changes[field] = rows
    return replace(step, **changes) if changes else step


def _ids(owner: str, where: str, record: Any, names: Sequence[str]) -> dict[str, Any]:
    """The fields that had to be converted. Numbers whose randomness is undecided are left as they are."""
    changes: dict[str, Any] = {}
    for field in names:
        given = getattr(record, field)
        if type(given) is tuple and all(type(token) is int for token in given):
            continue
        wrong = f"{owner}.{field} {where}"
        if isinstance(given, (str, bytes, Mapping)) or not hasattr(given, "__iter__"):
            raise SubjectCrashed(f"{wrong} is {_type(given)}; give a tuple of int")
        tokens = given.tolist() if hasattr(given, "tolist") else given
        converted = tuple(int(token) if isinstance(token, np.integer) else token for token in tokens)
        for position, token in enumerate(converted):
            if not hasattr(token, "__index__"):
                raise SubjectCrashed(f"{wrong} has {_type(token)} at {position}; give a tuple of int")
        changes[field] = converted
    return changes


def _log_probs(field: str, where: str, given: Any) -> tuple[float, ...]:
    """As a tuple of float, however many there are: a wrong number of them is the finding of a check."""
    if type(given) is tuple and all(type(number) is float and number == number for number in given):
        return given
    if isinstance(given, (str, bytes, Mapping)) or not hasattr(given, "__iter__"):
        raise SubjectCrashed(f"{field} {where} is {_type(given)}; give a tuple of float, or None for no record")
    numbers = []
    for index, value in enumerate(given.tolist() if hasattr(given, "tolist") else given):
        # Scalars of numpy and torch are numbers too; a pair of token and number is none.
        plain = value.item() if hasattr(value, "item") else value
        if not isinstance(plain, (int, float)):
            raise SubjectCrashed(
                f"{field} {where} has {_type(plain)} at {index}; give one number for each entry of token_ids"
            )
        if plain != plain:
            raise SubjectCrashed(f"{field} {where} has NaN at {index}; give natural logarithms of probabilities")
        numbers.append(float(plain))
    return tuple(numbers)


def _law(field: str, where: str, given: Any, num_rows: int, formula: str) -> NDArray[Any]:
    if isinstance(given, np.ndarray) and given.dtype.kind == "f":
        rows: NDArray[Any] = given
    else:
        try:
            rows = np.asarray(given, dtype=np.float64)
        except (TypeError, ValueError, RuntimeError) as error:
            raise SubjectCrashed(
                f"{field} {where} is {_type(given)} that does not become an array of numbers; give a numpy array"
            ) from error
    if rows.ndim != 2:
        raise SubjectCrashed(f"{field} {where} has shape {rows.shape}; give [{formula}, vocab], k draft tokens")
    if len(rows) != num_rows:
        bonus = "; the last row is the law of the bonus token" if formula != "k" else ""
        raise SubjectCrashed(f"{field} {where} has {len(rows)} rows, {num_rows} wanted ({formula}){bonus}")
    # One pass in the common case; NaN fails both comparisons. Half precision is summed in more than its own bits.
    sums = rows.sum(axis=-1, dtype=np.float64)
    if (np.abs(sums - 1.0) <= LAW_SUM_TOLERANCE).all() and rows.min(initial=0.0) >= 0.0:
        return rows
    raise SubjectCrashed(_wrong_row(field, where, rows, sums))


def _wrong_row(field: str, where: str, rows: NDArray[Any], sums: NDArray[np.float64]) -> str:
    for index, (row, total) in enumerate(zip(rows, sums, strict=True)):
        place = f"{field}[{index}] {where}"
        if np.isnan(row).any():
            return f"{place} has NaN at token {int(np.isnan(row).argmax())}; give probabilities"
        if total < 0.0 and row.max() <= 0.0:
            return f"{place} does not sum to 1 (sum {total:.3g}): are these log-probabilities? Give probabilities"
        if row.min() < 0.0:
            return f"{place} has {row.min():.3g} at token {int(row.argmin())}; give probabilities, between 0 and 1"
        if abs(total - 1.0) > LAW_SUM_TOLERANCE:
            return f"{place} does not sum to 1 (sum {total:.3g}); apply softmax to logits, renormalise after masking"
    return f"{field} {where} is no law; give probabilities"


def _type(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
