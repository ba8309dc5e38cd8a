"""The engine's laws are the float64 laws that everything is judged by."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from specverify.core.types import SamplingParams
from specverify.laws.sampling import law_from_logits
from specverify.reference.sampling import SamplingRows, TokenCounts

CPU = torch.device("cpu")
VOCAB = 12
# Float64 against float64: only the order of additions differs.
TOLERANCE = 1e-13
PARAMS = [
    SamplingParams(),
    SamplingParams(temperature=0.0),
    SamplingParams(temperature=0.6),
    SamplingParams(top_k=3),
    SamplingParams(top_k=99),
    SamplingParams(top_p=0.7),
    SamplingParams(min_p=0.2),
    SamplingParams(temperature=1.3, top_k=6, top_p=0.8, min_p=0.05),
    SamplingParams(repetition_penalty=1.4),
    SamplingParams(presence_penalty=0.5, frequency_penalty=-0.3),
    SamplingParams(temperature=0.0, repetition_penalty=2.0, frequency_penalty=0.7),
    SamplingParams(temperature=0.8, top_k=5, top_p=0.9, repetition_penalty=1.2, presence_penalty=0.4),
]
PROMPT, OUTPUT = (3, 1, 3), (5, 5, 2)


def logits(kind: str) -> torch.Tensor:
    """[rows, 2, VOCAB], a row per entry of PARAMS."""
    generator = torch.Generator().manual_seed(5)
    values = torch.randn(len(PARAMS), 2, VOCAB, generator=generator, dtype=torch.float64) * 3
    if kind == "ties":
        values = values.round()
    if kind == "masked":
        values[:, :, ::3] = -torch.inf
    return values


@pytest.mark.parametrize("together", [True, False], ids=["one batch", "row by row"])
@pytest.mark.parametrize("kind", ["plain", "ties", "masked"])
def test_every_row_has_the_law_of_its_own_parameters(kind: str, together: bool) -> None:
    """All parameters mixed in one batch, or each alone: the law is the one of specverify.laws.sampling."""
    values = logits(kind)
    groups = [list(range(len(PARAMS)))] if together else [[row] for row in range(len(PARAMS))]

    for rows in groups:
        counts = TokenCounts.of([(PROMPT, OUTPUT)] * len(rows), VOCAB, CPU)
        laws = SamplingRows([PARAMS[row] for row in rows], CPU).law(values[rows], counts).numpy()
        for row, law in zip(rows, laws, strict=True):
            wanted = law_from_logits(values[row].numpy(), PARAMS[row], prompt_token_ids=PROMPT, output_token_ids=OUTPUT)
            np.testing.assert_allclose(law, wanted, rtol=0, atol=TOLERANCE, err_msg=str(PARAMS[row]))


@pytest.mark.parametrize("params", [p for p in PARAMS if p.has_penalties], ids=str)
def test_penalties_see_the_draft_tokens_before_each_position(params: SamplingParams) -> None:
    """Position i of a verify pass is penalised for draft tokens 0 to i - 1, as plain decoding would be."""
    drafts = (7, 5, 7)
    values = torch.randn(1, 4, VOCAB, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    counts = TokenCounts.of([(PROMPT, OUTPUT)], VOCAB, CPU)

    laws = SamplingRows([params], CPU).law(values, counts, counts.along(torch.tensor([drafts]))).numpy()[0]

    for index in range(4):
        history = (*OUTPUT, *drafts[:index])
        wanted = law_from_logits(values[0, index].numpy(), params, prompt_token_ids=PROMPT, output_token_ids=history)
        np.testing.assert_allclose(laws[index], wanted, rtol=0, atol=TOLERANCE)


def test_counts_grow_by_one_token() -> None:
    """The draft model's penalties follow its own draft."""
    counts = TokenCounts.of([(PROMPT, OUTPUT), (PROMPT, ())], VOCAB, CPU).after(torch.tensor([5, 0]))

    assert counts.in_output[0, :6].tolist() == [0, 0, 1, 0, 0, 3]
    assert counts.in_output[1, :2].tolist() == [1, 0]


def test_low_precision_logits_give_float32_laws() -> None:
    """A law is never computed in bfloat16: its rows would not sum to one."""
    law = SamplingRows([SamplingParams(top_p=0.9)], CPU).law(torch.randn(1, 1, VOCAB).to(torch.bfloat16))

    assert torch.float32 == law.dtype
    assert abs(law.sum().item() - 1.0) < 1e-6
