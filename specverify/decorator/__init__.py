"""`verified(...)`: wraps a verify function so that it can be checked and watched, and is else left alone."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, overload

from specverify.adapters.function_roles import infer_roles, require_known_names, signature_of
from specverify.core.errors import CheckFailed, UsageError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from specverify.adapters.function import FunctionSubject
    from specverify.decorator.law import StepLaw
    from specverify.decorator.report import FunctionReport

SWITCH = "SPECVERIFY"
P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class VerifiedFunction(Protocol[P, R_co]):
    """A function as it was, with `.specverify` beside it."""

    specverify: Verified

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...


class Verified:
    """What `.specverify` offers: `check()`, `law(...)` and, for adapters and the command line, `subject`."""

    def __init__(
        self, function: Callable[..., Any] | None, parameters: dict[str, str], options: dict[str, Any]
    ) -> None:
        self.function = function
        self._parameters = parameters
        self._options = options
        self._subject: FunctionSubject | None = None

    @property
    def subject(self) -> FunctionSubject:
        """The function as a subject of checks. Built at first use by a few trial calls.

        Raises UsageError where the mapping is unclear or no way of calling works.
        """
        if self._subject is None:
            from specverify.adapters.function import FunctionSubject

            self._subject = FunctionSubject(self.function, self._parameters, **self._options)
        return self._subject

    def check(
        self,
        *,
        ids: Sequence[str] | None = None,
        seed: int = 0,
        effort: float = 1.0,
        alpha: float = 1e-9,
        instance: object = None,
        known_failures: Mapping[str, str] | None = None,
        raise_on_failure: bool = False,
    ) -> FunctionReport:
        """Runs every check that a bare verify function allows; print the report, or ask it `.raise_if_failed()`.

        ids: check ids or wildcards. effort: scales sampling. alpha: chance of one false alarm in the whole run.
        instance: the object, where a method was decorated in its class. known_failures: check id to reason.
        raise_on_failure: raises CheckFailed with the report's text if a check fails or the function crashes.
        """
        from specverify.decorator.report import run_function_checks

        subject = self.subject if instance is None else self._bound_to(instance)
        report = run_function_checks(
            subject, ids=ids, seed=seed, effort=effort, alpha=alpha, known_failures=known_failures
        )  # fmt: skip
        if raise_on_failure:
            report.raise_if_failed()
        return report

    def law(
        self,
        *,
        target_probs: ArrayLike | None = None,
        target_logits: ArrayLike | None = None,
        draft_probs: ArrayLike | None = None,
        draft_logits: ArrayLike | None = None,
        draft_token_ids: Sequence[int] | None = None,
        instance: object = None,
    ) -> StepLaw:
        """The exact law of what one call emits: every outcome and its probability, by enumeration.

        target_probs (or logits): [k + 1, vocab]. draft_probs (or logits): [k, vocab]. draft_token_ids: [k]; without
        them the draft tokens are drawn from the draft laws, and the law is compared with the target's.

        Raises UsageError for laws that are none, NotEnumerable where the function's randomness is out of reach.
        """
        from specverify.decorator.law import step_law_of

        subject = self.subject if instance is None else self._bound_to(instance)
        return step_law_of(
            subject, target_probs=target_probs, target_logits=target_logits, draft_probs=draft_probs,
            draft_logits=draft_logits, draft_token_ids=draft_token_ids,
        )  # fmt: skip

    def _bound_to(self, instance: object) -> FunctionSubject:
        from specverify.adapters.function import FunctionSubject

        if self.function is None:
            raise UsageError("instance= is for decorated methods; here call= makes the call, so bind the object there")
        return FunctionSubject(self.function.__get__(instance), self._parameters, **self._options)


@overload
def verified(function: Callable[P, R], /) -> VerifiedFunction[P, R]: ...
@overload
def verified(
    function: None = None,
    /,
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
    call: Callable[..., Any] | None = None,
    step: Callable[..., Any] | None = None,
    is_greedy: bool = False,
    is_tree: bool = False,
    lossy_by_design: str = "",
    name: str = "",
    **parameters: str,
) -> Callable[[Callable[P, R]], VerifiedFunction[P, R]]: ...


def verified(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Makes a verify function checkable: `@verified`, `@verified(...)`, or `verified(...)(their_module.verify)`.

    Parameters are placed by their names where those are clear; otherwise say which is which, role by role:
    `draft_token_ids="draft_ids", draft_probs="q", target_probs="p", rng="generator"`. Laws may be given as
    `*_logits` or `*_logprobs`; see specverify.adapters.function_names.ROLES for every role.

    returns: what comes back: "token_ids", or a tuple of parts such as ("num_accepted", "final_token_id"), or part to
    field name. kind: "numpy", "torch" or "list", or one for each parameter. batched: whether arrays carry a batch
    axis. dtype: of the laws. constants: fixed arguments. arguments: parameter name to a function of (case, source).
    setup: called before each call (with the case, if it takes one) to reset state. call: makes the whole call from
    (case, source). step: makes a whole step, drafting included, from (draft, target, num_draft_tokens, source).
    is_greedy: the function is meant for temperature 0. is_tree: it verifies draft trees. lossy_by_design: why it need
    not be lossless.

    The function behaves exactly as before. With SPECVERIFY=invariants in the environment at decoration every call is
    judged, and a broken one raises CheckFailed; with SPECVERIFY=record:FILE every call is written to the file.

    Raises UsageError for a parameter or role that does not exist.
    """
    if function is not None and not callable(function):
        raise UsageError(f"verified(...) wants a function, not {function!r}; write verified(...)(function)")
    names = {key: value for key, value in options.items() if key not in _OPTIONS}
    settings = {key: value for key, value in options.items() if key in _OPTIONS}

    def wrap(inner: Callable[..., Any]) -> Any:
        if not callable(inner):
            raise UsageError(f"verified(...) wants a function, not {inner!r}")
        parameters = signature_of(inner)
        if parameters is not None:
            require_known_names(getattr(inner, "__qualname__", repr(inner)), names, parameters)
        return _wrapped(inner, Verified(inner, names, settings))

    return wrap if function is None else wrap(function)


_OPTIONS = frozenset({
    "returns", "kind", "batched", "layout", "rng_kind", "dtype", "constants", "arguments", "setup", "call", "step",
    "is_greedy", "is_tree", "lossy_by_design", "name",
})  # fmt: skip


def _wrapped(function: Callable[..., Any], handle: Verified) -> Any:
    switch = os.environ.get(SWITCH, "")
    if switch:
        watch = _watcher(function, handle, switch)

        def watched(*args: Any, **kwargs: Any) -> Any:
            return watch(args, kwargs)

        wrapper = functools.wraps(function)(watched)
    else:

        def plain(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        wrapper = functools.wraps(function)(plain)
    wrapper.specverify = handle  # type: ignore[attr-defined]
    return wrapper


def _watcher(
    function: Callable[..., Any], handle: Verified, switch: str
) -> Callable[[tuple[Any, ...], dict[str, Any]], Any]:
    """What each live call goes through under the environment switch."""
    mode, _, target = switch.partition(":")
    if mode not in ("invariants", "record") or (mode == "record") != bool(target):
        raise UsageError(f"{SWITCH}={switch!r} is neither invariants nor record:FILE")
    from specverify.adapters.function_dialect import return_form
    from specverify.adapters.function_traffic import CallRecorder, Reader
    from specverify.decorator.report import require_invariants

    name = getattr(function, "__qualname__", repr(function))
    parameters = signature_of(function)
    if parameters is None:
        raise UsageError(f"{SWITCH}={switch}: Python cannot tell the parameters of {name}")
    options = handle._options
    taken = {*(options.get("constants") or ()), *(options.get("arguments") or ())}
    found = infer_roles(parameters, handle._parameters, taken)
    reader = Reader(name, found.roles, return_form(options.get("returns")), inspect.signature(function))
    recorder = CallRecorder(Path(target), name) if mode == "record" else None

    def watch(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        arguments, copies = reader.before(args, kwargs)
        answer = function(*args, **kwargs)
        calls = reader.after(arguments, copies, answer)
        if recorder is not None:
            recorder.write(calls)
        else:
            require_invariants(name, calls)
        return answer

    return watch


__all__ = ["CheckFailed", "Verified", "VerifiedFunction", "verified"]
