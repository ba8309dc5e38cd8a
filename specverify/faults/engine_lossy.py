"""Lossy accept rules: a fault where nobody says so, correct subjects where it is declared."""

from __future__ import annotations

from specverify.faults.engine_parts import probe_engine
from specverify.faults.fault import CorrectSubject, Fault
from specverify.reference.subject import Parts
from specverify.reference.verifiers.lossy import LossyRule, lenient_acceptance, typical_acceptance

_RELAXED = "NVIDIA/TensorRT-LLM#12063"


def _undeclared(name: str, sentence: str, rule: LossyRule) -> Fault:
    parts = Parts(make_verifier=rule.make_verifier)
    return Fault(name, sentence, _RELAXED, lambda: probe_engine(name, parts=parts, only_option="temperature"))


FAULTS = (
    _undeclared(
        "typical-acceptance-undeclared",
        "Accepts what is typical of the target's law, and does not say that it is lossy.",
        typical_acceptance(),
    ),
    _undeclared(
        "lenient-acceptance-undeclared",
        "Accepts with a ratio that is a tenth too large, and does not say that it is lossy.",
        lenient_acceptance(lenience=1.0 / 1.1),
    ),
)
CORRECT = (
    CorrectSubject(
        "engine-typical-tree",
        "Typical acceptance over trees of the likeliest tokens, as Medusa's, and declared.",
        lambda: probe_engine("engine-typical-tree", proposer="tree-top", every_option=False, lossy="typical"),
    ),
    CorrectSubject(
        "engine-lenient",
        "A lenient accept test, declared with the largest distance that it can cause.",
        lambda: probe_engine("engine-lenient", every_option=False, lossy="lenient"),
    ),
)
