"""Programs around torch verify functions: draft tokens are drawn too, over random trees of conditional laws."""

from __future__ import annotations

import torch

from specverify.exact.law import enumerate_law
from specverify.exact.numpy_front import NumpyFront
from specverify.exact.python_front import PythonFront
from specverify.exact.torch_front import TorchFront
from specverify.laws.sequence import completed_distance
from tests.exact.programs import drafted


def torch_program(verify, target, draft, num_draft_tokens, *, dtype=torch.float64, gives_generator=True):
    """verify(draft [k], draft_probs [k, V], target_probs [k + 1, V], generator) on every draft path."""

    def program(source):
        tokens, rows = drafted(source, draft, num_draft_tokens)
        generator = source.torch_generator() if gives_generator else None
        return verify(
            torch.tensor(tokens),
            torch.from_numpy(rows).to(dtype),
            torch.from_numpy(target.rows(tokens)).to(dtype),
            generator,
        )

    return program


def unpadded(law):
    """The law with the -1 padding of outputs taken off."""
    return {tuple(token for token in tokens if token >= 0): share for tokens, share in law.probabilities.items()}


def tv(law, target):
    """Completed total variation of an enumerated law from the target, padding taken off."""
    return completed_distance(unpadded(law), target).tv


def torch_law(program, *, calls=0, focus=None, **options):
    """The law of a program, with few ordinary calls (by default none) for a cross check."""
    fronts = [NumpyFront(), PythonFront(), TorchFront(focus=focus)]
    return enumerate_law(program, front_ends=fronts, cross_check_calls=calls, **options)


def probabilities(program, **options):
    return torch_law(program, **options).probabilities


def assert_law(wanted, program, **options):
    """The enumerated law is the wanted one, to rounding."""
    law = probabilities(program, **options)
    distance = max(abs(law.get(key, 0.0) - wanted.get(key, 0.0)) for key in {*law, *wanted})
    assert distance < 1e-12, (law, wanted)
