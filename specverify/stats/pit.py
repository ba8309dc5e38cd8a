"""Streams of tokens with ever-changing laws, brought to one scale by the randomised probability transform."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specverify.core.errors import UsageError
from specverify.stats.certified import CertifiedTv, token_scores
from specverify.stats.combine import average_log_e
from specverify.stats.design import detectable_tv
from specverify.stats.directions import Portfolio, direction_rows, log_bets
from specverify.stats.dirichlet import log_e_by_scale

NUM_BINS = 20
KEYS = ("target", "ratio", "hash")

# Rows are handled in blocks of about this many probabilities: 10 directions of them take 160 MB.
_BLOCK = 2_000_000


@dataclass(frozen=True)
class PitDetail:
    """Which evidence a stream holds: log e-value by key and slot (None: all slots in one), and the best bet."""

    by_key: dict[tuple[str, int | None], float]
    bets: float
    best_bet: tuple[str, int | None, float]


class PitStream:
    """An e-process for emitted tokens against the target's conditional laws, whatever the contexts.

    Each token becomes U = (mass of the tokens ordered before it) + random * (its own probability), uniform and
    independent of the past if the token follows its law. Orders ("keys"): by target probability, by target / draft
    where a draft law is known, and by a fixed shuffle. The key decides what is seen, so all are used and averaged.
    Twenty bins each, pooled and by slot; directed bets (mixtures with the draft, the previous row, other
    temperatures, ...) are averaged in.

    num_slots: strata known before the token is drawn, such as its position in the verify call.
    num_impossible counts tokens that the target forbids; one of them makes log_e infinite.
    """

    def __init__(self, vocab_size: int, *, num_slots: int = 1, keys: Sequence[str] = KEYS) -> None:
        for key in keys:
            if key not in KEYS:
                raise UsageError(f"key {key!r} is unknown; choose from {', '.join(KEYS)}")
        if vocab_size < 2 or num_slots < 1 or not keys:
            raise UsageError(f"vocab_size is {vocab_size}, num_slots {num_slots}, keys {tuple(keys)}; give at least "
                             "2 tokens, 1 slot and 1 key")  # fmt: skip
        self.vocab_size = vocab_size
        self.keys = tuple(keys)
        self.num_tokens = 0
        self.num_impossible = 0
        self.knows_drafts = False
        self._shuffle = np.random.default_rng(0).permutation(vocab_size).astype(np.float64)
        self._counts: NDArray[np.float64] = np.zeros((len(keys), num_slots, NUM_BINS))
        self._bets = Portfolio(num_slots)
        # Slots are pooled here: the certified distance is an average over all tokens, which one slot alone may exceed.
        self._certified = CertifiedTv(num_streams=len(keys))

    def update(
        self,
        tokens: ArrayLike,
        laws: ArrayLike,
        *,
        rng: np.random.Generator,
        slots: ArrayLike | None = None,
        draft_laws: ArrayLike | None = None,
        previous_laws: ArrayLike | None = None,
    ) -> None:
        """Adds tokens in the order of time: ids [n], the target's law for each [n, vocab], its slot [n].

        draft_laws: law of the draft token at that position, [n, vocab]; a row of NaN where there was none.
        previous_laws: the target's law one position earlier, likewise. Both must be known before the token.
        rng: breaks ties inside a token's own probability; use a stream that the subject does not share.
        """
        ids, rows, places = self._checked(tokens, laws, slots)
        draft = None if draft_laws is None else self._checked_rows(draft_laws, "draft_laws", len(ids))
        self.knows_drafts |= draft is not None and not np.isnan(draft).all()
        previous = None if previous_laws is None else self._checked_rows(previous_laws, "previous_laws", len(ids))
        size = max(1, _BLOCK // self.vocab_size)
        for start in range(0, len(ids), size):
            block = slice(start, start + size)
            self._add_block(
                ids[block], rows[block], places[block], None if draft is None else draft[block],
                None if previous is None else previous[block], rng,
            )  # fmt: skip

    @property
    def log_e(self) -> float:
        """Log e-value of everything together; inf once an impossible token was emitted."""
        return float(np.inf) if self.num_impossible else self.log_e_of_possible

    @property
    def log_e_of_possible(self) -> float:
        """The same, leaving impossible tokens out: for laws whose zeros hang on rounding (top-p, top-k)."""
        per_key = [float(average_log_e(self._by_stratum(index))) for index in range(len(self.keys))]
        return float(average_log_e([float(average_log_e(per_key)), self._bets.log_e]))

    def detail(self) -> PitDetail:
        """Which key, slot and bet the evidence comes from."""
        by_key: dict[tuple[str, int | None], float] = {}
        for index, key in enumerate(self.keys):
            for stratum, log_e in enumerate(self._by_stratum(index)):
                by_key[key, None if stratum == 0 else stratum - 1] = float(log_e)
        return PitDetail(by_key=by_key, bets=self._bets.log_e, best_bet=self._bets.best())

    def detectable_tv(self, alpha: float, num_tokens: int | None = None) -> float:
        """Total variation between the bins of an order, in every token, that so many tokens show (power .99).

        num_tokens: those of this stream where nothing is said. A law may be further from the target than its bins are:
        what tokens of one bin gain from each other does not show. So this bounds no total variation of the tokens.
        """
        num_averaged = 2 * len(self.keys) * (self._counts.shape[1] + 1)
        count = self.num_tokens if num_tokens is None else num_tokens
        return detectable_tv(alpha, count, NUM_BINS, num_averaged=num_averaged)

    def detectable_text(self, tv: float, *, law: str = "target law", ratio: str = "draft / target") -> str:
        """What a detectable total variation is one of, and by which orders: to be read after "would have caught".

        law, ratio: names of the orders by the law that the tokens should follow, and by the other law over it.
        """
        names = {"target": law, "ratio": ratio if self.knows_drafts else "", "hash": "a shuffle"}
        orders = [names[key] for key in self.keys if names[key]]
        return f"total variation {tv:.3g} between {NUM_BINS} bins of the tokens, ordered by {_listed(orders)}"

    def certified_tv(self, alpha: float) -> float:
        """Largest average total variation per token that the data prove, at confidence 1 - alpha; 0 if none."""
        return self._certified.certified_tv(alpha)

    @property
    def observed_tv(self) -> float:
        """The largest average distance that any projection shows: an estimate, which luck inflates."""
        return self._certified.observed_tv

    def log_e_within(self, tolerance: float) -> float:
        """Log e-value against "every law lies within this total variation of the reference"."""
        return self._certified.log_e(tolerance)

    def _by_stratum(self, key_index: int) -> NDArray[np.float64]:
        """Log e-values of one key: all slots in one histogram, then each slot alone, [1 + slots]."""
        counts = self._counts[key_index]
        pooled = np.concatenate([counts.sum(axis=0, keepdims=True), counts])
        flat = np.full_like(pooled, 1.0 / NUM_BINS)
        return average_log_e(log_e_by_scale(flat, pooled), axis=1)

    def _add_block(
        self,
        ids: NDArray[np.int64],
        laws: NDArray[np.float64],
        slots: NDArray[np.int64],
        draft: NDArray[np.float64] | None,
        previous: NDArray[np.float64] | None,
        rng: np.random.Generator,
    ) -> None:
        randoms = rng.random((len(self.keys), len(ids)))
        laws = laws / laws.sum(axis=1, keepdims=True)
        own = laws[np.arange(len(ids)), ids]
        is_possible = own > 0.0
        self.num_tokens += len(ids)
        self.num_impossible += int((~is_possible).sum())
        self._certified.add_impossible(int((~is_possible).sum()), len(ids))
        for index, key in enumerate(self.keys):
            order = self._order(key, laws, draft)
            uniforms = _mass_before(laws, order, ids) + randoms[index] * own
            used = uniforms[is_possible]
            bins = np.clip((used * NUM_BINS).astype(np.int64), 0, NUM_BINS - 1)
            np.add.at(self._counts[index], (slots[is_possible], bins), 1.0)
            self._certified.update(uniforms, stream=index)
        self._certified.add_scores(*token_scores(laws, draft, ids))
        rows = direction_rows(laws, draft, previous)
        at_token = rows[:, np.arange(len(ids)), ids]  # [directions, n]
        for slot in np.unique(slots[is_possible]):
            chosen = is_possible & (slots == slot)
            bets = log_bets(at_token[:, chosen], np.broadcast_to(own[chosen], (len(rows), int(chosen.sum()))))
            self._bets.add(int(slot), bets, np.ones(int(chosen.sum())))

    def _order(self, key: str, laws: NDArray[np.float64], draft: NDArray[np.float64] | None) -> NDArray[np.float64]:
        """What tokens are sorted by, ascending, [n, vocab]; ties go by token id."""
        if key == "target" or (key == "ratio" and draft is None):
            return -laws
        if key == "hash":
            return np.broadcast_to(self._shuffle, laws.shape)
        assert draft is not None
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = draft / laws  # ascending draft / target is descending target / draft
        return np.where(np.isnan(draft), -laws, np.where(laws > 0.0, ratio, np.inf))

    def _checked(
        self, tokens: ArrayLike, laws: ArrayLike, slots: ArrayLike | None
    ) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
        ids = np.asarray(tokens, dtype=np.int64)
        rows = self._checked_rows(laws, "laws", len(ids))
        places = np.zeros(len(ids), dtype=np.int64) if slots is None else np.asarray(slots, dtype=np.int64)
        num_slots = self._counts.shape[1]
        if places.shape != ids.shape or ((places < 0) | (places >= num_slots)).any():
            raise UsageError(f"slots must hold one number from 0 to {num_slots - 1} for each of {len(ids)} tokens")
        is_outside = (ids < 0) | (ids >= self.vocab_size)
        if is_outside.any():
            raise UsageError(f"token {ids[is_outside][0]} is outside the vocabulary of {self.vocab_size}; "
                             "count it as impossible before the stream")  # fmt: skip
        if np.isnan(rows).any() or (rows < 0.0).any() or (np.abs(rows.sum(axis=1) - 1.0) > 1e-2).any():
            raise UsageError("laws must hold one probability law for each token, each row summing to 1")
        return ids, rows, places

    def _checked_rows(self, rows: ArrayLike, name: str, count: int) -> NDArray[np.float64]:
        values = np.asarray(rows, dtype=np.float64)
        if values.shape != (count, self.vocab_size):
            raise UsageError(
                f"{name} has shape {values.shape}; give {(count, self.vocab_size)}: one row for each token"
            )
        return values


def _listed(names: Sequence[str]) -> str:
    return " or ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _mass_before(laws: NDArray[np.float64], order: NDArray[np.float64], ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """Mass of the tokens that sort before the given one, [n]."""
    own = np.take_along_axis(order, ids[:, None], axis=1)
    is_tied_before = (order == own) & (np.arange(laws.shape[1]) < ids[:, None])
    before: NDArray[np.float64] = np.where((order < own) | is_tied_before, laws, 0.0).sum(axis=1)
    return before
