"""A verify function at the ends of the random range: uniforms of 0 and just below 1, where real generators do go."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from specverify.checks.registry import CheckContext, Exercised, check
from specverify.checks.step_scenarios import adapted, edge_scenarios
from specverify.checks.step_subject import Scenario, VerifySubject
from specverify.core.capabilities import Capability
from specverify.core.outcomes import Finding, Kind
from specverify.core.types import VerifyInput
from specverify.exact.edge import EdgeFailure, EdgeSource, possible_tokens, probe_edges
from specverify.exact.program import NativeSource
from specverify.laws.steps import draft_paths
from specverify.laws.tree import path_rows

# Draws at the front of a call that are pushed to the ends, in every pattern.
_DRAWS = 4


@check(
    "lossless.step-edges",
    claim="A verify step must emit no impossible token, and must not fail, when a uniform is 0 or just below 1.",
    needs={Capability.VERIFY},
    kind=Kind.EXACT,
    exercised_by=Exercised("edge-calls"),
    catches=("verify-accepts-impossible-at-zero", "verify-inverse-cdf-overruns"),
    source="vllm-project/vllm#45060 (a token behind the vocabulary); a float32 uniform is 0 once in 2^24 draws",
)
def step_edges(subject: Any, context: CheckContext) -> Iterator[Finding]:
    """Real generators are put into states whose next draws are all at the ends of their range.

    An exact law treats uniforms as a continuum, where a single value has no weight; generators are discrete. Laws
    with zeros at both ends of the vocabulary are used, so that a draw that goes one token too far shows. Draws of 24
    bits or fewer reach the ends; float64 draws come within 2^-26 of them, because what needs an exact 0 in float64
    happens once in 2^53 draws. A function of tensors is tried in float32 too.
    """
    failures: list[tuple[EdgeFailure, VerifyInput]] = []
    num_calls = 0
    for form, scenario, tokens in _calls(subject):
        case = scenario.case(tokens)
        judge = possible_tokens(path_rows(scenario.target, tokens))
        program = _EdgeProgram(form, scenario, tokens)
        found = probe_edges(program, judge, num_draws=_DRAWS, is_float64=form.dtype == "float64")
        failures += [(one, case) for one in found]
        num_calls += 2**_DRAWS
    context.exercised("edge-calls", num_calls)
    if not failures:
        context.worth(f"{num_calls} calls with draws at the ends of their range")
        return
    failure, case = min(failures, key=lambda pair: (pair[0].pattern.count("1-"), pair[1].draft_token_ids))
    yield Finding(
        headline=f"Draft {list(case.draft_token_ids)}, uniforms {' '.join(failure.pattern)} (1-: the largest below 1).",
        not_noise="Not a matter of luck: these are values that generators do return. A float32 uniform is 0 once in "
        "16,777,216 draws, a bfloat16 one once in 512.",
        where=(
            failure.reason[:1].upper() + failure.reason[1:] + ".",
            *(f"Target law {position}  {[round(float(p), 4) for p in row]}" for position, row in
              enumerate(np.asarray(case.target_probs))),
            f"returned      {failure.output}" if failure.output is not None else "returned      nothing",
            f"Wrong in {len(failures)} of {num_calls} calls.",
        ),
        details={"pattern": list(failure.pattern), "draft_token_ids": list(case.draft_token_ids),
                 "reason": failure.reason, "num_failures": len(failures)},
    )  # fmt: skip


def _calls(subject: VerifySubject) -> Iterator[tuple[VerifySubject, Scenario, tuple[int, ...]]]:
    """Every draft of every case, to the function as it is called elsewhere and, where it takes them, in float32."""
    narrow = subject.in_float32()
    if narrow is not None and not _works(narrow):
        narrow = None
    for form in [subject] if narrow is None else [narrow, subject]:
        for scenario in (adapted(one, form) for one in edge_scenarios()):
            for tokens, _ in draft_paths(scenario.draft, scenario.num_drawn):
                yield form, scenario, tokens


def _works(subject: VerifySubject) -> bool:
    """Whether an ordinary call goes through: a function may insist on float64."""
    scenario = adapted(edge_scenarios()[0], subject)
    try:
        subject.call_rows([scenario.case((1,) * scenario.num_draft_tokens)], NativeSource(0))
    except Exception:
        return False
    return True


class _EdgeProgram:
    """One call with every generator that it could reach at the ends, the global ones too."""

    def __init__(self, subject: VerifySubject, scenario: Scenario, tokens: tuple[int, ...]) -> None:
        self.subject = subject
        self.case = scenario.case(tokens)

    def __call__(self, source: Any) -> Any:
        if isinstance(source, EdgeSource):
            _set_global_generators(source)
        output = self.subject.call_rows([self.case], source)[0]
        if self.subject.decides_only:
            # Whether the accepted drafts are possible is all that can be asked; a possible token stands for the rest.
            row = np.asarray(self.case.target_probs)[len(output.token_ids)]
            return (*output.token_ids, int(np.argmax(row)))
        return output.token_ids


def _set_global_generators(source: EdgeSource) -> None:
    random.setstate(source.python_random().getstate())
    np.random.set_state(dict(source.numpy_generator().bit_generator.state))  # noqa: NPY002
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.random.set_rng_state(source.torch_generator().get_state())
