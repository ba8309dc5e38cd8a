"""Training lowers the distance to the target, repeats itself, and goes on where it was stopped."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from specverify.core.errors import UsageError
from specverify.reference.checkpoints import load_model
from specverify.reference.head_files import MANIFEST, TENSORS, load_head
from specverify.reference.heads import EagleHead
from specverify.reference.model import Model
from specverify.reference.subject import reference_subject
from specverify.reference.training.forward import SequenceCache, causal_mask, run
from specverify.reference.training.loop import Settings, Windows
from specverify.reference.training.losses import eagle_loss, medusa_loss
from specverify.reference.training.measure import acceptance, greedy_acceptance
from specverify.reference.training.run import STATE_FILE, Plan, draft_config, train_for
from specverify.reference.weights import named_tensors
from tests.reference import tiny

SETTINGS = Settings(num_steps=60, num_rows=4, length=24, learning_rate=1e-2)
KINDS = ("draft", "eagle", "medusa")
every_kind = pytest.mark.parametrize("kind", KINDS)


def target() -> Model:
    return tiny.model(dtype=torch.float32, logit_scale=3.0)


def text(target: Model) -> Tensor:
    """What the target itself writes, so that there is something to learn from little."""
    requests = [tiny_request(seed) for seed in range(30)]
    traces = reference_subject(target=target, proposer="self").generate(requests, speculate=False)
    return torch.tensor([token for trace in traces for token in trace.token_ids])


def tiny_request(seed: int):  # type: ignore[no-untyped-def]
    from specverify.core.types import Request, SamplingParams

    return Request((1 + seed % 7, 2), 60, SamplingParams(), seed=seed)


class Losses(list[float]):
    def __call__(self, step: int, num_steps: int, figures: Mapping[str, float]) -> None:
        self.append(figures["loss"])


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    """(target, text, folder and losses by kind)"""
    model, root = target(), tmp_path_factory.mktemp("trained")
    token_ids, found = text(model), {}
    for kind in KINDS:
        losses = Losses()
        made = train_for(model, Plan(kind), SETTINGS, token_ids, root / kind, on_step=losses)
        found[kind] = (root / kind, losses, made)
    return model, token_ids, found


@every_kind
def test_training_brings_the_laws_nearer(trained, kind: str) -> None:  # type: ignore[no-untyped-def]
    """The mean loss of the last steps is well below that of the first."""
    _, losses, _ = trained[2][kind]

    assert len(losses) == 60
    assert sum(losses[-10:]) < 0.8 * sum(losses[:10])


@every_kind
def test_what_was_written_is_what_was_trained(trained, kind: str) -> None:  # type: ignore[no-untyped-def]
    """Loaded from its folder it drafts the same; and nothing of the training is left behind."""
    model, _, found = trained
    folder, _, made = found[kind]

    loaded = load_model(folder) if kind == "draft" else load_head(folder, kind, model)

    before, after = (dict(named_tensors(m.weights if kind == "draft" else m.own)) for m in (made, loaded))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert not (folder / STATE_FILE).exists()


@pytest.mark.parametrize("kind", ["eagle", "medusa"])
def test_head_of_another_target_is_refused(trained, kind: str) -> None:  # type: ignore[no-untyped-def]
    """Same sizes, other weights: the message names both."""
    folder = trained[2][kind][0]

    with pytest.raises(UsageError, match=rf"trained for another target.*specverify train {kind}"):
        load_head(folder, kind, tiny.model(1, dtype=torch.float32))


def test_head_fits_its_target_in_any_type(trained) -> None:  # type: ignore[no-untyped-def]
    """float64 and bfloat16 loads of one checkpoint are one target."""
    for dtype in (torch.float64, torch.bfloat16):
        same = tiny.model(dtype=dtype, logit_scale=3.0)
        assert dtype == load_head(trained[2]["eagle"][0], "eagle", same).target.dtype


def test_damaged_head_is_refused(trained, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    model, _, found = trained
    for name in (MANIFEST, TENSORS):
        (tmp_path / name).write_bytes((found["medusa"][0] / name).read_bytes())
    with pytest.raises(UsageError, match="holds a head of kind 'medusa'"):
        load_head(tmp_path, "eagle", model)
    (tmp_path / TENSORS).write_bytes(b"x" + (tmp_path / TENSORS).read_bytes()[1:])

    with pytest.raises(UsageError, match="is not the file that"):
        load_head(tmp_path, "medusa", model)
    with pytest.raises(UsageError, match="no readable head"):
        load_head(tmp_path / "nowhere", "medusa", model)


class Stopped(Exception):
    pass


def test_stopped_training_goes_on_to_the_same_weights(trained, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """Bit for bit, from the last state kept; with other options it is refused."""
    model, token_ids, found = trained

    def stop(step: int, num_steps: int, figures: object) -> None:
        if step == 55:
            raise Stopped

    with pytest.raises(Stopped):
        train_for(model, Plan("medusa"), SETTINGS, token_ids, tmp_path, on_step=stop)
    other = replace(SETTINGS, num_steps=61)
    with pytest.raises(UsageError, match=r"another training .*num_steps 60, now 61"):
        train_for(model, Plan("medusa"), other, token_ids, tmp_path, resume=True)
    steps: list[int] = []
    made = train_for(
        model, Plan("medusa"), SETTINGS, token_ids, tmp_path, resume=True, on_step=lambda n, of, f: steps.append(n)
    )

    assert list(range(51, 61)) == steps
    assert torch.equal(found["medusa"][2].own.down, made.own.down)  # type: ignore[union-attr]


def test_nothing_to_resume_is_said(trained, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UsageError, match="start without --resume"):
        train_for(trained[0], Plan("eagle"), SETTINGS, trained[1], tmp_path, resume=True)


def test_batches_depend_on_seed_and_step_alone() -> None:
    windows = Windows(torch.arange(1000), SETTINGS)

    assert torch.equal(windows.batch(7), windows.batch(7))
    assert not torch.equal(windows.batch(7), windows.batch(8))
    with pytest.raises(UsageError, match="name more text"):
        Windows(torch.arange(30), SETTINGS).batch(0)


def test_later_blocks_see_the_text_and_their_own_place() -> None:
    """Draft token 1 of place j sees the rows of tokens 0 to j, and its own."""
    seen = (causal_mask(3, 2, like=torch.zeros(1)) == 0.0).int()[0].tolist()

    assert seen == [[1, 0, 0, 1, 0, 0], [1, 1, 0, 0, 1, 0], [1, 1, 1, 0, 0, 1]]


def test_unrolled_training_is_what_drafting_computes() -> None:
    """Place j, unrolled twice, gives the law that the head has behind text 0 to j and two tokens more."""
    from specverify.reference.heads import untrained_eagle
    from tests.reference.test_heads import unrolled

    model = tiny.model()
    head = untrained_eagle(model, taps=(0, 2))
    tokens = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])
    tapped = dict.fromkeys(head.taps, tokens)
    hidden = run(model, tokens, tapped=tapped)
    features = head.features(hidden, torch.stack(list(tapped.values()), dim=2))
    features = torch.cat([torch.zeros_like(features[:, :1]), features[:, :-1]], dim=1)
    cache, out = SequenceCache(), features
    for index in range(3):
        shifted = tokens.roll(-index, 1)
        out = run(head, shifted, inputs=head.inputs(shifted, out), cache=cache, first_position=index)

    wanted = unrolled(head, tokens[0, :4].tolist(), (5, 9, 2))[2]

    torch.testing.assert_close(torch.tensor(wanted), head.logits(out[0, 3]), rtol=0, atol=1e-11)


def test_perfect_heads_lose_nothing() -> None:
    """The loss is zero where the laws are equal: heads for a target that gives every token the same chance."""
    from specverify.reference.heads import MedusaHeads, MedusaWeights

    model = tiny.model(dtype=torch.float32).first_layers(0)
    flat = Model(model.config, replace(model.weights, head=torch.zeros_like(model.weights.head)))
    size = model.config.hidden_size
    heads = MedusaHeads(
        flat, MedusaWeights(torch.zeros(2, size, size), torch.zeros(2, size), torch.zeros(2, size, size))
    )

    assert float(medusa_loss(heads, temperature=1.0)(torch.zeros(1, 8, dtype=torch.int64))[0]) == 0.0


def test_last_state_head_is_held_to_the_last_state() -> None:
    """Without fused streams the loss has a second part, which moves with the head's output."""
    from specverify.reference.heads import untrained_eagle

    model, tokens = tiny.model(dtype=torch.float32), torch.arange(12)[None]
    for taps, has_more in ((), True), ((2,), False):
        head = untrained_eagle(model, taps=taps)
        value, figures = eagle_loss(head, num_unrolled=1, temperature=1.0)(tokens)
        assert isinstance(head, EagleHead)
        assert {"agree 1"} == set(figures)
        hidden = run(model, tokens)
        apart = float((run(head, tokens, inputs=inputs_of(head, tokens)) - hidden).abs().mean())
        assert has_more == (float(value) > divergence_of(head, tokens) + 1e-4)
        assert apart > 0.0


def inputs_of(head: EagleHead, tokens: Tensor) -> Tensor:
    tapped = dict.fromkeys(head.taps, tokens)
    hidden = run(head.target, tokens, tapped=tapped)
    taps = torch.stack(list(tapped.values()), dim=2) if head.taps else None
    features = head.features(hidden, taps)
    return head.inputs(tokens, torch.cat([torch.zeros_like(features[:, :1]), features[:, :-1]], dim=1))


def divergence_of(head: EagleHead, tokens: Tensor) -> float:
    from specverify.reference.training.losses import divergence

    wanted = head.target.logits(run(head.target, tokens))
    return float(divergence(head.logits(run(head, tokens, inputs=inputs_of(head, tokens))), wanted, 1.0)[0])


def test_draft_is_narrower_and_keeps_the_vocabulary() -> None:
    shape = draft_config(tiny.config(), num_layers=1, hidden_size=None)

    assert (shape.hidden_size, shape.num_layers, shape.head_dim, shape.num_layers, shape.vocab_size) == (8, 1, 8, 1, 16)
    with pytest.raises(UsageError, match="no multiple of the target's head size 8"):
        draft_config(tiny.config(), num_layers=1, hidden_size=20)


def test_plan_lists_what_can_be_trained() -> None:
    with pytest.raises(UsageError, match="choose from draft, eagle, medusa"):
        Plan("lookahead")


def test_acceptance_counts_what_was_judged() -> None:
    """Everything accepted is a rate of 1; where nothing is, every step judged one token."""
    prompts = [(1, 2, 3), (4, 5)]
    agreed = greedy_acceptance(reference_subject(target=tiny.model(), proposer="self"), prompts)
    refused = reference_subject(target=tiny.model(), proposer="anti")
    traces = refused.generate([tiny_request(1)], speculate=True)

    assert agreed.rate == 1.0
    assert (greedy_acceptance(refused, prompts).rate, greedy_acceptance(refused, prompts).per_step) == (0.0, 0.0)
    judged = [step for step in traces[0].steps if step.num_draft_tokens and not step.is_truncated]
    assert len(judged) == acceptance(traces).num_judged - acceptance(traces).num_accepted


def test_manifest_says_how_it_was_trained(trained) -> None:  # type: ignore[no-untyped-def]
    manifest = json.loads((trained[2]["eagle"][0] / MANIFEST).read_text(encoding="utf-8"))

    assert manifest["kind"] == "eagle"
    assert manifest["notes"]["settings"]["num_steps"] == 60
    assert manifest["target"]["vocabulary"] == 16
