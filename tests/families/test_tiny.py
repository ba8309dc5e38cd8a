"""The family that ships: small, trained, lossless with everything that drafts for it."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

import pytest

from specverify.adapters.reference import reference_engine
from specverify.core.types import Request, SamplingParams
from specverify.families.family import END_TOKEN_ID, tiny_family
from specverify.families.workloads import EDITING, SPECIAL_TOKENS, SUMMARY, WRITING
from specverify.reference.subject import PROPOSERS
from specverify.reference.training.measure import Acceptance, acceptance

NUM_PROMPTS, NUM_DRAFT_TOKENS, NUM_TOKENS = 32, 4, 48
MEGABYTE = 1_000_000


@lru_cache
def accepted(proposer: str, workload: str, temperature: float = 0.0) -> Acceptance:
    subject = reference_engine(
        model="tiny", proposer=proposer, num_draft_tokens=NUM_DRAFT_TOKENS, record_probs=False, record_kv_rows=False
    )
    sampling, end = SamplingParams(temperature), (END_TOKEN_ID,)
    prompts = enumerate(tiny_family().prompts(workload, NUM_PROMPTS))
    asked = [Request(prompt, NUM_TOKENS, sampling, seed=seed, eos_token_ids=end) for seed, prompt in prompts]
    return acceptance(subject.generate(asked, speculate=True))


def test_family_is_small_enough_to_ship() -> None:
    folder = tiny_family().target.parent

    assert sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) < 10 * MEGABYTE
    assert not list(folder.rglob("*.pt"))


@pytest.mark.parametrize("workload", [WRITING, SUMMARY, EDITING])
def test_trained_draft_is_accepted_more_often_than_not(workload: str) -> None:
    """Above 0.6 of the draft tokens that are judged, at temperature 0, on files that nothing was trained on."""
    assert accepted("draft-model", workload).rate > 0.6


@pytest.mark.parametrize("workload", [WRITING, SUMMARY, EDITING])
def test_eagle_is_accepted_more_often_than_medusa(workload: str) -> None:
    """It sees the tokens it drafts; Medusa's heads do not."""
    assert accepted("eagle", workload).rate > accepted("medusa", workload).rate


@pytest.mark.parametrize("temperature", [0.7, 1.0])
@pytest.mark.parametrize("workload", [SUMMARY, EDITING])
def test_lookup_pays_where_the_prompt_holds_the_answer(workload: str, temperature: float) -> None:
    """At least 4 times as many tokens accepted a step as in open-ended writing.

    Measured: .40 writing, 2.39 summarising, 2.44 editing; at temperature 1 .13, 2.13 and 1.62. At temperature 0 so
    small a model repeats itself when it writes, and that is looked up, too: 1.06, 2.42 and 2.90.
    """
    writing, copying = (accepted("n-gram", kind, temperature).per_step for kind in (WRITING, workload))
    assert copying >= 4.0 * writing


@pytest.mark.parametrize("proposer", PROPOSERS)
def test_text_is_the_same_whatever_drafts(proposer: str) -> None:
    """Greedy, token for token, for every proposer there is."""
    subject = reference_engine(model="tiny", proposer=proposer)
    prompts = tiny_family().prompts(EDITING, 4)
    asked = [Request(prompt, 24, SamplingParams(0.0), eos_token_ids=(END_TOKEN_ID,)) for prompt in prompts]

    on, off = (subject.generate(asked, speculate=speculate) for speculate in (True, False))

    assert [trace.token_ids for trace in off] == [trace.token_ids for trace in on]


def test_tokenizer_gives_back_the_text() -> None:
    tokenizer = tiny_family().tokenizer()
    text = 'def héllo(x):\n\treturn f"{x!r}"  # ✓\n'

    assert text == tokenizer.decode(tokenizer.encode(text).ids)
    assert [tokenizer.token_to_id(token) for token in SPECIAL_TOKENS] == [0, 1, 2, 3]


def test_checkpoints_load_in_other_engines() -> None:
    """The configuration is a Llama's, with everything that transformers asks for."""
    for folder in (tiny_family().target, tiny_family().draft):
        fields = json.loads(Path(folder / "config.json").read_text(encoding="utf-8"))
        assert (fields["model_type"], fields["hidden_act"], fields["eos_token_id"]) == ("llama", "silu", 0)
