"""Checks of draft trees on trees made by hand, on engines that never branch, and what older checks make of trees."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from specverify.checks import accept_rules, tree_shape
from specverify.core.capabilities import Capability
from specverify.core.outcomes import Outcome
from specverify.core.types import Request, SamplingParams, Step, Trace
from specverify.faults.engine_parts import probe_engine
from specverify.reference.proposers import FixedTree
from specverify.reference.tree import Topology
from specverify.runner import run_checks
from tests.checks.engine_handmade import Recorded

GREEDY = SamplingParams(temperature=0.0)
PROMPT = (1, 5, 6)
TREE_CHECKS = (
    "tree.accepted-path",
    "tree.nodes-see-ancestors-only",
    "positions.tree-by-depth",
    "kv.tree-path-kept",
    "kv.draft-tree-path-kept",
    "draft.siblings-follow-law",
)


def step(**changes):
    """Two siblings, a child of each; the second sibling and its child were accepted, then token 9."""
    right = Step(
        index=0, start_position=4, draft_token_ids=(20, 21, 22, 23), token_ids=(21, 23, 9), num_accepted=2,
        parents=(-1, -1, 0, 1), accepted_nodes=(1, 3), target_positions=(3, 4, 4, 5, 5), draft_positions=(3, 4, 4),
        target_kv_length_after=6, draft_kv_length_after=5,
    )  # fmt: skip
    return replace(right, **changes)


def outcome_of(check_id, one_step, *, more=()):
    traces = [
        Trace(Request(PROMPT, 8, GREEDY, request_id=str(index)), (7, *each.token_ids), (each,), draft_kv_lag=1)
        for index, each in enumerate((one_step, *more))
    ]
    needs = {Capability.TRACE, Capability.DRAFT_TREE, Capability.POSITIONS, Capability.KV_LENGTH, Capability.DRAFT_KV}
    (result,) = run_checks(Recorded(traces, capabilities=needs, num_draft_tokens=2), ids=[check_id]).results
    return result


@cache
def engine_without_branches():
    """Its trees are chains, so that nothing is ever scattered and nobody has a sibling."""
    return probe_engine("chains", proposer="tree", growth=FixedTree(Topology.from_branching((1, 1))))


@pytest.mark.parametrize("check_id", TREE_CHECKS)
def test_a_tree_without_branches_decides_nothing(check_id):
    """A pass would say nothing about siblings."""
    (result,) = run_checks(engine_without_branches(), ids=[check_id]).results

    assert result.outcome is Outcome.INCONCLUSIVE, result.reason


@pytest.mark.parametrize("check_id", TREE_CHECKS)
def test_an_engine_that_drafts_chains_is_not_asked(check_id):
    """It does not declare trees."""
    (result,) = run_checks(probe_engine("chain"), ids=[check_id]).results

    assert result.outcome is Outcome.UNSUPPORTED


@pytest.mark.parametrize("check_id", ["tree.accepted-path", "positions.tree-by-depth"])
def test_a_right_tree_passes(check_id):
    """The second sibling and its child."""
    assert outcome_of(check_id, step()).outcome is Outcome.PASSED


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"accepted_nodes": (1, 2)}, "draft token 2 follows draft token 0, and was accepted behind draft token 1"),
        ({"accepted_nodes": (2, 3)}, "draft token 2 follows draft token 0, and was accepted behind the committed text"),
        ({"accepted_nodes": (1,)}, "it accepted 2 draft tokens and names 1"),
        ({"accepted_nodes": (1, 7)}, "it accepted draft token 7 of 4"),
        ({"parents": (-1, -1, 0, 3)}, "does not come after its parent"),
    ],
)
def test_what_is_no_path_is_named(changes, sentence):
    """The broken link, the count, or the tree itself."""
    result = outcome_of("tree.accepted-path", step(**changes))

    assert result.outcome is Outcome.FAILED
    assert sentence in result.findings[0].headline


@pytest.mark.parametrize(
    ("changes", "model"),
    [
        ({"target_positions": (3, 4, 5, 6, 7)}, "target"),
        ({"draft_positions": (3, 4, 5)}, "draft"),
        ({"draft_positions": (3, 5, 5)}, "draft"),
    ],
)
def test_positions_that_are_not_depths_are_found(changes, model):
    """Consecutive positions for siblings, or a level too far."""
    result = outcome_of("positions.tree-by-depth", step(**changes))

    assert result.outcome is Outcome.FAILED
    assert f"the {model} model" in result.findings[0].headline


def test_a_freely_grown_tree_may_have_been_deeper():
    """Levels that were computed and then cut away are no mistake."""
    result = outcome_of("positions.tree-by-depth", step(draft_positions=(3, 4, 4, 5, 5, 6, 6)))

    assert result.outcome is Outcome.PASSED


@pytest.mark.parametrize(
    ("changes", "outcome"), [({}, Outcome.PASSED), ({"token_ids": (20, 22, 9)}, Outcome.FAILED)]
)  # fmt: skip
def test_prefix_termination_goes_along_the_path(changes, outcome):
    """The tokens of the accepted nodes count, not the first ones of the list."""
    rejection = step(token_ids=(9,), num_accepted=0, accepted_nodes=())

    result = outcome_of("tokens.prefix-termination", step(**changes), more=[rejection])

    assert result.outcome is outcome, result.reason


@pytest.mark.parametrize(("rows", "outcome"), [(6, Outcome.PASSED), (7, Outcome.FAILED), (4, Outcome.FAILED)])
def test_the_target_keeps_the_path_and_nothing_else(rows, outcome):
    """Two accepted tokens beyond the four committed ones, less the newest, whose row comes later."""
    rejection = step(token_ids=(9,), num_accepted=0, accepted_nodes=(), target_kv_length_after=4)

    result = outcome_of("kv.rejected-rows-dropped", step(target_kv_length_after=rows), more=[rejection])

    assert result.outcome is outcome, result.reason


def test_paths_and_siblings():
    """From the parents alone."""
    assert tree_shape.node_depths(step()) == (1, 1, 2, 2)
    assert tree_shape.node_path(step(), 3) == (1, 3)
    assert tree_shape.elder_siblings(step(), 1) == (0,)
    assert tree_shape.leaves(step()) == (2, 3)
    assert tree_shape.is_scattered(step())


def test_the_law_of_the_accepted_number_of_a_tree():
    """Two siblings chosen without chance, accepted by .5 and .3; .6 of the first are followed by its child."""
    one = step(draft_token_ids=(0, 1, 2), parents=(-1, -1, 0), accepted_nodes=(), num_accepted=0, token_ids=(2,))
    target = np.array([[0.5, 0.3, 0.2], [0.2, 0.2, 0.6], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])

    law = accept_rules.accepted_laws(one, None, target)["point-mass"]

    assert law == pytest.approx([0.2, 0.3 + 0.2, 0.3, 0.0])


def test_siblings_drawn_with_replacement_are_recognised_in_the_pass_line():
    """As many repeats as their laws say."""
    growth = FixedTree(Topology.from_branching((2,)), with_replacement=True)
    subject = probe_engine("with", proposer="tree-replacement", growth=growth)

    (result,) = run_checks(subject, ids=["draft.siblings-follow-law"]).results

    assert result.outcome is Outcome.PASSED
    assert "drawn with replacement" in result.worth
