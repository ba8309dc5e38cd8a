"""Any verify function as a subject: called with cases in its own dialect, answering in ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from specverify.adapters.function_arguments import ArgumentCache, arguments_for
from specverify.adapters.function_arrays import as_nested, is_changed, rounded_law, snapshot
from specverify.adapters.function_dialect import (
    DTYPES,
    KINDS,
    LAYOUTS,
    RNG_KINDS,
    Dialect,
    return_form,
)
from specverify.adapters.function_names import NEUTRAL_VALUES
from specverify.adapters.function_returns import Unreadable, read_output, select_parts
from specverify.adapters.function_roles import name_of, place_parameters, signature_of
from specverify.adapters.function_sampling import own_temperature
from specverify.adapters.function_trial import Open, settle
from specverify.adapters.function_trial_abilities import (
    does_without_draft_law,
    does_without_drafts,
    refusal_of_two_rows,
    refuses_infinity,
)
from specverify.core.capabilities import Capability
from specverify.core.errors import SubjectCrashed, UsageError
from specverify.core.randomness import kept_global_randomness
from specverify.core.types import VerifyInput, VerifyOutput, WholeStepInput
from specverify.exact.program import RandomSource

Call = Callable[[VerifyInput, RandomSource], Any]


class FunctionSubject:
    """A verify function under test.

    function: any callable; None where call or step makes the whole call. parameters: role to parameter name
    (function_names.ROLES), all optional where the names give the roles away. layout: "single", "batch" or "flat" (rows
    end to end); batched is short for the first two. rng_kind: "numpy", "torch", "python" or "function". The other
    options are those of specverify.verified.

    Raises UsageError where the mapping is unclear, or where no way of calling works.
    """

    def __init__(
        self,
        function: Callable[..., Any] | None,
        parameters: Mapping[str, str] | None = None,
        *,
        returns: str | Sequence[str] | Mapping[str, str] | None = None,
        kind: str | Mapping[str, str] | None = None,
        batched: bool | None = None,
        layout: str | None = None,
        rng_kind: str | None = None,
        dtype: str = "float64",
        constants: Mapping[str, Any] | None = None,
        arguments: Mapping[str, Callable[..., Any]] | None = None,
        setup: Callable[..., Any] | None = None,
        call: Call | None = None,
        step: Callable[..., Any] | None = None,
        is_greedy: bool = False,
        is_tree: bool = False,
        lossy_by_design: str = "",
        name: str = "",
    ) -> None:
        self.function = function
        self.name = name or name_of(function if function is not None else call)
        self.is_greedy = is_greedy
        self.lossy_by_design = lossy_by_design
        if step is not None:
            call = _whole_step(step)
        self._call = call
        self._cache = ArgumentCache()
        parameters_seen = {} if function is None else signature_of(function) or {}
        self._positional_only = [name for name, one in parameters_seen.items() if one.kind is one.POSITIONAL_ONLY]
        self._setup = setup
        self._setup_takes_case = bool(setup and signature_of(setup))
        kinds = [kind] if isinstance(kind, str) else list((kind or {}).values())
        for option, values, choices in (
            ("dtype", [dtype], DTYPES), ("kind", kinds, KINDS), ("layout", [layout], LAYOUTS),
            ("rng_kind", [rng_kind], RNG_KINDS),
        ):  # fmt: skip
            for value in values:
                if value is not None and value not in choices:
                    raise UsageError(f"{option}={value!r} is not one of {', '.join(map(repr, choices))}")
        layout = layout or (None if batched is None else "batch" if batched else "single")
        given = return_form(returns)
        constants, arguments, swappable = dict(constants or {}), dict(arguments or {}), False
        if call is not None:
            base = Dialect(dict(parameters or {}), layout="single")
        else:
            taken = {*constants, *arguments}
            found = place_parameters(function, self.name, dict(parameters or {}), taken, needs_target=setup is None)
            constants = {name: NEUTRAL_VALUES[name] for name in found.neutral} | constants
            base, swappable = Dialect(found.roles, constants=constants, arguments=arguments), found.swappable
        base = replace(base, dtype=dtype, is_tree=is_tree, drafts_itself=step is not None)
        with kept_global_randomness():
            self.dialect = settle(
                function, self.name, self._invoke, base, Open(kind, layout, rng_kind, given, swappable)
            )  # fmt: skip
            self.takes_trees = self.dialect.takes_trees
            if refuses_infinity(self):
                self.dialect = replace(self.dialect, finite_logs=True)
            self.batch_refusal = refusal_of_two_rows(self) if self.dialect.layout != "single" else ""
            self.takes_batches = self.dialect.layout != "single" and not self.batch_refusal
            self.takes_ragged_batches = self.takes_batches and self.dialect.layout == "flat"
            self.takes_no_drafts = does_without_drafts(self)
            self.draft_law_is_optional = does_without_draft_law(self)
        dialect, roles = self.dialect, set(self.dialect.roles)
        self.temperature_parameter, self.temperature = own_temperature(
            function if call is None else None, self.name, dialect, is_greedy=is_greedy
        )
        self.tempers_draft = "draft_logits" in roles
        self.dtype = dtype
        self.drafts_itself = dialect.drafts_itself
        self.takes_all_uniforms = "uniforms" in roles and dialect.num_uniforms == "k + 1"
        self.draws_inside = call is not None or not {"uniforms", "target_token_ids"} & roles
        self.takes_draft_law = call is not None or dialect.takes_draft_law
        self.decides_only = dialect.returns.decides_only
        shown = {
            Capability.VERIFY: True,
            Capability.VERIFY_CALLS: True,
            Capability.DRAFT_PROBS_ARGUMENT: self.takes_draft_law,
            Capability.UNIFORMS_ARGUMENT: "uniforms" in roles,
            Capability.GENERATOR_ARGUMENT: bool({"rng", "seed"} & roles),
            Capability.BATCH: self.takes_batches,
        }
        self.capabilities = frozenset(capability for capability, is_shown in shown.items() if is_shown)

    @classmethod
    def from_function(cls, function: Callable[..., Any], *, name: str = "") -> FunctionSubject:
        """The subject behind a bare function, its dialect inferred from names, annotations and trial calls."""
        return cls(function, name=name)

    def _invoke(self, dialect: Dialect, case: VerifyInput, source: RandomSource) -> Any:
        return self._answer([case], self._arguments(dialect, [case], source), source)

    def _arguments(self, dialect: Dialect, cases: Sequence[VerifyInput], source: RandomSource) -> dict[str, Any]:
        return {} if self._call is not None else arguments_for(dialect, cases, source, self._cache)

    def _answer(self, cases: Sequence[VerifyInput], arguments: dict[str, Any], source: RandomSource) -> Any:
        """The raw answer of one call with these arguments."""
        if self._setup is not None:
            self._setup(*([cases[0]] if self._setup_takes_case else []))
        if self._call is not None:
            return self._call(cases[0], source)
        assert self.function is not None
        positional = [arguments.pop(name) for name in self._positional_only if name in arguments]
        return self.function(*positional, **arguments)

    def parts(self, cases: Sequence[VerifyInput], source: RandomSource) -> tuple[Any, ...]:
        """One call on one case a batch row: the parts of the answer, unread. Read them with `read`."""
        arguments = self._arguments(self.dialect, cases, source)
        return select_parts(self._answer(cases, arguments, source), self.dialect.returns)

    def read(self, parts: Any, cases: Sequence[VerifyInput]) -> list[VerifyOutput]:
        """What each batch row emitted. Raises SubjectCrashed where the answer is not of its usual form."""
        nested = tuple(as_nested(part) for part in parts)
        try:
            return [
                read_output(nested, self.dialect.returns, case, row, len(cases)) for row, case in enumerate(cases)
            ]  # fmt: skip
        except Unreadable as error:
            raise SubjectCrashed(f"{self.name} answered in another form than before: {error}") from error

    def call(self, case: VerifyInput, source: RandomSource) -> VerifyOutput:
        """One verify call."""
        return self.read(self.parts([case], source), [case])[0]

    def call_rows(self, cases: Sequence[VerifyInput], source: RandomSource) -> list[VerifyOutput]:
        """One verify call on a batch. Raises UsageError where the function takes one sequence."""
        return self.read(self.parts(cases, source), cases)

    def observed_call(
        self, cases: Sequence[VerifyInput], source: RandomSource
    ) -> tuple[list[VerifyOutput], tuple[str, ...]]:
        """One call: what each batch row emitted, and the names of the arguments that were changed in place."""
        arguments = self._arguments(self.dialect, cases, source)
        watched = [name for role, name in self.dialect.roles.items() if role != "rng" and name in arguments]
        before = {name: snapshot(arguments[name]) for name in watched}
        kept = dict(arguments)
        value = self._answer(cases, arguments, source)
        changed = tuple(name for name, old in before.items() if is_changed(old, kept[name]))
        return self.read(select_parts(value, self.dialect.returns), cases), changed

    def law_seen(self, law: Any) -> Any:
        """The law as the function gets it: through its dtype, renormalised. Use it as the truth."""
        return rounded_law(np.asarray(law, dtype=np.float64), self.dialect.dtype)

    def rounded_to(self, dtype: str) -> FunctionSubject:
        """The same function, fed laws that went through a narrower type first. Where its output law stays exactly
        what it was, that type is what it computes in."""
        return self._with_dialect(rounding=dtype)

    def at_temperature(self, temperature: float, *, divides: str) -> FunctionSubject | None:
        """The same function called with another temperature; None where it has no parameter for it.

        divides: which logits it is taken to divide by it, "both", "target" or "none"; None for both where it is given
        no draft logits.
        """
        if not self.temperature_parameter or (divides == "both" and "draft_logits" not in self.dialect.roles):
            return None
        other = self._with_dialect(constants={**self.dialect.constants, self.temperature_parameter: temperature})
        other.temperature = 1.0 if divides == "none" else temperature
        other.tempers_draft = divides == "both"
        return other

    def in_float32(self) -> FunctionSubject | None:
        """The same function fed float32 tensors, whose uniforms have 24 bits; None where it takes no float64 ones."""
        if self.dtype != "float64" or not any(kind.startswith("torch") for kind in self.dialect.kinds.values()):
            return None
        other = self._with_dialect(dtype="float32")
        other.dtype = "float32"
        return other

    def _with_dialect(self, **changes: Any) -> FunctionSubject:
        other = object.__new__(FunctionSubject)
        other.__dict__.update(self.__dict__)
        other.dialect = replace(self.dialect, **changes)
        return other


def _whole_step(step: Callable[..., Any]) -> Call:
    def call(case: VerifyInput, source: RandomSource) -> Any:
        assert isinstance(case, WholeStepInput)
        return step(case.draft, case.target, case.num_draft_tokens, source)

    return call
