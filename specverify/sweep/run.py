"""Runs a sweep cell by cell; whatever is measured is on disk before the next cell starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

import specverify
from specverify.laws.tree_economics import best_tree, measured_child_acceptance
from specverify.reference.proposers import FixedTree, Growth
from specverify.reference.tree import Topology
from specverify.sweep.families import Effort, Family
from specverify.sweep.measure import clock_of, measure, requests_of, sample
from specverify.sweep.passes import pass_costs
from specverify.sweep.plan import Cell, cells
from specverify.sweep.store import Store, machine

PASSES = "pass-cost"
Progress = Callable[[str, int, int], None]
# The tree whose children are watched to find the best shape: wide near the root, where most is to be gained.
_WATCHED = Topology.from_branching((4, 2, 2, 1, 1))


def effort(family: Family, *, is_quick: bool) -> Effort:
    """How much to measure so that the sweep keeps to its time."""
    return family.quick if is_quick else family.full


def about(family: Family, *, is_quick: bool) -> Mapping[str, Any]:
    """What rows must have in common to stand in one table."""
    return {
        "family": family.name,
        "label": family.label,
        "quick": is_quick,
        "specverify": specverify.__version__,
        "torch": torch.__version__,
        "machine": machine(),
        "threads": 1,
    }


def run(store: Store, family: Family, *, is_quick: bool, only: Sequence[str], progress: Progress) -> int:
    """Measures what is missing of the sweep; all of it again where nothing is. Returns how many cells were there.

    progress: called with (what is being measured, done, of how many).
    """
    wanted = cells(family, is_quick=is_quick, only=[axis for axis in only if axis != PASSES])
    wanted = wanted if not only or set(only) != {PASSES} else []
    has_passes = not only or PASSES in only
    known = {row.name for row in store.sweep.rows}
    missing = [cell for cell in wanted if cell.name not in known]
    needs_passes = has_passes and store.sweep.passes is None
    if not missing and not needs_passes:
        missing, needs_passes = wanted, has_passes
    total = len(missing) + needs_passes
    how_much = effort(family, is_quick=is_quick)
    order = [cell.name for cell in cells(family, is_quick=is_quick)]
    if needs_passes:
        progress("one pass over 1 to 16 tokens", 0, total)
        context = family.prompt_length
        store.add_passes(
            pass_costs(family.target, context=context, seconds=how_much.pass_seconds, clock=clock_of(family))
        )
    shares = None
    # The usual setting lies on most axes: it is measured once, and again only when everything is.
    measured = {row.setting: row for row in store.sweep.rows} if len(missing) < len(wanted) else {}
    for index, cell in enumerate(missing, start=int(needs_passes)):
        progress(cell.name, index, total)
        if cell.num_nodes and shares is None:
            shares = watched_shares(cell, family, how_much)
        if cell.setting not in measured:
            growth = None if shares is None or not cell.num_nodes else best_growth(cell.num_nodes, shares)
            measured[cell.setting] = measure(cell, family, how_much, growth=growth)
        store.add(replace(measured[cell.setting], axis=cell.axis, value=cell.value), order)
    progress("done", total, total)
    return len(wanted) + has_passes - total


def watched_shares(cell: Cell, family: Family, how_much: Effort) -> np.ndarray[Any, np.dtype[np.float64]]:
    """How often the child of each rank is the accepted one, from a wide tree on the cell's own requests."""
    subject = family.subject("tree", num_draft_tokens=_WATCHED.depth, growth=FixedTree(_WATCHED))
    answers = sample(subject, requests_of(cell, family, how_much.num_requests), how_much.sample_batch)
    steps = [step for answer in answers for step in answer]
    shares, _ = measured_child_acceptance([(step.parents or (), step.accepted_nodes or ()) for step in steps])
    return shares


def best_growth(num_nodes: int, shares: np.ndarray[Any, np.dtype[np.float64]]) -> Growth:
    """The best tree of num_nodes drawn tokens for these shares."""
    # Measured shares of late ranks are noisy; the best tree is only defined where they fall.
    parents = best_tree(num_nodes, np.minimum.accumulate(shares))
    paths: list[tuple[int, ...]] = []
    for node, parent in enumerate(parents):
        rank = parents[:node].count(parent)
        paths.append((rank,) if parent == -1 else (*paths[parent], rank))
    return FixedTree(Topology.from_paths(paths))
