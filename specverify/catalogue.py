"""Every check there is, by id: the built-in modules, then those of other packages."""

from __future__ import annotations

import fnmatch
import importlib
import importlib.metadata
from collections.abc import Iterable, Sequence

from specverify.checks.registry import Check, registered
from specverify.core.errors import UsageError

ENTRY_POINT_GROUP = "specverify.checks"
_MODULES = (
    "specverify.checks.step_law",
    "specverify.checks.step_chi_square",
    "specverify.checks.step_edges",
    "specverify.checks.step_form",
    "specverify.checks.step_independence",
    "specverify.checks.step_generator",
    "specverify.checks.sequence_exact",
    "specverify.checks.sequence_stream",
    "specverify.checks.sequence_joint",
    "specverify.checks.on_equals_off",
    "specverify.checks.greedy",
    "specverify.checks.greedy_unusual",
    "specverify.checks.kv",
    "specverify.checks.kv_calls",
    "specverify.checks.kv_turns",
    "specverify.checks.positions",
    "specverify.checks.draft",
    "specverify.checks.draft_afresh",
    "specverify.checks.lookup",
    "specverify.checks.independence",
    "specverify.checks.rows_apart",
    "specverify.checks.acceptance",
    "specverify.checks.self_drafter",
    "specverify.checks.tree",
    "specverify.checks.tree_cache",
    "specverify.checks.tree_draft",
    "specverify.checks.tokens",
    "specverify.checks.tokens_end",
    "specverify.checks.tokens_sampled",
    "specverify.checks.batch",
    "specverify.checks.batch_mixed",
    "specverify.checks.seed",
    "specverify.checks.seed_apart",
    "specverify.checks.activity",
    "specverify.checks.one_token_left",
    "specverify.checks.lasting",
    "specverify.checks.grammar",
    "specverify.checks.self_report",
    "specverify.checks.log_probs",
    "specverify.checks.lossy",
    "specverify.checks.tokenizer",
    "specverify.checks.tokenizer_special",
    "specverify.checks.tokenizer_round_trips",
)


def all_checks() -> Sequence[Check]:
    """All registered checks in the order of their ids, with those that other packages add by entry point."""
    for module in _MODULES:
        importlib.import_module(module)
    for entry_point in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP):
        entry_point.load()
    return sorted(registered().values(), key=lambda one: one.id)


def check_by_id(check_id: str) -> Check:
    """The check of that id. Raises UsageError with the nearest ids where there is none."""
    checks = {one.id: one for one in all_checks()}
    if check_id not in checks:
        raise UsageError(_unknown(check_id, checks))
    return checks[check_id]


def select(patterns: Iterable[str] | None, checks: Sequence[Check] | None = None) -> Sequence[Check]:
    """Checks whose id matches one of the patterns (shell wildcards: `kv.*`); all where patterns is None.

    Raises UsageError for a pattern that matches nothing, which is always a slip.
    """
    pool = all_checks() if checks is None else checks
    if patterns is None:
        return pool
    chosen: dict[str, Check] = {}
    for pattern in patterns:
        matching = [one for one in pool if fnmatch.fnmatchcase(one.id, pattern)]
        if not matching:
            raise UsageError(_unknown(pattern, {one.id: one for one in pool}))
        chosen.update((one.id, one) for one in matching)
    return [one for one in pool if one.id in chosen]


def _unknown(check_id: str, checks: dict[str, Check]) -> str:
    import difflib

    near = difflib.get_close_matches(check_id, checks, n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(near)}?" if near else ""
    return f"no check is called {check_id!r}; {hint}{' ' if hint else ''}`specverify list` shows all {len(checks)}"
