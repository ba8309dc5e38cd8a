"""The pytest plugin: `--engine MODULE:FACTORY` for the shipped properties, parametrize_with_checks for own tests.

It loads in every pytest session of its environment, so it imports nothing heavy until somebody asks for a check.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from specverify.pytest_state import running

_OPTIONS = (
    ("--engine", {"default": None, "metavar": "MODULE:FACTORY", "help": "the engine that specverify.properties judge"}),
    ("--engine-option", {"action": "append", "default": [], "metavar": "KEY=VALUE", "help": "passed to the factory"}),
    ("--golden", {"default": None, "metavar": "FOLDER", "help": "golden traces that the engine must repeat"}),
    (
        "--specverify-select",
        {"action": "append", "default": None, "metavar": "ID", "help": "check id or wildcard; may be repeated"},
    ),
    ("--specverify-profile", {"default": None, "metavar": "NAME", "help": "checks that must be decided (of --engine)"}),
    (
        "--specverify-known-failures",
        {"default": None, "metavar": "FILE", "help": "TOML: check id = reason; strict (of --engine)"},
    ),
    ("--specverify-seed", {"default": 0, "type": int, "help": "root of every random stream of --engine (default 0)"}),
    ("--specverify-alpha", {"default": 1e-9, "type": float, "help": "of one false alarm on --engine (default 1e-9)"}),
    ("--specverify-effort", {"default": 1.0, "type": float, "help": "scales the sampling of --engine (default 1)"}),
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("specverify", "conformance of speculative decoding")
    for name, settings in _OPTIONS:
        group.addoption(name, **settings)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Builds the engine before anything is collected, so that a wrong option ends in one sentence."""
    if session.config.getoption("--engine") is None:
        return
    from specverify.pytest_items import prepare_engine, require_options

    is_distributed = getattr(session.config.option, "dist", "no") != "no"
    is_controller = is_distributed and not hasattr(session.config, "workerinput")
    (require_options if is_controller else prepare_engine)(session.config)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """--specverify-select holds for tests of parametrize_with_checks too; those of --engine were selected before."""
    if config.getoption("--specverify-select") is None:
        return
    from specverify.pytest_items import is_selected

    left_out = [item for item in items if not is_selected(item, config)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests that take `specverify_check` or `specverify_golden` are run once for each, on the engine given."""
    if "specverify_check" in metafunc.fixturenames:
        from specverify.pytest_items import checks_of_engine

        metafunc.parametrize("specverify_check", checks_of_engine(metafunc.config))
    if "specverify_golden" in metafunc.fixturenames:
        from specverify.pytest_items import golden_of_engine

        metafunc.parametrize("specverify_golden", golden_of_engine(metafunc.config))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Any:
    with running(item):
        return (yield)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Says what the passes were worth, which is what makes them worth reading."""
    results = [
        dict(report.user_properties)["specverify"]
        for key in ("passed", "failed", "skipped", "xfailed")
        for report in terminalreporter.stats.get(key, [])
        if "specverify" in dict(getattr(report, "user_properties", ()))
    ]
    if results:
        from specverify.report.summary import summary_lines

        terminalreporter.section("specverify")
        for line in summary_lines(results):
            terminalreporter.write_line(line)


def parametrize_with_checks(
    subjects: Mapping[str, Any],
    *,
    known_failures: Mapping[str, str] | None = None,
    select: Sequence[str] | None = None,
    profile: str | None = None,
    alpha: float = 1e-9,
    seed: int = 0,
    effort: float = 1.0,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Runs the test below once for every subject and check; it takes `subject` and `check` and calls check(subject).

    subjects: name to engine, to a function that makes one, or to a verify function. A factory is called when its
      first check runs, once a process.
    known_failures: check id to reason. Strict: an id that names no check is an error, and so is one that passes.
    select: check ids or wildcards. profile: checks that must be decided; others may be skipped.

    Raises UsageError for unknown ids or profiles, while collecting.
    """
    from specverify.pytest_items import LazySubject, bound_checks

    checks = bound_checks(
        num_subjects=len(subjects), known_failures=known_failures, select=select, profile=profile, alpha=alpha,
        seed=seed, effort=effort,
    )  # fmt: skip
    lazy = [LazySubject(name, source) for name, source in subjects.items()]
    return pytest.mark.parametrize(
        ("subject", "check"),
        [pytest.param(subject, check, id=f"{subject.name}-{check.id}") for subject in lazy for check in checks],
    )
