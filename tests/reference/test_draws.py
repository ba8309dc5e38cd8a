"""Random streams are a request's own, named, and unrelated to one another."""

from __future__ import annotations

import pytest
import torch

from specverify.reference.draws import ACCEPT, DRAFT, FINAL, RequestStreams, draw_tokens, draw_uniforms

CPU = torch.device("cpu")


def test_streams_of_one_request_differ() -> None:
    """Draft, accept and final draws never share a number, so their independence is not an assumption."""
    streams = RequestStreams(7, CPU)

    numbers = [streams.uniforms(name, 64) for name in (DRAFT, ACCEPT, FINAL)]

    assert len({number for stream in numbers for number in stream}) == 3 * 64


def test_uniforms_of_a_row_do_not_depend_on_its_neighbours() -> None:
    """A wider or emptier neighbour leaves a row's numbers alone, now and in the next step."""

    def draw(*others: int) -> list[list[float]]:
        rows = [RequestStreams(seed, CPU) for seed in (5, 6, 7)[: 1 + len(others)]]
        return [draw_uniforms(rows, ACCEPT, [2, *others])[0, :2].tolist() for _ in range(2)]

    assert draw() == draw(4) == draw(0, 3)


def test_rows_without_a_wish_draw_nothing() -> None:
    """A token that nobody asked for does not move the stream."""
    law = torch.full((1, 50), 0.02, dtype=torch.float64)
    moved, still = RequestStreams(5, CPU), RequestStreams(5, CPU)
    draw_tokens(law, [still], DRAFT, [False])

    assert [draw_tokens(law, [s], DRAFT, [True]).item() for s in (moved, moved)] == [
        draw_tokens(law, [s], DRAFT, [True]).item() for s in (still, still)
    ]


def test_mixed_batch_keeps_the_seeded_rows_numbers() -> None:
    """Seedless neighbours draw from the global generator, not from anybody's stream."""
    seeded = [RequestStreams(5, CPU), RequestStreams(None, CPU)]

    mixed = draw_uniforms(seeded, ACCEPT, [3, 3])

    assert torch.equal(draw_uniforms([RequestStreams(5, CPU)], ACCEPT, [3])[0], mixed[0])


class _Fixed(RequestStreams):
    """Every uniform is the same number."""

    def __init__(self, number: float) -> None:
        super().__init__(0, CPU)
        self.number = number

    def uniforms(self, stream: str, count: int) -> list[float]:
        return [self.number] * count


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1.0, 1.0 + 2**-23, 1.0 - 2**-23])
def test_no_uniform_draws_a_token_of_probability_zero(dtype: torch.dtype, scale: float) -> None:
    """At both ends of the uniforms, whatever a law's sum was rounded to, zeros in front and behind stay undrawn."""
    law = torch.tensor([[0.0, 0.25, 0.0, 0.75, 0.0]], dtype=dtype) * scale

    drawn = [draw_tokens(law, [_Fixed(u)], FINAL, [True]).item() for u in (0.0, 0.2499, 0.2501, 1.0 - 2**-53)]

    assert drawn == [1, 1, 3, 3]


def test_seeded_tokens_follow_the_law() -> None:
    """Equal steps through the uniforms draw every token as often as its probability says, in a batch of any size."""
    law = torch.tensor([0.1, 0.0, 0.35, 0.55])
    streams = [_Fixed((step + 0.5) / 1000) for step in range(1000)]

    drawn = draw_tokens(law.expand(1000, 4), streams, DRAFT, [True] * 1000)

    assert torch.bincount(drawn, minlength=4).tolist() == [100, 0, 350, 550]


def test_a_law_that_is_broken_still_names_a_token() -> None:
    """Zeros or NaN all over must not become a token id that no embedding has: the checks are to see the law."""
    for broken in (torch.zeros(1, 4), torch.full((1, 4), torch.nan)):
        assert 0 <= draw_tokens(broken, [_Fixed(0.5)], FINAL, [True]).item() < 4
