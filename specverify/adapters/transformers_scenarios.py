"""The engines that `specverify check transformers` judges, and the scenarios each of them is put through."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from specverify.adapters.telling_prompts import DraftLaw, TellingPrompt, find_telling_prompt, lookup_draft_law
from specverify.adapters.transformers import MODES, TransformersEngine
from specverify.core.errors import UsageError
from specverify.core.randomness import Streams
from specverify.core.scenario import EOS_OPTION, Purpose, Scenario, default_scenarios
from specverify.core.types import SamplingParams
from specverify.probe import ProbePair, default_probe, load_probe
from specverify.probe.weights import FIRST_WORD

MODELS = ("probe", "smollm2")
# Two draft tokens: with fewer there is no second slot, with more an enumeration pays for every path.
NUM_DRAFT_TOKENS = 2

# Streams: long answers, because every call costs some 10 ms before its first token.
_STREAM_TOKENS = 120
_GREEDY_TOKENS = 48
# Exact: the first round emits up to 3 tokens, so 4 always need a second round, with its rollback before it.
_EXACT_TOKENS = 4
_EXACT_PLAIN = SamplingParams(top_k=2)
_EXACT_OPTIONS: dict[str, tuple[str, SamplingParams]] = {
    "temperature 0.6": ("temperature", SamplingParams(top_k=2, temperature=0.6)),
    "top-p 0.65": ("top_p", SamplingParams(top_k=2, top_p=0.65)),
    "repetition penalty 1.5": ("repetition_penalty", SamplingParams(top_k=2, repetition_penalty=1.5)),
}
# Prompt lookup passes made-up logits, all equal, through the filters to see what is forbidden (transformers 5.24). A
# penalty lowers the tokens of the prompt, top-k then forbids all of them, and nothing is ever drafted: narrow by min-p.
_LOOKUP_OPTIONS = _EXACT_OPTIONS | {
    "repetition penalty 1.5": ("repetition_penalty", SamplingParams(min_p=0.5, repetition_penalty=1.5)),
}
_NUM_CANDIDATES = 48


def engines(
    model: str = "probe",
    modes: str | Sequence[str] | None = None,
    *,
    assistant_ensemble_weight: float | None = None,
    ensemble_weight: float | None = None,
    lossy_by_design: str = "",
    probe: ProbePair | str | None = None,
    device: str | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> list[TransformersEngine]:
    """One engine per mode, named "transformers assistant" and so on, each with its scenarios.

    model: "probe" (a tiny pair whose exact law is known) or "smollm2" (a real model, fetched on first use).
    modes: names, or one text with commas; all that apply by default. assistant_ensemble_weight (or, for short,
    ensemble_weight): below 1, transformers' built-in lossy switch, which fails unless lossy_by_design says that it is
    meant. probe: a pair, or its directory.
    """
    weight = assistant_ensemble_weight if assistant_ensemble_weight is not None else ensemble_weight
    if model not in MODELS:
        raise UsageError(f"model {model!r} is unknown; choose from {', '.join(MODELS)}")
    if model == "smollm2":
        from specverify.adapters.smollm2_scenarios import smollm2_engines

        if probe is not None:
            raise UsageError("model smollm2 and a probe pair were both given; give one of them")
        return smollm2_engines(_chosen(modes, ("assistant", "prompt-lookup"), weight), weight, device, progress)
    pair = probe if isinstance(probe, ProbePair) else default_probe() if probe is None else load_probe(probe)
    return [
        TransformersEngine(
            pair.target_dir,
            pair.draft_dir,
            mode=mode,
            num_draft_tokens=NUM_DRAFT_TOKENS,
            device=device,
            ensemble_weight=weight,
            lossy_by_design=lossy_by_design,
            checkpoint=pair,
            scenarios=probe_scenarios(pair, mode),
            record_kv_rows=True,
        )
        for mode in _chosen(modes, MODES, weight)
    ]


def _chosen(modes: str | Sequence[str] | None, available: Sequence[str], weight: float | None) -> tuple[str, ...]:
    if modes is None:
        # Prompt lookup has no draft law, so there is nothing to mix.
        return tuple(mode for mode in available if weight is None or mode != "prompt-lookup")
    chosen = tuple(part.strip() for part in modes.split(",")) if isinstance(modes, str) else tuple(modes)
    for mode in chosen:
        if mode not in MODES:
            raise UsageError(f"mode {mode!r} is unknown; choose from {', '.join(MODES)}")
    return chosen


def probe_scenarios(pair: ProbePair, mode: str) -> tuple[Scenario, ...]:
    """What an engine with this pair is asked: greedy, streams of every option, and exact scenarios of every option."""
    prompts = pair.lookup_prompts if mode == "prompt-lookup" else pair.prompts
    telling = telling_prompt(pair, mode)
    end, short = (telling.end_token_id,), (telling.token_ids,)
    standard = default_scenarios(prompts, end, max_new_tokens=_STREAM_TOKENS)
    return (
        *(replace(one, max_new_tokens=_GREEDY_TOKENS) for one in standard if one.purpose is Purpose.GREEDY),
        *(one for one in standard if one.purpose is Purpose.STREAM),
        Scenario("plain", Purpose.EXACT, _EXACT_PLAIN, short, _EXACT_TOKENS),
        *(
            Scenario(name, Purpose.EXACT, sampling, short, _EXACT_TOKENS, option=option)
            for name, (option, sampling) in _exact_options(mode).items()
        ),
        Scenario("end token", Purpose.EXACT, _EXACT_PLAIN, short, _EXACT_TOKENS, end, EOS_OPTION),
    )


def telling_prompt(pair: ProbePair, mode: str) -> TellingPrompt:
    """The prompt for the exact scenarios of this mode."""
    return find_telling_prompt(
        pair.target_oracle,
        _draft_law(pair, mode),
        _candidates(pair, mode),
        plain=_EXACT_PLAIN,
        options=[sampling for _, sampling in _exact_options(mode).values()],
        num_tokens=_EXACT_TOKENS,
    )


def _exact_options(mode: str) -> Mapping[str, tuple[str, SamplingParams]]:
    return _LOOKUP_OPTIONS if mode == "prompt-lookup" else _EXACT_OPTIONS


def _draft_law(pair: ProbePair, mode: str) -> DraftLaw:
    if mode == "prompt-lookup":
        return lookup_draft_law(pair.vocab_size)
    oracle = pair.draft_oracle
    if mode == "early-exit":
        oracle = pair.target_oracle.early_exit(max(1, pair.target_oracle.shape.num_layers // 2))
    return lambda token_ids: oracle.conditional(token_ids, _EXACT_PLAIN)(())


def _candidates(pair: ProbePair, mode: str) -> list[tuple[int, ...]]:
    """Short prompts of words; for prompt lookup, long ones in which every word has occurred, with one or two more."""
    generator = Streams(pair.seed).generator("transformers", mode, "candidates")
    lengths = np.arange(_NUM_CANDIDATES) % 2 + 1 if mode == "prompt-lookup" else np.arange(_NUM_CANDIDATES) % 6 + 2
    start: tuple[int, ...] = pair.lookup_prompts[0] if mode == "prompt-lookup" else (pair.bos_token_id,)
    words = np.arange(FIRST_WORD, pair.vocab_size)
    return [(*start, *(int(word) for word in generator.choice(words, size=length))) for length in lengths]
