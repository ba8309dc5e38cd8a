"""Rows of one batch that are sampled differently: each the way its own request asks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from specverify.checks import ambient, company, evidence, noise, wording
from specverify.checks.divergence import first_divergence, with_margins
from specverify.checks.evidence import GREEDY, SAMPLED, Run
from specverify.checks.registry import CheckContext, Exercised, check
from specverify.core.capabilities import Capability
from specverify.core.outcomes import Finding, Kind, Table
from specverify.core.types import Request, SamplingParams, Trace
from specverify.trace.pipeline import common_length

# Two rows of each of two kinds; what is sampled wrongly shows within a few tokens.
_NUM_ROWS, _NUM_TOKENS = 4, 5
_PENALISED = SamplingParams(repetition_penalty=1.5, presence_penalty=0.3, frequency_penalty=0.4)
_KINDS = {
    "greedy": GREEDY,
    "greedy with penalties": replace(_PENALISED, temperature=0.0),
    "sampled": SAMPLED,
    "sampled with top-k": SamplingParams(temperature=0.7, top_k=5),
    "sampled with penalties": _PENALISED,
}
# Which kinds share a batch, in turn from the first row on. Few at once: a row that needs the longest way through the
# sampler takes all others with it.
_MIXTURES = (
    ("greedy", "sampled with top-k"),
    ("sampled with top-k", "greedy"),
    ("greedy", "sampled"),
    ("greedy", "greedy with penalties"),
    ("greedy with penalties", "greedy"),
    ("sampled", "sampled with penalties"),
)


@dataclass(frozen=True, eq=False)
class _Row:
    """A row among rows of its kind, and the same request in a mixture. not_noise: why that is no rounding."""

    kind: str
    mixture: tuple[str, str]
    expected: Trace
    got: Trace
    not_noise: str = ""

    @property
    def token_index(self) -> int:
        return common_length(self.expected.token_ids, self.got.token_ids)


@check(
    "batch.rows-keep-their-sampling",
    claim="A row of a batch is sampled as its own request asks, whatever the other rows ask for.",
    kind=Kind.EXACT,
    needs={Capability.GENERATE, Capability.BATCH},
    exercised_by=(Exercised("mixed-rows"),),
    catches=("batch-sampled-row-greedy", "batch-sampling-lost-beside-greedy", "batch-penalties-of-first-row"),
    source="NVIDIA/TensorRT-LLM#19390 and vllm-project/vllm#27077: one greedy row decided how the others were sampled",
)
def rows_keep_their_sampling(subject: Any, context: CheckContext) -> Iterator[Finding]:
    """Greedy, sampled and filtered requests, with penalties and without: each kind by itself, and in batches of two
    kinds, either of them in the first row.

    A greedy request must get the same tokens, near ties apart; a sampled one too where the engine honours seeds, and
    where as many tokens were drafted. Without seeds sampled rows are company only.
    """
    with ambient.repeatable(subject, context, "mixed"):
        yield from list(_judge(subject, context))


def _judge(subject: Any, context: CheckContext) -> Iterator[Finding]:
    tolerance = 2.0 * noise.log_prob_noise(subject, context)
    mixtures = [mixture for mixture in _MIXTURES if all(_can_ask(subject, kind) for kind in mixture)]
    # Company comes without a yardstick: sampled rows without seeds differ from call to call.
    judged = [kind for kind in _KINDS if any(kind in mixture for mixture in mixtures) and _is_judged(subject, kind)]
    alike = {kind: _run(subject, context, (kind, kind)) for kind in judged}
    rows = [row for mixture in mixtures for row in _rows(_run(subject, context, mixture), mixture, alike)]
    context.exercised("mixed-rows", len(rows))
    broken = [
        row for row in rows if _KINDS[row.kind].is_greedy for row in _greedy_bug(subject, context, row, tolerance)
    ]
    for kind in judged:
        broken += _sampled_bugs(subject, [row for row in rows if row.kind == kind and not _KINDS[kind].is_greedy])
    if broken:
        yield _finding(broken, rows)
    context.worth(f"{len(rows)} rows in {len(mixtures)} mixtures: {', '.join(judged)}")


def _can_ask(subject: Any, kind: str) -> bool:
    sampling = _KINDS[kind]
    wanted = {Capability.PENALTIES} if sampling.has_penalties else set()
    wanted |= {Capability.SAMPLING} if sampling.top_k else set()
    return wanted <= set(subject.capabilities)


def _is_judged(subject: Any, kind: str) -> bool:
    sampling = _KINDS[kind]
    if not sampling.is_greedy:
        return Capability.SEED in subject.capabilities and company.is_exact_enough(subject)
    # Penalties act on raw logits, which only the oracle knows: elsewhere a near tie cannot be told from a bug.
    return not sampling.has_penalties or Capability.LOAD_CHECKPOINT in subject.capabilities


def _run(subject: Any, context: CheckContext, kinds: tuple[str, str]) -> tuple[Trace, ...]:
    """One batch: the same prompts and seeds whatever the kinds."""
    prompts = evidence.standard_prompts(subject, context)
    num_tokens = min(_NUM_TOKENS, evidence.new_tokens(subject))
    is_seeded = Capability.SEED in subject.capabilities
    requests = []
    for index in range(_NUM_ROWS):
        sampling = _KINDS[kinds[index % 2]]
        seed = context.streams.integer("mixed", index) % 2**31 if is_seeded and not sampling.is_greedy else None
        prompt = prompts[index % len(prompts)]
        requests.append(Request(prompt, num_tokens, sampling, seed, request_id=f"row {index}"))
    return evidence.generate(evidence.quiet(subject), requests, speculate=True)


def _rows(traces: Sequence[Trace], mixture: tuple[str, str], alike: Mapping[str, Sequence[Trace]]) -> Iterator[_Row]:
    for index, trace in enumerate(traces):
        kind = mixture[index % 2]
        if kind in alike:
            yield _Row(kind, mixture, alike[kind][index], trace)


def _greedy_bug(subject: Any, context: CheckContext, row: _Row, tolerance: float) -> Iterator[_Row]:
    """The row, where its tokens differ and no near tie explains it."""
    divergence = first_divergence(Run("own", row.got.request.sampling, (row.got,), subject), row.got, row.expected)
    if divergence is None:
        return
    scored = with_margins(divergence, subject, context)
    if scored.is_near_tie(tolerance):
        return
    if scored.on_margin is not None and scored.off_margin is not None:
        farthest = max(scored.on_margin, scored.off_margin)
        reason = f"Not a near tie: one of the two tokens is {farthest:.3g} below the best one in log-probability; "
        yield replace(row, not_noise=f"{reason}rounding explains {tolerance:.1g}.")
    elif None in (scored.on_token, scored.off_token):
        yield replace(row, not_noise="Not a near tie: one output ends where the other goes on.")
    elif noise.dtype_of(subject) == "float64":
        yield replace(row, not_noise="Not rounding: the engine computes in float64.")


def _sampled_bugs(subject: Any, rows: Sequence[_Row]) -> Sequence[_Row]:
    pairs = [(row.expected, row.got) for row in rows]
    found = {id(one.got) for one in company.broken_among(subject, "", pairs)}
    reason = "The request, its seed and the engine are the same."
    return [replace(row, not_noise=reason) for row in rows if id(row.got) in found]


def _finding(broken: Sequence[_Row], rows: Sequence[_Row]) -> Finding:
    worst = min(broken, key=lambda row: row.token_index)
    other = next(kind for kind in worst.mixture if kind != worst.kind)
    index = worst.token_index
    shown = slice(max(0, index - 2), index + 6)
    length = max(len(worst.expected.token_ids), len(worst.got.token_ids))
    places = [(row.kind, row.mixture) for row in rows]
    wrong = [(row.kind, row.mixture) for row in broken]
    return Finding(
        headline=f"A request that is {worst.kind} got other tokens beside ones that are {other}, "
        f"from new token {index} on.",
        table=Table(
            rows=(
                ("new token", *(str(i) for i in range(length)[shown])),
                ("among its like", *wording.token_text(worst.expected.token_ids[shown])),
                (f"beside {other}", *wording.token_text(worst.got.token_ids[shown])),
            )
        ),
        not_noise=worst.not_noise,
        where=(
            f"Prompt {wording.prompt_text(worst.got.request.prompt_token_ids)}; "
            f"rows in turn {' and '.join(worst.mixture)}.",
            *(
                f"- {kind}, in turn {' and '.join(mixture)}: {wrong.count((kind, mixture))} of "
                f"{places.count((kind, mixture))} rows broken"
                for kind, mixture in dict.fromkeys(wrong)
            ),
        ),
        likely_cause=_cause(broken, rows),
        details={"broken": len(broken), "rows": len(rows)},
    )


def _cause(broken: Sequence[_Row], rows: Sequence[_Row]) -> str:
    """A cause that every broken row shares and no right one contradicts, or nothing."""
    is_first = {row.mixture[0] == row.kind for row in broken}
    right = [row for row in rows if not any(row.got is other.got for other in broken)]
    kinds = {row.kind for row in broken}
    if is_first == {False} and any(row.kind in kinds and row.mixture[0] == row.kind for row in right):
        return "all rows are sampled as the first row of the batch asks: rows like the first one are right."
    if all("greedy" in row.mixture and not _KINDS[row.kind].is_greedy for row in broken):
        return "one greedy row makes the whole batch greedy, or drops what the other rows ask for."
    return ""
