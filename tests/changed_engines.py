"""Engines that changed since a golden trace was recorded, for the golden tests."""

from __future__ import annotations

from typing import Any

import torch

from specverify.reference.engine import ReferenceEngine
from specverify.reference.subject import Parts, reference_subject


class DeclaresAtTemperatureOne:
    """Goes on sampling at the request's temperature, but reports the law at temperature 1."""

    def declared_law(self, batch: Any, law: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        return logits.softmax(-1)


def unchanged(**options: Any) -> Any:
    return reference_subject(**options)


def wrong_draft_law(**options: Any) -> Any:
    return reference_subject(parts=Parts(proposer_mixin=DeclaresAtTemperatureOne), **options)


class _KeepsRejectedRows(ReferenceEngine):
    """After a rejection one rejected row stays in the target's cache."""

    def rows_to_keep(self, row: int, running: Any) -> int:
        return min(running.newest_position + 1, self.cached.cache.lengths[row])


def keeps_rejected_rows(**options: Any) -> Any:
    return reference_subject(parts=Parts(engine_class=_KeepsRejectedRows), **options)


def dies(**options: Any) -> Any:
    subject = reference_subject(**options)

    class Dying:
        name = "dying"
        capabilities = subject.capabilities

        def generate(self, requests: Any, *, speculate: bool) -> Any:
            raise RuntimeError("out of memory")

    return Dying()


def dies_at_the_second_request(**options: Any) -> Any:
    subject = reference_subject(**options)

    class Dying:
        name = "dying"
        capabilities = subject.capabilities
        num_calls = 0

        def generate(self, requests: Any, *, speculate: bool) -> Any:
            self.num_calls += 1
            if self.num_calls > 1:
                raise RuntimeError("out of memory")
            return subject.generate(requests, speculate=speculate)

    return Dying()
