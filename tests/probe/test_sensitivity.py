"""Every planted engine fault moves the law, or what the draft model gets accepted, far more than checks detect."""

from __future__ import annotations

import numpy as np
import pytest

from specverify.laws.sampling import softmax
from specverify.probe import ProbePair, write_probe
from specverify.probe.sensitivity import (
    DRAFT_DAMAGE,
    HORIZON,
    TARGET_DAMAGE,
    Scene,
    exact,
    missing_row,
    neighbour_row,
    position_plus_one,
    rejected_row_kept,
    stale_row,
    total_variation,
)
from specverify.probe.weights import NUM_HEADS

# What the stream check promises to detect on a whole engine, and the least that a fault may do on average.
DETECTABLE_TV = 0.06
ROOM = 1.5
SEEDS = (0, 1, 4)
TEXT = np.array([1, 5, 19, 8, 8, 30, 12, 6, 25, 14, 9, 22, 17, 4, 28, 11])
SCENE = Scene(TEXT, TEXT[::-1].copy(), place=6, rejected_token_id=20)


@pytest.fixture(scope="module", params=["default", *SEEDS])
def any_pair(request: pytest.FixtureRequest, pair: ProbePair, tmp_path_factory: pytest.TempPathFactory) -> ProbePair:
    if request.param == "default":
        return pair
    return write_probe(tmp_path_factory.mktemp("seeds") / str(request.param), seed=request.param)


def test_every_target_fault_moves_the_law(any_pair: ProbePair):
    """The mean total variation over eight tokens is well above what a stream check detects."""
    sensitivity = any_pair.manifest["sensitivity"]

    for damage in TARGET_DAMAGE:
        assert sensitivity[damage.__name__.replace("_", "-")]["mean_tv"] > ROOM * DETECTABLE_TV, damage.__name__


def test_every_draft_fault_moves_the_draft_law(any_pair: ProbePair):
    """A draft model that is the target itself would be rejected this often, where never is right."""
    sensitivity = any_pair.manifest["sensitivity"]

    for damage in DRAFT_DAMAGE:
        assert sensitivity["draft-" + damage.__name__.replace("_", "-")]["mean_tv"] > 0.07, damage.__name__


def test_every_draft_fault_costs_acceptance(any_pair: ProbePair):
    """The draft model is near enough to the target that damaging it makes it worse, not just different."""
    sensitivity = any_pair.manifest["sensitivity"]

    for damage in DRAFT_DAMAGE:
        assert sensitivity["draft-" + damage.__name__.replace("_", "-")]["acceptance_drop"] > 0.005, damage.__name__


def test_acceptance_is_mid_range(any_pair: ProbePair):
    """Full accepts and rejections at every draft token are frequent, for the draft model and for early exit."""
    laws = any_pair.manifest["laws"]

    assert 0.4 < laws["draft_acceptance"] < 0.8
    assert 0.4 < laws["early_exit_acceptance"] < 0.8
    assert 0.1 < laws["lookup_acceptance"] < 0.5


def test_laws_are_neither_peaked_nor_flat(any_pair: ProbePair):
    """Half to two thirds of the entropy of a uniform law; the end token is possible and not likely."""
    laws = any_pair.manifest["laws"]

    assert 1.6 < laws["target_entropy"] < 2.4
    assert laws["largest_probability"] < 0.55
    assert 0.01 < laws["eos_probability"] < 0.08


def test_damage_is_real_on_every_single_text(pair: ProbePair):
    """No fault leaves the law alone on a text that was not chosen for it."""
    for damage in TARGET_DAMAGE:
        moved = total_variation(softmax(damage(pair.target_oracle, SCENE)), softmax(exact(pair.target_oracle, SCENE)))

        assert moved.shape == (HORIZON,)
        assert moved.max() > 0.02, damage.__name__


class CachedForward:
    """One token at a time over a cache that a test can damage: an engine written independently of the masks."""

    def __init__(self, oracle):
        self.oracle = oracle

    def run(self, steps, damage=None):
        """steps: (token id, position) each; damage(step number, layers) may edit the cache. Logits of each step."""
        layers = [([], []) for _ in range(self.oracle.shape.num_layers)]
        results = []
        for number, (token, position) in enumerate(steps):
            if damage is not None:
                damage(number, layers)
            results.append(self._step(token, position, layers))
        return np.stack(results)

    def _step(self, token, position, layers):
        weights, shape = self.oracle.weights, self.oracle.shape
        hidden = weights["model.embed_tokens.weight"][token]
        for index, (keys, values) in enumerate(layers):
            name = f"model.layers.{index}."
            normed = self._norm(hidden, weights[name + "input_layernorm.weight"])
            queries = (weights[name + "self_attn.q_proj.weight"] @ normed).reshape(NUM_HEADS, shape.head_dim)
            keys.append(self._turn(weights[name + "self_attn.k_proj.weight"] @ normed, position))
            values.append(weights[name + "self_attn.v_proj.weight"] @ normed)
            heads = []
            for query in queries:
                scores = np.stack(keys) @ self._turn(query, position) / np.sqrt(shape.head_dim)
                heads.append(softmax(scores) @ np.stack(values))
            hidden = hidden + weights[name + "self_attn.o_proj.weight"] @ np.concatenate(heads)
            normed = self._norm(hidden, weights[name + "post_attention_layernorm.weight"])
            gate = weights[name + "mlp.gate_proj.weight"] @ normed
            inner = gate / (1 + np.exp(-gate)) * (weights[name + "mlp.up_proj.weight"] @ normed)
            hidden = hidden + weights[name + "mlp.down_proj.weight"] @ inner
        return weights["lm_head.weight"] @ self._norm(hidden, weights["model.norm.weight"])

    def _norm(self, hidden, weight):
        return hidden / np.sqrt((hidden**2).mean() + self.oracle.shape.rms_norm_eps) * weight

    def _turn(self, vector, position):
        half = len(vector) // 2
        turned = (vector[:half] + 1j * vector[half:]) * np.exp(
            1j * position * self.oracle.shape.rope_theta ** -(np.arange(half) / half)
        )
        return np.concatenate([turned.real, turned.imag])


def window(logits, start):
    return logits[start : start + HORIZON]


def test_missing_row_is_what_a_cache_without_the_row_gives(pair: ProbePair):
    """The mask stands for a row deleted from the cache of every layer."""

    def damage(number, layers):
        if number == SCENE.place:
            for keys, values in layers:
                del keys[SCENE.place - 1], values[SCENE.place - 1]

    engine = CachedForward(pair.target_oracle).run(list(zip(TEXT, range(16), strict=True)), damage)

    np.testing.assert_allclose(missing_row(pair.target_oracle, SCENE), window(engine, SCENE.place), atol=1e-10)


def test_rejected_row_kept_is_what_a_cache_without_rollback_gives(pair: ProbePair):
    """The rejected token is computed and stays; positions go on from the committed tokens."""
    tokens = [*TEXT[:6], SCENE.rejected_token_id, *TEXT[6:]]
    engine = CachedForward(pair.target_oracle).run(list(zip(tokens, [*range(7), *range(6, 16)], strict=True)))

    np.testing.assert_allclose(rejected_row_kept(pair.target_oracle, SCENE), window(engine, 7), atol=1e-10)


def test_stale_row_is_what_an_unwritten_row_gives(pair: ProbePair):
    """After the final token was computed its row is overwritten with the rejected token's."""
    rejected = CachedForward(pair.target_oracle)
    kept = {}

    def remember(number, layers):
        if number == 7:
            kept.update({index: (keys[6], values[6]) for index, (keys, values) in enumerate(layers)})

    tokens = TEXT.copy()
    tokens[6] = SCENE.rejected_token_id
    rejected.run(list(zip(tokens[:8], range(8), strict=True)), remember)

    def damage(number, layers):
        if number == 7:
            for index, (keys, values) in enumerate(layers):
                keys[6], values[6] = kept[index]

    engine = CachedForward(pair.target_oracle).run(list(zip(TEXT, range(16), strict=True)), damage)

    np.testing.assert_allclose(stale_row(pair.target_oracle, SCENE), window(engine, 6), atol=1e-10)


def test_neighbour_row_is_what_a_mixed_up_batch_gives(pair: ProbePair):
    """The row before the final token is replaced by the other request's row of the same number."""
    kept = {}

    def remember(number, layers):
        if number == 6:
            kept.update({index: (keys[5], values[5]) for index, (keys, values) in enumerate(layers)})

    def damage(number, layers):
        if number == 6:
            for index, (keys, values) in enumerate(layers):
                keys[5], values[5] = kept[index]

    engine = CachedForward(pair.target_oracle)
    engine.run(list(zip(SCENE.neighbour_token_ids, range(16), strict=True)), remember)
    mixed = engine.run(list(zip(TEXT, range(16), strict=True)), damage)

    np.testing.assert_allclose(neighbour_row(pair.target_oracle, SCENE), window(mixed, 6), atol=1e-10)


def test_position_plus_one_is_what_a_skipped_position_gives(pair: ProbePair):
    """The final token and all later ones sit one further."""
    engine = CachedForward(pair.target_oracle).run(list(zip(TEXT, [*range(6), *range(7, 17)], strict=True)))

    np.testing.assert_allclose(position_plus_one(pair.target_oracle, SCENE), window(engine, 6), atol=1e-10)
