"""Certified distance: the largest total variation that the data prove, numerical noise allowed for."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specverify.core.errors import UsageError
from specverify.stats.budget import alarm_threshold
from specverify.stats.combine import average_log_e

Array = NDArray[np.float64]

CUTS: Array = np.array([0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98])

# Stakes relative to the largest one that a cut allows. The small ones make the certified distance tight on long
# streams (a stake l loses about l / 2 of it), the large ones prove gross distances early.
STAKES: Array = np.geomspace(1e-4, 0.95, 20)
# An impossible token pays any stake, because losing costs nothing but the allowance.
_IMPOSSIBLE_STAKES: Array = np.geomspace(1e-3, 1e6, 28)

TESTS = ("draft-set", "draft-ramp", "sharper")
# Stakes of tests, shrunk token by token where losing would cost more than _MOST of the capital. Peaked laws allow
# stakes above 1: what a test scores is then nearly always lost in small change.
TEST_STAKES: Array = np.geomspace(1e-3, 4.0, 20)
_MOST = 0.95
# A ramp from half the target's probability to twice it wastes less on tokens where draft and target nearly agree.
_RAMP_FROM, _RAMP_TO = 0.5, 2.0


class CertifiedTv:
    """E-processes against "the laws lie within total variation delta of the reference on average", for every delta.

    A bet h = 1 + stake * (score - mean), of either sign, where the score lies between 0 and 1 and has this mean under
    the reference, has an expectation of at most 1 + stake * delta under that null, so h / (1 + stake * delta) is an
    e-value. Products are averaged over scores, signs and stakes. By the inequality of the means the product stays one
    if only the average distance up to stopping is within delta. Scores are of two families in equal shares: whether the
    uniform of the randomised probability transform lies below a cut, and tests that know the laws (token_scores).

    Source: Saha and Ramdas, arXiv 2408.14015, for a total-variation ball.
    """

    def __init__(self, num_streams: int = 1) -> None:
        self._below: Array = np.zeros((num_streams, len(CUTS)))
        self._totals: Array = np.zeros(num_streams)
        self._num_impossible = 0
        self._num_tokens = 0
        # Log of what was won before the allowance, [signs, tests, stakes]; sums of score - mean, [tests].
        self._won: Array = np.zeros((2, len(TESTS), len(TEST_STAKES)))
        self._shift: Array = np.zeros(len(TESTS))
        self._num_tested = 0

    def update(self, uniforms: ArrayLike, *, stream: int = 0) -> None:
        """Adds uniforms, [n], of one stream: one order of the tokens. Impossible tokens have theirs too: any will do,
        but leaving them out would forgive their stakes."""
        values = np.asarray(uniforms, dtype=np.float64)
        self._below[stream] += (values[:, None] <= CUTS).sum(axis=0)
        self._totals[stream] += len(values)

    def add_impossible(self, num_impossible: int, num_tokens: int) -> None:
        """Counts tokens that the reference forbids, among so many tokens."""
        self._num_impossible += num_impossible
        self._num_tokens += num_tokens

    def add_scores(self, scores: Array, means: Array) -> None:
        """Adds what the tokens scored in every test, [tests, n], and the means under the reference, [tests, n]."""
        gain = scores - means
        for index, (sign, most_lost) in enumerate(((1.0, means), (-1.0, 1.0 - means))):
            with np.errstate(divide="ignore"):
                stakes = np.minimum(TEST_STAKES[:, None], _MOST / np.maximum(most_lost, 0.0)[:, None])
            self._won[index] += np.log1p(sign * stakes * gain[:, None]).sum(axis=-1)
        self._shift += gain.sum(axis=-1)
        self._num_tested += scores.shape[1]

    def log_e(self, tolerance: float) -> float:
        """Log e-value against an average total variation of at most this tolerance."""
        if not 0.0 <= tolerance <= 1.0:
            raise UsageError(f"tolerance is {tolerance}; a total variation lies between 0 and 1")
        impossible = self._num_impossible * np.log1p(_IMPOSSIBLE_STAKES)
        impossible = impossible - self._num_tokens * np.log1p(_IMPOSSIBLE_STAKES * tolerance)
        families = [self._by_cut(tolerance), impossible]
        if self._num_tested:
            families.append((self._won - self._num_tested * np.log1p(TEST_STAKES * tolerance)).ravel())
        return float(average_log_e([float(average_log_e(family)) for family in families]))

    def certified_tv(self, alpha: float) -> float:
        """The largest tolerance that is refuted at this alpha: a lower bound on the average total variation.

        The e-value falls as the tolerance grows, so all tolerances are read from the same data at once.
        """
        threshold = alarm_threshold(alpha)
        if self.log_e(0.0) < threshold:
            return 0.0
        low, high = 0.0, 1.0
        for _ in range(40):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if self.log_e(middle) >= threshold else (low, middle)
        return low

    @property
    def observed_tv(self) -> float:
        """The largest average distance that any score shows: an estimate, which luck inflates; 0 without tokens."""
        cuts = np.abs(self._below / np.maximum(self._totals, 1.0)[:, None] - CUTS) * (self._totals > 0.0)[:, None]
        tests = np.abs(self._shift) / max(1, self._num_tested)
        return float(max(cuts.max(), tests.max(), self._num_impossible / max(1, self._num_tokens)))

    def _by_cut(self, tolerance: float) -> Array:
        below, totals = self._below[:, :, None], self._totals[:, None, None]
        above = totals - below
        values = []
        for sign, largest in ((1.0, 1.0 / CUTS), (-1.0, 1.0 / (1.0 - CUTS))):
            stakes = STAKES * largest[:, None]  # [cuts, stakes]
            cuts = CUTS[:, None]
            won = below * np.log1p(sign * stakes * (1.0 - cuts)) + above * np.log1p(-sign * stakes * cuts)
            values.append((won - totals * np.log1p(stakes * tolerance)).ravel())
        return np.concatenate(values)


def token_scores(laws: Array, draft: Array | None, ids: NDArray[np.int64]) -> tuple[Array, Array]:
    """Scores of the emitted tokens and their means under the laws, both [tests, n], in the order of TESTS.

    draft-set: whether the draft law gives the token more than the target: the whole distance of a mixture with the
    draft. draft-ramp: the same, gradually. sharper: whether the token is likelier than an average one. laws, draft:
    [n, vocab]; a row of NaN has no draft law: then the two draft tests are no bet.
    """
    known = laws if draft is None else np.where(np.isnan(draft), laws, draft)
    is_possible = (laws > 0.0) | (known > 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(is_possible, known / laws, 0.0)
    average = (laws**2).sum(axis=1, keepdims=True)
    ramp = np.clip((ratio - _RAMP_FROM) / (_RAMP_TO - _RAMP_FROM), 0.0, 1.0)
    tests = np.stack([ratio > 1.0, ramp, laws > average]).astype(np.float64)
    return tests[:, np.arange(len(ids)), ids], (tests * laws).sum(axis=-1)
