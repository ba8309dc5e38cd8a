"""Many requests on several threads give what they give on one."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from specverify.core.errors import UsageError
from specverify.core.types import Request
from specverify.reference import data_parallel
from specverify.reference.data_parallel import LEAST_ROWS, num_shares
from specverify.reference.subject import reference_subject
from tests.reference import tiny

CPU = torch.device("cpu")


@pytest.fixture(name="two_threads")
def _two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def subject():
    return reference_subject(target=tiny.model(), draft=tiny.model(seed=2), num_threads=None, tokenizers=None)


def requests(number):
    return [Request((1, 2 + index % 3, 4), 3 + index % 5, seed=index) for index in range(number)]


def test_threads_change_nothing(two_threads, monkeypatch) -> None:
    """Tokens, their order, and what the steps recorded."""
    wanted = requests(2 * LEAST_ROWS + 3)
    shared = subject().generate(wanted, speculate=True)
    monkeypatch.setattr(data_parallel, "LEAST_ROWS", 10**9)
    alone = subject().generate(wanted, speculate=True)

    assert [trace.request for trace in shared] == wanted
    assert [trace.token_ids for trace in shared] == [trace.token_ids for trace in alone]
    assert [[step.num_accepted for step in trace.steps] for trace in shared] == [
        [step.num_accepted for step in trace.steps] for trace in alone
    ]


def test_threads_are_used(two_threads, monkeypatch) -> None:
    """Every thread has an engine of its own; the one of the subject is left alone."""
    made = []
    kept = data_parallel.generate_in_shares

    def watched(make_engine, *rest, **options):
        return kept(lambda: made.append(make_engine()) or made[-1], *rest, **options)

    monkeypatch.setattr("specverify.reference.subject.generate_in_shares", watched)
    one = subject()
    one.generate(requests(2 * LEAST_ROWS), speculate=False)

    assert len(made) == 2
    assert one.engine not in made
    assert torch.get_num_threads() == 2


def test_what_is_not_shared_out(two_threads) -> None:
    """A few requests, one thread, a GPU; and requests without seeds, whose numbers come from one generator."""
    many = requests(4 * LEAST_ROWS)

    assert num_shares(many, CPU) == 2
    assert num_shares(many[: 2 * LEAST_ROWS - 1], CPU) == 1
    assert num_shares([*many, replace(many[0], seed=None)], CPU) == 1
    assert num_shares(many, torch.device("cuda")) == 1
    torch.set_num_threads(1)
    assert num_shares(many, CPU) == 1


def test_an_error_in_a_thread_is_the_callers(two_threads) -> None:
    with pytest.raises(UsageError, match="99"):
        subject().generate([*requests(2 * LEAST_ROWS), Request((99,), 2, seed=1)], speculate=False)
