"""Traces as JSON objects and back. Numbers survive bit for bit."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specverify.core.constraint import Constraint
from specverify.core.types import Request, SamplingParams, Step, Trace

# Laws of small vocabularies are written as numbers, so that a golden trace can be read and its changes reviewed.
# Anything larger (laws of real vocabularies, KV rows) goes in as bytes.
LARGEST_READABLE_ARRAY = 4096

_STEP_ARRAYS = ("draft_probs", "target_probs", "target_kv_rows", "draft_kv_rows")
_STEP_TUPLES = (
    "draft_token_ids",
    "token_ids",
    "uniforms",
    "target_positions",
    "draft_positions",
    "parents",
    "accepted_nodes",
)
_TRACE_FIELDS = ("first_from_prefill", "kv_lag", "draft_kv_lag", "num_proposed", "num_accepted", "finish_reason")
_DTYPES = ("float64", "float32", "float16", "int64", "int32")


def encode_request(trace: Trace) -> dict[str, Any]:
    """What is known of a trace before its first step."""
    request = trace.request
    return {
        "request_id": request.request_id,
        "prompt_token_ids": _ints(request.prompt_token_ids),
        "max_new_tokens": request.max_new_tokens,
        "seed": request.seed,
        "eos_token_ids": _ints(request.eos_token_ids),
        "sampling": asdict(request.sampling),
        "speculated": trace.speculated,
        **({} if request.constraint is None else {"constraint": request.constraint.to_json()}),
    }


def encode_step(step: Step) -> dict[str, Any]:
    """One step; what was not recorded is left out."""
    encoded: dict[str, Any] = {}
    for field in fields(Step):
        value = getattr(step, field.name)
        if value is None:
            continue
        if field.name in _STEP_ARRAYS:
            encoded[field.name] = encode_array(np.asarray(value))
        elif field.name == "uniforms":
            encoded[field.name] = [float(number) for number in value]
        elif field.name in _STEP_TUPLES:
            encoded[field.name] = _ints(value)
        else:
            encoded[field.name] = bool(value) if field.name == "is_truncated" else int(value)
    return encoded


def encode_result(trace: Trace) -> dict[str, Any]:
    """What is known of a trace after its last step."""
    return {
        "token_ids": _ints(trace.token_ids),
        "num_steps": len(trace.steps),
        **{name: getattr(trace, name) for name in _TRACE_FIELDS},
        "meta": trace.meta,
        **({} if trace.log_probs is None else {"log_probs": [float(number) for number in trace.log_probs]}),
    }


def decode_trace(request: Mapping[str, Any], steps: Sequence[Step], result: Mapping[str, Any] | None) -> Trace:
    """The trace of these objects. Without a result, what its steps committed and nothing more is known of it."""
    asked = Request(
        prompt_token_ids=tuple(request["prompt_token_ids"]),
        max_new_tokens=request["max_new_tokens"],
        sampling=SamplingParams(**request["sampling"]),
        seed=request["seed"],
        eos_token_ids=tuple(request["eos_token_ids"]),
        request_id=request["request_id"],
        # Files written before there were constraints have none.
        constraint=Constraint.from_json(request["constraint"]) if "constraint" in request else None,
    )
    if result is None:
        known = tuple(token for step in steps for token in step.token_ids)
        return Trace(asked, known, tuple(steps), request["speculated"], first_from_prefill=0, meta={"is_partial": True})
    return Trace(
        request=asked,
        token_ids=tuple(result["token_ids"]),
        steps=tuple(steps),
        speculated=request["speculated"],
        **{name: result[name] for name in _TRACE_FIELDS},
        meta=dict(result["meta"]),
        # Files written before there were any have none.
        log_probs=tuple(result["log_probs"]) if "log_probs" in result else None,
    )


def decode_step(encoded: Mapping[str, Any]) -> Step:
    """The step of this object. Raises KeyError, TypeError or ValueError where the object is not one."""
    values: dict[str, Any] = {}
    for field in fields(Step):
        if field.name not in encoded:
            continue
        value = encoded[field.name]
        if field.name in _STEP_ARRAYS:
            values[field.name] = decode_array(value)
        else:
            values[field.name] = tuple(value) if field.name in _STEP_TUPLES else value
    return Step(**values)


def encode_array(array: NDArray[Any]) -> dict[str, Any]:
    """Shape, dtype and contents: numbers where there are few, little-endian bytes in base64 where there are many."""
    if array.dtype.name not in _DTYPES:
        array = array.astype(np.float64)
    described = {"dtype": array.dtype.name, "shape": list(array.shape)}
    if array.size <= LARGEST_READABLE_ARRAY:
        # float32 values become doubles here, and doubles are printed so that they read back exactly.
        return {**described, "values": array.tolist()}
    little_endian = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return {**described, "base64": base64.b64encode(little_endian.tobytes()).decode("ascii")}


def decode_array(encoded: Mapping[str, Any]) -> NDArray[Any]:
    """The array of this object. Raises KeyError or ValueError where the object is not one."""
    if encoded["dtype"] not in _DTYPES:
        raise ValueError(f"dtype {encoded['dtype']!r} is not one of {', '.join(_DTYPES)}")
    dtype = np.dtype(encoded["dtype"])
    if "values" in encoded:
        return np.array(encoded["values"], dtype=dtype).reshape(encoded["shape"])
    data = np.frombuffer(base64.b64decode(encoded["base64"], validate=True), dtype=dtype.newbyteorder("<"))
    return data.astype(dtype).reshape(encoded["shape"])


def _ints(values: Sequence[Any]) -> list[int]:
    return [int(value) for value in values]
