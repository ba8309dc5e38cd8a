"""By how much each planted engine fault moves the law of a probe pair, or what its draft model gets accepted.

Every fault is a choice of tokens, positions and mask for one exact forward: the damage itself, not a sample of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specverify.laws.sampling import softmax
from specverify.probe.oracle import Oracle

Array = NDArray[np.float64]

# Tokens after the damaged place at which the law is compared: about two steps of an engine.
HORIZON = 8


@dataclass(frozen=True, eq=False)
class Scene:
    """One text in which a draft token was rejected, and the text of a neighbour in the same batch.

    token_ids: [n]. place: index of the final token that took the rejected token's position.
    rejected_token_id: the draft token that was rejected there. neighbour_token_ids: [n].
    """

    token_ids: NDArray[np.int64]
    neighbour_token_ids: NDArray[np.int64]
    place: int
    rejected_token_id: int


Damage = Callable[[Oracle, Scene], Array]


def scenes(texts: NDArray[np.int64], rejected_token_ids: NDArray[np.int64]) -> list[Scene]:
    """A rejection at every place of every text that leaves HORIZON tokens behind it.

    texts: [texts, n] token ids, drawn from the target law; rejected_token_ids: the same shape, the token that a
    draft model would have proposed at that place and that is not the one in the text.
    """
    return [
        Scene(texts[index], texts[(index + 1) % len(texts)], place, int(rejected_token_ids[index, place]))
        for index in range(len(texts))
        for place in range(4, texts.shape[1] - HORIZON, 4)
    ]


def exact(oracle: Oracle, scene: Scene) -> Array:
    """Logits [HORIZON, vocab] at the final token and after, as they should be."""
    return _window(oracle.logits(scene.token_ids), scene.place)


def position_plus_one(oracle: Oracle, scene: Scene) -> Array:
    """After a rejection every token sits one position too far."""
    positions = np.arange(len(scene.token_ids))
    positions[scene.place :] += 1
    return _window(oracle.logits(scene.token_ids, positions=positions), scene.place)


def rejected_row_kept(oracle: Oracle, scene: Scene) -> Array:
    """The rejected token's row stays in the cache, in front of the final token's."""
    tokens, positions = _with_rejected(scene)
    return _window(oracle.logits(tokens, positions=positions), scene.place + 1)


def stale_row(oracle: Oracle, scene: Scene) -> Array:
    """Later tokens find the rejected token's row where the final token's should be."""
    tokens, positions = _with_rejected(scene)
    mask = np.tri(len(tokens), dtype=bool)
    mask[scene.place + 1, scene.place] = False  # the final token itself is computed correctly
    mask[scene.place + 2 :, scene.place + 1] = False
    return _window(oracle.logits(tokens, positions=positions, mask=mask), scene.place + 1)


def missing_row(oracle: Oracle, scene: Scene) -> Array:
    """The row of the token before the final one was never written, or was dropped with the rejected ones."""
    return _without_row(oracle, scene, scene.place - 1)


def early_row_missing(oracle: Oracle, scene: Scene) -> Array:
    """A row from the middle of the prompt is missing."""
    return _without_row(oracle, scene, scene.place // 2)


def neighbour_row(oracle: Oracle, scene: Scene) -> Array:
    """The row of the token before the final one is that of another request in the batch."""
    length = len(scene.token_ids)
    tokens = np.concatenate([scene.neighbour_token_ids, scene.token_ids])
    mask = np.kron(np.eye(2, dtype=bool), np.tri(length, dtype=bool))  # each text sees itself
    own, foreign = length + scene.place - 1, scene.place - 1
    mask[length + scene.place :, own] = False
    mask[length + scene.place :, foreign] = True
    positions = np.concatenate([np.arange(length)] * 2)
    return _window(oracle.logits(tokens, positions=positions, mask=mask), length + scene.place)


def mask_sees_next(oracle: Oracle, scene: Scene) -> Array:
    """While drafts are verified, every token sees the draft token after it."""
    return _with_neighbours_seen(oracle, scene, 1, is_seen=True)


def mask_hides_previous(oracle: Oracle, scene: Scene) -> Array:
    """While drafts are verified, no token sees the draft token before it."""
    return _with_neighbours_seen(oracle, scene, -1, is_seen=False)


def _without_row(oracle: Oracle, scene: Scene, row: int) -> Array:
    mask = np.tri(len(scene.token_ids), dtype=bool)
    mask[scene.place :, row] = False
    return _window(oracle.logits(scene.token_ids, mask=mask), scene.place)


def _with_neighbours_seen(oracle: Oracle, scene: Scene, offset: int, *, is_seen: bool) -> Array:
    mask = np.tri(len(scene.token_ids), dtype=bool)
    queries = np.arange(scene.place, len(scene.token_ids) - max(0, offset))
    mask[queries, queries + offset] = is_seen
    return _window(oracle.logits(scene.token_ids, mask=mask), scene.place)


TARGET_DAMAGE: tuple[Damage, ...] = (
    position_plus_one,
    rejected_row_kept,
    stale_row,
    missing_row,
    early_row_missing,
    neighbour_row,
    mask_sees_next,
    mask_hides_previous,
)
DRAFT_DAMAGE: tuple[Damage, ...] = (position_plus_one, rejected_row_kept, stale_row, missing_row, neighbour_row)


def target_sensitivity(target: Oracle, places: Sequence[Scene]) -> dict[str, dict[str, float]]:
    """Total variation by which each fault moves the target's next-token law: mean, median and largest."""
    sound = [softmax(exact(target, scene)) for scene in places]
    result = {}
    for damage in TARGET_DAMAGE:
        _, moved = _damaged(damage, target, places, sound)
        result[_name(damage)] = {
            "mean_tv": float(moved.mean()),
            "median_tv": float(np.median(moved)),
            "max_tv": float(moved.max()),
        }
    return result


def draft_sensitivity(target: Oracle, draft: Oracle, places: Sequence[Scene]) -> dict[str, dict[str, float]]:
    """What each fault in the draft model does to acceptance, since it moves no law of the output.

    mean_acceptance: with the fault; acceptance_drop: below that of the sound draft model. mean_tv: how far the
    draft's law moves, which is the rejection rate of a draft model that is the target itself.
    """
    target_laws = [softmax(exact(target, scene)) for scene in places]
    sound = [softmax(exact(draft, scene)) for scene in places]
    healthy = _mean_acceptance(sound, target_laws)
    result = {}
    for damage in DRAFT_DAMAGE:
        broken, moved = _damaged(damage, draft, places, sound)
        acceptance = _mean_acceptance(broken, target_laws)
        result["draft-" + _name(damage)] = {
            "mean_acceptance": acceptance,
            "acceptance_drop": healthy - acceptance,
            "mean_tv": float(moved.mean()),
            "max_tv": float(moved.max()),
        }
    return result


def _damaged(
    damage: Damage, oracle: Oracle, places: Sequence[Scene], sound: Sequence[Array]
) -> tuple[list[Array], Array]:
    """The laws with the damage, and how far each is from the sound one."""
    broken = [softmax(damage(oracle, scene)) for scene in places]
    return broken, np.stack([total_variation(law, other) for law, other in zip(broken, sound, strict=True)])


def total_variation(law: Array, other: Array) -> Array:
    """Half the sum of absolute differences over the last axis."""
    result: Array = 0.5 * np.abs(law - other).sum(axis=-1)
    return result


def _name(damage: Damage) -> str:
    return damage.__name__.replace("_", "-")


def _mean_acceptance(draft_laws: Sequence[Array], target_laws: Sequence[Array]) -> float:
    return float(np.mean([np.minimum(a, b).sum(axis=-1) for a, b in zip(draft_laws, target_laws, strict=True)]))


def _with_rejected(scene: Scene) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Tokens and positions with the rejected token put before the final one, both at the same position."""
    tokens = np.insert(scene.token_ids, scene.place, scene.rejected_token_id)
    positions = np.insert(np.arange(len(scene.token_ids)), scene.place, scene.place)
    return tokens, positions


def _window(logits: Array, start: int) -> Array:
    return logits[start : start + HORIZON]
