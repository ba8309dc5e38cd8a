"""From what a user types to subjects: a built-in engine, MODULE:FACTORY, MODULE:FUNCTION, or a trace file."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from specverify.core.capabilities import checked_capabilities
from specverify.core.crashes import subject_crashed
from specverify.core.errors import SpecverifyError, UsageError

Options = Mapping[str, Any]


def resolve_subjects(spec: str, *, options: Options | None = None, salvage: bool = False) -> Sequence[Any]:
    """The subjects that spec names.

    spec: a built-in engine ("transformers", "reference"); MODULE:NAME, where NAME is a factory that returns an
      engine (or several), a verify function, or one wrapped by specverify.verified; or a trace file or a folder
      of trace files. options: keyword arguments for the built-in engine or the factory. salvage: of a trace file that
      was cut short, take the whole traces.
    Raises UsageError where spec names nothing, or something that cannot be judged; SubjectCrashed where the module or
    the factory itself raises.
    """
    given = dict(options or {})
    if spec in _BUILT_IN:
        return _as_sequence(_call(_BUILT_IN[spec], given, spec), spec)
    if ":" in spec and not Path(spec).exists():
        return _from_module(spec, given)
    if Path(spec).exists():
        from specverify.adapters.recorded import recorded_subjects

        _no_options(spec, "a trace file", given)
        return recorded_subjects(Path(spec), salvage=salvage)
    raise _names_nothing(spec)


def require_named(spec: str) -> None:
    """Raises what resolve_subjects would where spec names nothing, without building an engine.

    For processes that only hand work to others.
    """
    if spec in _BUILT_IN or Path(spec).exists():
        return
    if ":" not in spec:
        raise _names_nothing(spec)
    load_attribute(spec)


def _names_nothing(spec: str) -> UsageError:
    return UsageError(
        f"{spec!r} names nothing to check; give one of {', '.join(_BUILT_IN)}, MODULE:FACTORY (an engine), "
        "MODULE:FUNCTION (a verify function), or a trace file that exists"
    )


def _transformers(**options: Any) -> Any:
    from specverify.adapters.transformers_scenarios import engines

    return engines(**options)


def _reference(**options: Any) -> Any:
    from specverify.adapters.reference import reference_engine

    return reference_engine(**options)


_BUILT_IN: Mapping[str, Callable[..., Any]] = {"transformers": _transformers, "reference": _reference}


def _from_module(spec: str, options: dict[str, Any]) -> Sequence[Any]:
    found = load_attribute(spec)
    if is_factory(found):
        return _as_sequence(_call(found, _with_probe(found, options), spec), spec)
    kind = "an engine that is made already" if hasattr(found, "capabilities") else "a verify function"
    _no_options(spec, kind, options)
    return [as_subject(found, spec)]


def _no_options(spec: str, kind: str, options: Options) -> None:
    if options:
        raise UsageError(
            f"{spec} is {kind}, which takes no options; it was given {', '.join(options)}. Options go to a factory: a "
            "function that returns an engine and needs no argument, except perhaps one called probe"
        )


def as_subject(found: Any, name: str) -> Any:
    """The subject behind found: a subject itself, a wrapped or bare verify function, or a factory of one subject.

    Raises UsageError where found is none of these.
    """
    handle = getattr(found, "specverify", None)
    if handle is not None and hasattr(handle, "subject"):
        return handle.subject
    if hasattr(found, "capabilities") and not isinstance(found, type):
        return _as_sequence(found, name)[0]
    if not callable(found):
        raise UsageError(
            f"{name} is a {type(found).__name__}; give an engine, a function that makes one, or a verify function"
        )
    if is_factory(found):
        made = _as_sequence(_call(found, _with_probe(found, {}), name), name)
        if len(made) != 1:
            raise UsageError(f"{name} makes {len(made)} engines where one is wanted; name them one by one")
        return made[0]
    from specverify.adapters.function import FunctionSubject

    try:
        return FunctionSubject.from_function(found, name=name)
    except UsageError as error:
        raise UsageError(f"{error}{_factory_hint(found)}") from error


def _factory_hint(found: Any) -> str:
    """For a function that was taken for a verify function: why it was not taken for a factory."""
    try:
        required = [p.name for p in inspect.signature(found).parameters.values() if p.default is p.empty]
    except (TypeError, ValueError):
        return ""
    return (
        f"\nIf it makes an engine: a factory needs no argument, except perhaps one called probe (given the probe "
        f"checkpoint pair), and this one needs {', '.join(required)}; give it defaults, or call it probe"
    )


def parse_options(texts: Sequence[str]) -> dict[str, Any]:
    """KEY=VALUE texts as keyword arguments; numbers, true and false are recognised.

    Raises UsageError for a text that is not of that form.
    """
    options: dict[str, Any] = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key.isidentifier():
            raise UsageError(f"option {text!r} is not of the form KEY=VALUE, for example assistant_ensemble_weight=0.7")
        options[key] = _value(value)
    return options


def _value(text: str) -> Any:
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(text.lower(), text)


def load_attribute(spec: str) -> Any:
    """The object that MODULE:NAME names. The current folder can be imported from, as in pytest and python -m."""
    module_name, _, attribute = spec.partition(":")
    if not module_name or not attribute:
        raise UsageError(f"{spec!r} is not of the form MODULE:NAME, for example my_engine.testing:make_engine")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or module_name
        where = (
            "it is not installed and not in this folder" if module_name.startswith(missing) else f"it needs {missing}"
        )
        raise UsageError(f"cannot import {module_name}: {where}") from error
    except (Exception, SystemExit) as error:
        raise subject_crashed(f"importing {module_name}", error) from error
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError as error:
            names = [name for name in vars(found) if not name.startswith("_")] if hasattr(found, "__dict__") else []
            raise UsageError(
                f"{module_name} has no {attribute}; it has {', '.join(sorted(names)[:12]) or 'nothing public'}"
            ) from error
    return found


def is_factory(found: Any) -> bool:
    """Whether calling it without arguments makes sense: nothing required, except perhaps `probe`."""
    if not callable(found) or hasattr(found, "specverify") or hasattr(found, "capabilities"):
        return isinstance(found, type)
    try:
        parameters = inspect.signature(found).parameters.values()
    except (TypeError, ValueError):
        return False
    required = [
        p.name
        for p in parameters
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    ]
    return set(required) <= {"probe"}


def _with_probe(factory: Callable[..., Any], options: dict[str, Any]) -> dict[str, Any]:
    if "probe" in inspect.signature(factory).parameters and "probe" not in options:
        from specverify.probe import default_probe

        options["probe"] = default_probe()
    return options


def _call(factory: Callable[..., Any], options: dict[str, Any], spec: str) -> Any:
    try:
        inspect.signature(factory).bind(**options)
    except TypeError as error:
        raise UsageError(f"{spec} does not take these options: {error}") from error
    try:
        return factory(**options)
    except TypeError as error:
        # A factory that hands its options on finds out later that nobody knows one of them.
        unknown = next((key for key in options if f"unexpected keyword argument {key!r}" in str(error)), None)
        if unknown is None:
            raise subject_crashed(spec, error) from error
        raise UsageError(f"{spec} has no option {unknown!r}; it was given {', '.join(options)}") from error
    except SpecverifyError:
        raise
    except (Exception, SystemExit) as error:
        raise subject_crashed(spec, error) from error


def _as_sequence(made: Any, spec: str) -> Sequence[Any]:
    subjects = list(made) if isinstance(made, (list, tuple)) else [made]
    if not subjects:
        raise UsageError(f"{spec} returned no engine; return one, or a list of them")
    for subject in subjects:
        for attribute in ("name", "capabilities"):
            if not hasattr(subject, attribute):
                raise UsageError(
                    f"{spec} returned a {type(subject).__name__} without {attribute!r}; an engine adapter has name, "
                    "capabilities and generate(requests, speculate=...), see docs/adapters.md"
                )
        checked_capabilities(subject)
    return subjects
