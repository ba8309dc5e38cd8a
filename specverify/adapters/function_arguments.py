"""Builds the arguments of one call of a verify function from cases and a source of randomness."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from specverify.adapters.function_arrays import encode_floats, encode_ids, fresh_copy, in_form
from specverify.adapters.function_dialect import Dialect
from specverify.adapters.function_returns import PREFIX_TOKEN_IDS
from specverify.core.types import VerifyInput
from specverify.exact.program import RandomSource, SymbolicSource

_FIXED_SEED = 20221130
Cases = Sequence[VerifyInput]


def arguments_for(dialect: Dialect, cases: Cases, source: RandomSource, cache: ArgumentCache) -> dict[str, Any]:
    """Fresh arguments by parameter name; nothing in them is shared with the cases or with another call.

    cases: one a batch row; exactly one where the function takes a single sequence.
    """
    arguments = dict(dialect.constants)
    for name, make in dialect.arguments.items():
        arguments[name] = make(cases[0] if len(cases) == 1 else cases, source)
    for role, name in dialect.roles.items():
        arguments[name] = _argument(role, name, dialect, cases, source, cache)
    return arguments


class ArgumentCache:
    """Encoded laws and token ids by case: checks repeat the same cases many thousand times, and copying is cheaper.

    Cases are kept alive here, so that their identity can serve as a key.
    """

    def __init__(self, limit: int = 4096) -> None:
        self._limit = limit
        self._made: dict[tuple[str, tuple[int, ...], int], tuple[Cases, Dialect, Any]] = {}

    def copy_of(self, role: str, dialect: Dialect, cases: Cases, make: Callable[[], Any]) -> Any:
        """A fresh copy of what `make` gives for these cases."""
        if len(cases) > 2:
            return make()
        key = (role, tuple(map(id, cases)), id(dialect))
        found = self._made.get(key)
        if found is None:
            if len(self._made) >= self._limit:
                self._made.clear()
            found = self._made[key] = (tuple(cases), dialect, make())
        return fresh_copy(found[2])


def _argument(role: str, name: str, dialect: Dialect, cases: Cases, source: RandomSource, cache: ArgumentCache) -> Any:
    kind = dialect.kinds.get(name, "numpy")
    if role in _RANDOM:
        return _RANDOM[role](kind, dialect, cases, source)
    if role in _SIZES:
        return _SIZES[role](kind, dialect, cases)
    return cache.copy_of(role, dialect, cases, lambda: _encoded(role, kind, dialect, cases))


def _encoded(role: str, kind: str, dialect: Dialect, cases: Cases) -> Any:
    if role in _IDS:
        rows = [np.asarray(_IDS[role](case), dtype=np.int64) for case in cases]
        return encode_ids(rows, kind, dialect.layout)
    side, _, form = role.partition("_")
    return _laws(side, form, kind, dialect, cases)


def _laws(side: str, form: str, kind: str, dialect: Dialect, cases: Cases) -> Any:
    if side == "draft" and any(case.draft_probs is None for case in cases):
        return None
    rows = []
    for case in cases:
        if side == "draft":
            law = np.asarray(case.draft_probs, dtype=np.float64)
        elif side == "bonus":
            law = np.asarray(case.target_probs, dtype=np.float64)[-1]
        else:
            law = np.asarray(case.target_probs, dtype=np.float64)
            law = law if dialect.target_rows == "k + 1" else law[:-1]
        rows.append(in_form(law, form, finite=dialect.finite_logs))
    return encode_floats(rows, kind, dialect.dtype, dialect.layout, dialect.rounding)


_IDS: Mapping[str, Callable[[VerifyInput], Sequence[int]]] = {
    "draft_token_ids": lambda case: case.draft_token_ids,
    "sequence_token_ids": lambda case: (*PREFIX_TOKEN_IDS, *case.draft_token_ids),
    "prefix_token_ids": lambda case: PREFIX_TOKEN_IDS,
    "parents": lambda case: case.parents or (),
}


def _rng(kind: str, dialect: Dialect, cases: Cases, source: RandomSource) -> Any:
    if dialect.rng_kind == "torch":
        return source.torch_generator()
    if dialect.rng_kind == "python":
        return source.python_random()
    if dialect.rng_kind == "function":
        generator = source.python_random()
        return generator.random
    return source.numpy_generator()


def _seed(kind: str, dialect: Dialect, cases: Cases, source: RandomSource) -> int:
    """A new seed a call; while the law is enumerated a fixed one, for the streams it opens are symbolic anyway."""
    if hasattr(source, "next_seed"):
        return int(source.next_seed())
    return _FIXED_SEED if isinstance(source, SymbolicSource) else int(source.numpy_generator().integers(2**31))


def _uniforms(kind: str, dialect: Dialect, cases: Cases, source: RandomSource) -> Any:
    num = len(cases[0].draft_token_ids) + int(dialect.num_uniforms == "k + 1")
    return _uniform_array((num,), kind, dialect, cases, source)


def _final_uniform(kind: str, dialect: Dialect, cases: Cases, source: RandomSource) -> Any:
    if dialect.layout == "single" and kind != "torch":
        return source.uniforms((1,))[0]
    return _uniform_array((), kind, dialect, cases, source)


def _uniform_array(shape: tuple[int, ...], kind: str, dialect: Dialect, cases: Cases, source: RandomSource) -> Any:
    if dialect.layout == "batch":
        shape = (len(cases), *shape)
    elif dialect.layout == "flat":
        shape = (len(cases) * (shape[0] if shape else 1),)
    if kind.startswith("torch"):
        import torch

        uniforms = source.torch_uniforms(shape)
        return (
            uniforms if uniforms.dtype == getattr(torch, dialect.dtype) else uniforms.to(getattr(torch, dialect.dtype))
        )
    array = source.uniforms(shape)
    return array.tolist() if kind == "list" else array


def _drawn_bonus(kind: str, dialect: Dialect, cases: Cases, source: RandomSource) -> Any:
    drawn = [_draw(np.asarray(case.target_probs)[-1], source) for case in cases]
    if dialect.layout == "single" and kind != "torch":
        return drawn[0]
    return encode_ids([np.asarray(drawn[:1] if dialect.layout == "single" else [token]) for token in drawn], kind,
                      dialect.layout)  # fmt: skip


def _drawn_targets(kind: str, dialect: Dialect, cases: Cases, source: RandomSource) -> Any:
    rows = [np.asarray([_draw(law, source) for law in np.asarray(case.target_probs)]) for case in cases]
    return encode_ids(rows, kind, dialect.layout)


def _draw(law: Any, source: RandomSource) -> int:
    return int(source.numpy_generator().choice(len(law), p=law))


_RANDOM: Mapping[str, Callable[[str, Dialect, Cases, Any], Any]] = {
    "rng": _rng,
    "seed": _seed,
    "uniforms": _uniforms,
    "final_uniform": _final_uniform,
    "bonus_token_id": _drawn_bonus,
    "target_token_ids": _drawn_targets,
}


def _chosen_probs(form: str) -> Callable[[str, Dialect, Cases], Any]:
    def make(kind: str, dialect: Dialect, cases: Cases) -> Any:
        rows = [
            in_form(
                np.asarray(case.draft_probs)[np.arange(len(case.draft_token_ids)), list(case.draft_token_ids)], form
            )
            for case in cases
        ]
        return encode_floats(rows, kind, dialect.dtype, dialect.layout, dialect.rounding)

    return make


def _num_drafts(kind: str, dialect: Dialect, cases: Cases) -> Any:
    """An integer; one for each row where the parameter takes an array or the rows lie end to end."""
    lengths = [len(case.draft_token_ids) for case in cases]
    if dialect.layout == "flat" or kind == "array per row":
        return lengths if kind in ("list", "numpy") else encode_ids([np.asarray(lengths)], "torch", "single")
    return lengths[0]


def _cumulative(kind: str, dialect: Dialect, cases: Cases) -> Any:
    sums = np.cumsum([len(case.draft_token_ids) for case in cases])
    return encode_ids([sums], kind, "single")


_SIZES: Mapping[str, Callable[[str, Dialect, Cases], Any]] = {
    "draft_token_probs": _chosen_probs("probs"),
    "draft_token_logprobs": _chosen_probs("logprobs"),
    "num_draft_tokens": _num_drafts,
    "cumulative_num_draft_tokens": _cumulative,
    "max_num_draft_tokens": lambda kind, dialect, cases: max(len(case.draft_token_ids) for case in cases),
    "num_prefix_tokens": lambda kind, dialect, cases: len(PREFIX_TOKEN_IDS),
    "vocab_size": lambda kind, dialect, cases: int(np.asarray(cases[0].target_probs).shape[-1]),
}
