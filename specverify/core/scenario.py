"""The situations an engine is put in: how it samples, from which prompts, for how long."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from specverify.core.errors import UsageError
from specverify.core.types import Request, SamplingParams

EOS_OPTION = "eos_token_ids"
_EXACT_TOKENS = 3
_THREE, _TWO = SamplingParams(top_k=3), SamplingParams(top_k=2)
# name, option, sampling, whether end tokens are given, new tokens
_Exact = tuple[str, str, SamplingParams, bool, int]
EXACT: tuple[_Exact, ...] = (
    ("top-k 3", "", _THREE, False, _EXACT_TOKENS),
    ("temperature 0.7", "temperature", replace(_THREE, temperature=0.7), False, _EXACT_TOKENS),
    ("top-p 0.7", "top_p", replace(_THREE, top_p=0.7), False, _EXACT_TOKENS),
    ("repetition penalty 1.5", "repetition_penalty", replace(_THREE, repetition_penalty=1.5), False, _EXACT_TOKENS),
    ("end token", EOS_OPTION, _THREE, True, _EXACT_TOKENS),
)
# Trees have more paths: two levels of siblings with two tokens to choose from, or one level with three.
EXACT_TREES: tuple[_Exact, ...] = (
    ("top-k 3 (one level)", "", _THREE, False, 2),
    ("temperature 0.7", "temperature", replace(_TWO, temperature=0.7), False, _EXACT_TOKENS),
    ("top-p 0.7 (one level)", "top_p", replace(_THREE, top_p=0.7), False, 2),
    ("repetition penalty 1.2", "repetition_penalty", replace(_TWO, repetition_penalty=1.2), False, _EXACT_TOKENS),
    ("end token", EOS_OPTION, _TWO, True, _EXACT_TOKENS),
    ("top-k 2 (two levels)", "", _TWO, False, _EXACT_TOKENS),
)
# For engines that honour everything. One scenario has it all, for what only goes wrong together.
_EVERYTHING = SamplingParams(
    temperature=1.5,
    top_k=3,
    top_p=0.97,
    min_p=0.03,
    repetition_penalty=1.2,
    presence_penalty=0.3,
    frequency_penalty=0.6,
)
EXACT_MORE: tuple[_Exact, ...] = (
    ("min-p 0.2", "min_p", replace(_THREE, min_p=0.2, temperature=0.7), False, _EXACT_TOKENS),
    ("every option", "frequency_penalty", _EVERYTHING, True, _EXACT_TOKENS),
)


class Purpose(enum.Enum):
    """What a scenario is for; its size follows from that."""

    STREAM = "many sampled tokens, judged by statistics"
    EXACT = "few tokens and a narrow support, so that every path of the call can be enumerated"
    GREEDY = "greedy, with speculation on and off"


@dataclass(frozen=True)
class Scenario:
    """One way of asking an engine for tokens.

    name: for reports, unique among the scenarios of one purpose. prompts: token ids, at least one prompt.
    option: the field of `sampling` that the scenario is about ("top_p"), "eos_token_ids", or "" for plain sampling.
      If the engine does the same without it, the option was not tested: see `without_option`.
    num_requests: how many requests a slow engine can bear in all; None leaves the amount to the check.
    """

    name: str
    purpose: Purpose
    sampling: SamplingParams
    prompts: tuple[tuple[int, ...], ...]
    max_new_tokens: int
    eos_token_ids: tuple[int, ...] = ()
    option: str = ""
    num_requests: int | None = None

    def __post_init__(self) -> None:
        known = (*(option.name for option in fields(SamplingParams)), EOS_OPTION, "")
        if self.option not in known:
            raise UsageError(f"scenario {self.name!r} is about {self.option!r}; choose from {', '.join(known[:-1])}")
        if not self.prompts or not all(self.prompts):
            raise UsageError(f"scenario {self.name!r} has an empty prompt; give at least one token id per prompt")
        if self.max_new_tokens < 1:
            raise UsageError(f"scenario {self.name!r} asks for {self.max_new_tokens} new tokens; ask for at least 1")

    def without_option(self) -> Scenario | None:
        """The same scenario with its option switched off, or None where it has no option.

        Its law, and its number of enumerated paths, must differ from this scenario's: otherwise the option never
        bit, and a pass would say nothing about it.
        """
        if not self.option:
            return None
        name = f"{self.name}, switched off"
        if self.option == EOS_OPTION:
            return replace(self, name=name, eos_token_ids=(), option="")
        neutral = getattr(SamplingParams(), self.option)
        return replace(self, name=name, sampling=replace(self.sampling, **{self.option: neutral}), option="")

    def request(self, prompt_index: int = 0, *, seed: int | None = None, request_id: str = "") -> Request:
        """One request of this scenario; prompts are taken in turn, so any index is good."""
        return Request(
            prompt_token_ids=self.prompts[prompt_index % len(self.prompts)],
            max_new_tokens=self.max_new_tokens,
            sampling=self.sampling,
            seed=seed,
            eos_token_ids=self.eos_token_ids,
            request_id=request_id or f"{self.name}/{prompt_index}",
        )


def scenarios_of(subject: object, purpose: Purpose, *, default: Sequence[Scenario] = ()) -> tuple[Scenario, ...]:
    """The scenarios of one purpose that a subject brings along (its `scenarios`), else those of `default`."""
    brought: Sequence[Scenario] | None = getattr(subject, "scenarios", None)
    return tuple(scenario for scenario in (default if brought is None else brought) if scenario.purpose is purpose)


def default_scenarios(
    prompts: Sequence[tuple[int, ...]],
    eos_token_ids: tuple[int, ...],
    *,
    max_new_tokens: int = 48,
    has_trees: bool = False,
    has_every_option: bool = False,
) -> tuple[Scenario, ...]:
    """Scenarios for any engine whose target's laws are known: plain sampling, each option by itself, end tokens.

    The exact scenarios use the first prompt and a small top-k: that bounds the number of paths in any vocabulary.
    eos_token_ids: without one there is no scenario of end tokens.
    has_trees: the engine drafts trees, which takes yet smaller ones. has_every_option: it also honours min-p and all
    penalties.
    """
    streams = tuple(prompts)

    def stream(name: str, option: str, sampling: SamplingParams, eos: tuple[int, ...] = ()) -> Scenario:
        return Scenario(name, Purpose.STREAM, sampling, streams, max_new_tokens, eos, option)

    return (
        Scenario("greedy", Purpose.GREEDY, SamplingParams(temperature=0.0), streams, max_new_tokens),
        stream("plain", "", SamplingParams()),
        stream("temperature 0.7", "temperature", SamplingParams(temperature=0.7)),
        stream("top-k 5", "top_k", SamplingParams(top_k=5)),
        stream("top-p 0.8", "top_p", SamplingParams(top_p=0.8)),
        stream("repetition penalty 1.3", "repetition_penalty", SamplingParams(repetition_penalty=1.3)),
        *([stream("end token", EOS_OPTION, SamplingParams(), eos_token_ids)] if eos_token_ids else []),
        *(
            Scenario(name, Purpose.EXACT, sampling, streams[:1], num_tokens, eos_token_ids if ends else (), option)
            for name, option, sampling, ends, num_tokens in (
                *(EXACT_TREES if has_trees else EXACT),
                *(EXACT_MORE if has_every_option and not has_trees else ()),
            )
            if eos_token_ids or not ends
        ),
    )
