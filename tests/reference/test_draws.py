"""Random streams are a request's own, named, and unrelated to one another."""

from __future__ import annotations

import torch

from specverify.reference.draws import ACCEPT, DRAFT, FINAL, RequestStreams, draw_tokens, draw_uniforms

CPU = torch.device("cpu")


def test_streams_of_one_request_differ() -> None:
    """Draft, accept and final draws never share a number, so their independence is not an assumption."""
    streams = RequestStreams(7, CPU)

    numbers = [torch.rand(64, generator=streams.generator(name)) for name in (DRAFT, ACCEPT, FINAL)]

    assert len(torch.cat(numbers).unique()) == 3 * 64


def test_uniforms_of_a_row_do_not_depend_on_its_neighbours() -> None:
    """A wider or emptier neighbour leaves a row's numbers alone, now and in the next step."""

    def draw(*others: int) -> list[list[float]]:
        rows = [RequestStreams(seed, CPU) for seed in (5, 6, 7)[: 1 + len(others)]]
        return [draw_uniforms(rows, ACCEPT, [2, *others], dtype=torch.float64)[0, :2].tolist() for _ in range(2)]

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

    mixed = draw_uniforms(seeded, ACCEPT, [3, 3], dtype=torch.float64)

    assert torch.equal(draw_uniforms([RequestStreams(5, CPU)], ACCEPT, [3], dtype=torch.float64)[0], mixed[0])
