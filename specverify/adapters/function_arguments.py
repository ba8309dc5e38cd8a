"""Builds the arguments of one call of a verify function from cases and a source of randomness."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from specverify.adapters.function_arrays import encode_floats, encode_ids, fresh_copy, in_form
from specverify.adapters.function_dialect import Dialect
from specverify.adapters.function_returns import PREFIX_TOKEN_IDS
from specverify.core.types import VerifyInput
from specverify.exact.program import RandomSource, SymbolicSource

_FIXED_SEED = 20221130
# Cases whose encoded laws are kept.
_MOST_KEPT = 4096
Cases = Sequence[VerifyInput]


def arguments_for(dialect: Dialect, cases: Cases, source: RandomSource, cache: ArgumentCache) -> dict[str, Any]:
    """Fresh arguments by parameter name; nothing in them is shared with the cases or with another call.

    cases: one a batch row; exactly one where the function takes a single sequence.
    """
    arguments = dict(dialect.constants)
    for name, make in dialect.arguments.items():
        arguments[name] = make(cases[0] if len(cases) == 1 else cases, source)
    for role, name in dialect.roles.items():
        wanted = _Wanted(dialect.kinds.get(name, "numpy"), dialect, cases, source)
        if role in _MADE_EACH_TIME:
            arguments[name] = _MADE_EACH_TIME[role](wanted)
        else:
            arguments[name] = cache.copy_of(role, wanted)
    return arguments


@dataclass(frozen=True)
class _Wanted:
    """One argument: its kind of array, and what it is made from."""

    kind: str
    dialect: Dialect
    cases: Cases
    source: Any

    def ids(self, rows: Sequence[Sequence[int]]) -> Any:
        return encode_ids([np.asarray(row, dtype=np.int64) for row in rows], self.kind, self.dialect.layout)

    def floats(self, rows: Sequence[Any]) -> Any:
        return encode_floats(rows, self.kind, self.dialect.dtype, self.dialect.layout, self.dialect.rounding)

    @property
    def lengths(self) -> list[int]:
        return [len(case.draft_token_ids) for case in self.cases]

    @property
    def is_one_number(self) -> bool:
        """Whether a single value of a single sequence is handed over as a plain number."""
        return self.dialect.layout == "single" and self.kind != "torch"

    def draw(self, law: Any) -> int:
        return int(self.source.numpy_generator().choice(len(law), p=law))


class ArgumentCache:
    """Encoded laws and token ids by case: checks repeat the same cases many thousand times, and copying is cheaper.

    Cases are kept alive here, so that their identity can serve as a key.
    """

    def __init__(self) -> None:
        self._made: dict[tuple[str, tuple[int, ...], int], tuple[Cases, Dialect, Any]] = {}

    def copy_of(self, role: str, wanted: _Wanted) -> Any:
        """A fresh copy of the argument."""
        if len(wanted.cases) > 2:
            return _encoded(role, wanted)
        key = (role, tuple(map(id, wanted.cases)), id(wanted.dialect))
        found = self._made.get(key)
        if found is None:
            if len(self._made) >= _MOST_KEPT:
                self._made.clear()
            found = self._made[key] = (tuple(wanted.cases), wanted.dialect, _encoded(role, wanted))
        return fresh_copy(found[2])


_IDS: Mapping[str, Callable[[VerifyInput], Sequence[int]]] = {
    "draft_token_ids": lambda case: case.draft_token_ids,
    "sequence_token_ids": lambda case: (*PREFIX_TOKEN_IDS, *case.draft_token_ids),
    "prefix_token_ids": lambda case: PREFIX_TOKEN_IDS,
    "parents": lambda case: case.parents or (),
}


def _encoded(role: str, wanted: _Wanted) -> Any:
    if role in _IDS:
        return wanted.ids([_IDS[role](case) for case in wanted.cases])
    side, _, form = role.partition("_")
    if side == "draft" and any(case.draft_probs is None for case in wanted.cases):
        return None
    rows = []
    for case in wanted.cases:
        law = np.asarray(case.draft_probs if side == "draft" else case.target_probs, dtype=np.float64)
        if side == "bonus":
            law = law[-1]
        elif side == "target" and wanted.dialect.target_rows != "k + 1":
            law = law[:-1]
        rows.append(in_form(law, form, finite=wanted.dialect.finite_logs, side=side))
    return wanted.floats(rows)


def _rng(wanted: _Wanted) -> Any:
    source: RandomSource = wanted.source
    if wanted.dialect.rng_kind == "torch":
        return source.torch_generator()
    if wanted.dialect.rng_kind in ("python", "function"):
        generator = source.python_random()
        return generator if wanted.dialect.rng_kind == "python" else generator.random
    return source.numpy_generator()


def _seed(wanted: _Wanted) -> int:
    """A new seed a call; while the law is enumerated a fixed one, for the streams it opens are symbolic anyway."""
    source = wanted.source
    if hasattr(source, "next_seed"):
        return int(source.next_seed())
    return _FIXED_SEED if isinstance(source, SymbolicSource) else int(source.numpy_generator().integers(2**31))


def _uniforms(wanted: _Wanted) -> Any:
    lengths = [length + int(wanted.dialect.num_uniforms == "k + 1") for length in wanted.lengths]
    return _uniform_array(wanted, (sum(lengths) if wanted.dialect.layout == "flat" else lengths[0],))


def _final_uniform(wanted: _Wanted) -> Any:
    return wanted.source.uniforms((1,))[0] if wanted.is_one_number else _uniform_array(wanted, ())


def _uniform_array(wanted: _Wanted, shape: tuple[int, ...]) -> Any:
    if wanted.dialect.layout == "batch":
        shape = (len(wanted.cases), *shape)
    elif wanted.dialect.layout == "flat" and not shape:
        shape = (len(wanted.cases),)
    if wanted.kind.startswith("torch"):
        import torch

        # Whoever calls a function with laws of half precision draws its uniforms in float32 all the same.
        dtype = torch.float64 if wanted.dialect.dtype == "float64" else torch.float32
        uniforms = wanted.source.torch_uniforms(shape)
        return uniforms if uniforms.dtype == dtype else uniforms.to(dtype)
    array = wanted.source.uniforms(shape)
    return array.tolist() if wanted.kind == "list" else array


def _drawn_bonus(wanted: _Wanted) -> Any:
    drawn = [wanted.draw(np.asarray(case.target_probs)[-1]) for case in wanted.cases]
    if wanted.is_one_number:
        return drawn[0]
    ids = np.array(drawn)[:, None] if wanted.dialect.bonus_is_column else np.array(drawn)
    return encode_ids([ids], wanted.kind, "single")


def _drawn_targets(wanted: _Wanted) -> Any:
    return wanted.ids([[wanted.draw(law) for law in np.asarray(case.target_probs)] for case in wanted.cases])


def _chosen_probs(wanted: _Wanted, form: str) -> Any:
    """The draft law at the draft tokens."""
    rows = []
    for case in wanted.cases:
        tokens = list(case.draft_token_ids)
        rows.append(in_form(np.asarray(case.draft_probs)[np.arange(len(tokens)), tokens], form))
    return wanted.floats(rows)


def _num_drafts(wanted: _Wanted) -> Any:
    """An integer; one for each row where the parameter takes an array or the rows lie end to end."""
    if wanted.dialect.layout == "flat" or wanted.kind == "array per row":
        if wanted.kind in ("list", "numpy"):
            return wanted.lengths
        return encode_ids([np.asarray(wanted.lengths)], "torch", "single")
    return wanted.lengths[0]


_MADE_EACH_TIME: Mapping[str, Callable[[_Wanted], Any]] = {
    "rng": _rng,
    "seed": _seed,
    "uniforms": _uniforms,
    "final_uniform": _final_uniform,
    "bonus_token_id": _drawn_bonus,
    "target_token_ids": _drawn_targets,
    "draft_token_probs": lambda wanted: _chosen_probs(wanted, "probs"),
    "draft_token_logprobs": lambda wanted: _chosen_probs(wanted, "logprobs"),
    "num_draft_tokens": _num_drafts,
    "cumulative_num_draft_tokens": lambda wanted: encode_ids([np.cumsum(wanted.lengths)], wanted.kind, "single"),
    "max_num_draft_tokens": lambda wanted: max(wanted.lengths),
    "num_prefix_tokens": lambda wanted: len(PREFIX_TOKEN_IDS),
    "vocab_size": lambda wanted: int(np.asarray(wanted.cases[0].target_probs).shape[-1]),
}
