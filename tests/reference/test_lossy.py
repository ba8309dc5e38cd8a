"""Lossy accept rules: exact where they must be, no lossier than they say, and reported as what they declare."""

from __future__ import annotations

import pytest
import torch

from specverify.core.capabilities import Capability
from specverify.core.errors import UsageError
from specverify.core.outcomes import Outcome
from specverify.core.types import Request, SamplingParams
from specverify.reference.batch import Batch, RunningRequest
from specverify.reference.draws import RequestStreams
from specverify.reference.proposers import Drafts, FixedTree
from specverify.reference.subject import Parts, reference_subject
from specverify.reference.tree import Topology
from specverify.reference.verifiers.lossy import lenient_acceptance, lossy_rule, num_siblings, typical_acceptance
from specverify.runner import run_checks

CPU = torch.device("cpu")


def batch_of(rows, vocab_size=4):
    streams = RequestStreams(0, CPU)
    running = [RunningRequest(Request((1,), 4, SamplingParams()), row, [1], streams) for row in range(rows)]
    return Batch(running, vocab_size, CPU)


def typical(token_ids, laws, parents=None):
    drafts = Drafts(
        torch.tensor([token_ids]), [len(token_ids)], parents=None if parents is None else torch.tensor([parents])
    )
    return typical_acceptance().make_verifier().verify(batch_of(1), drafts, torch.tensor([laws], dtype=torch.float64))


SURE, TORN = [0.97, 0.01, 0.01, 0.01], [0.25, 0.25, 0.25, 0.25]


def test_typical_acceptance_asks_more_where_the_target_is_sure():
    """A probability of .01 is no typical choice of a sure law; each token of a flat one is."""
    assert int(typical([1], [SURE, TORN]).num_accepted) == 0
    assert int(typical([1], [TORN, TORN]).num_accepted) == 1


def test_typical_acceptance_keeps_the_longest_path_of_a_tree():
    """Of the siblings 0 and 1 both pass; only 1 has a child that passes."""
    verdict = typical([0, 1, 3, 2], [TORN, SURE, TORN, TORN, TORN], parents=[-1, -1, 0, 1])

    assert int(verdict.num_accepted) == 2
    assert verdict.accepted_nodes[0, :2].tolist() == [1, 3]


def test_typical_acceptance_may_accept_nothing_of_a_tree():
    """Then the step has its final token only."""
    verdict = typical([1, 2], [SURE, TORN, TORN], parents=[-1, -1])

    assert int(verdict.num_accepted) == 0


@pytest.mark.parametrize("rule", ["typical", "lenient"])
@pytest.mark.parametrize("proposer", ["draft-model", "tree", "tree-top"])
def test_greedy_decoding_loses_nothing(rule, proposer):
    """A law of one token leaves nothing to relax."""
    subject = reference_subject(proposer=proposer, lossy=rule)
    request = Request(subject.checkpoint.prompts[0], 16, SamplingParams(temperature=0.0))

    on, off = (subject.generate([request], speculate=speculate)[0] for speculate in (True, False))

    assert off.token_ids == on.token_ids


@pytest.mark.parametrize("lenience", [0.5, 0.8])
def test_a_lenient_test_strays_no_further_than_it_says(lenience):
    """The law of the first token, enumerated over drafts, is within 1 - lenience of the target's."""
    generator = torch.Generator().manual_seed(3)
    draft, target = torch.rand((2, 50, 6), generator=generator, dtype=torch.float64).softmax(dim=-1) ** 4
    draft, target = (law / law.sum(dim=-1, keepdim=True) for law in (draft, target))
    accepted = torch.minimum(draft, target / lenience)
    rest = (target - lenience * draft).clamp(min=0.0)
    emitted = accepted + (1 - accepted.sum(-1, keepdim=True)) * rest / rest.sum(-1, keepdim=True)

    distances = 0.5 * (emitted - target).abs().sum(-1)

    assert float(distances.max()) <= lenient_acceptance(lenience=lenience).distance()


def test_lenience_of_one_is_lossless():
    """The same seed gives the tokens of the lossless rule."""
    exact, lenient = reference_subject(), reference_subject(lossy=lenient_acceptance(lenience=1.0))
    request = Request(exact.checkpoint.prompts[0], 24, seed=5)

    assert exact.generate([request], speculate=True)[0].token_ids == (
        lenient.generate([request], speculate=True)[0].token_ids
    )


def test_what_is_declared_is_reported_and_not_failed():
    """The lossless checks step aside, and the distance is certified."""
    subject = reference_subject(lossy="typical", max_new_tokens=24)

    report = run_checks(subject, ids=["lossy.declared-distance", "lossless.sequence-stream", "acceptance.matches-laws"])

    outcomes = {result.check_id: result.outcome for result in report.results}
    assert outcomes == {
        "lossy.declared-distance": Outcome.PASSED,
        "lossless.sequence-stream": Outcome.UNSUPPORTED,
        "acceptance.matches-laws": Outcome.UNSUPPORTED,
    }


def test_what_is_not_declared_fails():
    """The same rule without the declaration breaks the lossless claim."""
    subject = reference_subject(parts=Parts(make_verifier=typical_acceptance().make_verifier))

    (result,) = run_checks(subject, ids=["acceptance.matches-laws"]).results

    assert Capability.LOSSY_BY_DESIGN not in subject.capabilities
    assert Outcome.FAILED is result.outcome


def test_siblings_add_to_the_distance():
    """Two candidates a place: twice the distance of one."""
    growth = FixedTree(Topology.from_branching((2, 1)))

    assert num_siblings(growth) == 2
    assert lenient_acceptance(lenience=0.9).distance(2) == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: lossy_rule("loose"), "choose from typical, lenient"),
        (lambda: typical_acceptance(epsilon=0.0), "give two numbers above 0"),
        (lambda: lenient_acceptance(lenience=1.5), "at most 1"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(make, sentence):
    """What came, and what was wanted."""
    with pytest.raises(UsageError, match=sentence):
        make()
