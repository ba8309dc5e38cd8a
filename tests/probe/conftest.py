"""One probe pair for all tests of the package."""

from __future__ import annotations

import pytest

from specverify.probe import ProbePair, write_probe
from specverify.probe.pair import DEFAULT_SEED


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> ProbePair:
    return write_probe(tmp_path_factory.mktemp("probe") / "pair", seed=DEFAULT_SEED)
