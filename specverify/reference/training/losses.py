"""What is minimised: next-token entropy for a target, and the distance from the target's laws for what drafts for it.

Each of these makes a function of token ids [rows, length]. The models hold the tensors that are trained.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, pad, smooth_l1_loss

from specverify.reference.heads import EagleHead, MedusaHeads
from specverify.reference.model import Model
from specverify.reference.training.forward import SequenceCache, run
from specverify.reference.training.loop import Figures

Loss = Callable[[Tensor], tuple[Tensor, Figures]]
# Later draft tokens count less: they are only reached where the earlier ones were right. As in EAGLE-3 and Medusa.
_DECAY = 0.8


def target_loss(model: Model, *, early_exit: int, weight: float, emphasis: Callable[[Tensor], Tensor]) -> Loss:
    """Entropy of the next token, plus `weight` times that of an exit in front of layer `early_exit`.

    emphasis: from token ids, how much it counts to know each of them, [rows, length].
    Source of the exit: Elhoushi et al. 2024, LayerSkip, arXiv 2404.16710, section 4.1.
    """

    def loss(token_ids: Tensor) -> tuple[Tensor, Figures]:
        tapped = {early_exit: token_ids}
        hidden = run(model, token_ids[:, :-1], tapped=tapped)
        counts = emphasis(token_ids)[:, 1:].flatten()

        def entropy(stream: Tensor) -> Tensor:
            each = cross_entropy(model.logits(stream).flatten(0, 1), token_ids[:, 1:].flatten(), reduction="none")
            return (each * counts).sum() / counts.sum()

        last, early = entropy(hidden), entropy(model.norm(tapped[early_exit], model.weights.final_norm))
        return last + weight * early, {"nats": float(last.detach()), "exit": float(early.detach())}

    return loss


def draft_loss(draft: Model, target: Model, *, temperature: float) -> Loss:
    """Divergence of the draft's laws from the target's, both at this temperature.

    Source: Zhou et al. 2024, DistillSpec, arXiv 2310.08461, section 4: forward divergence on given text.
    """

    def loss(token_ids: Tensor) -> tuple[Tensor, Figures]:
        with torch.no_grad():
            wanted = target.logits(run(target, token_ids))
        value, agreed = divergence(draft.logits(run(draft, token_ids)), wanted, temperature)
        return value, {"agree": agreed}

    return loss


def eagle_loss(head: EagleHead, *, num_unrolled: int, temperature: float) -> Loss:
    """Divergence of the law behind each token, then of those behind num_unrolled - 1 draft tokens in a row.

    From the second on the head reads its own output, as it will when it drafts. Where the feature is the target's last
    hidden state, the head is also held to it.

    Sources: EAGLE, arXiv 2401.15077, section 4.2; unrolling: EAGLE-3, arXiv 2503.01840, section 3.1.
    """
    target = head.target

    def loss(token_ids: Tensor) -> tuple[Tensor, Figures]:
        with torch.no_grad():
            tapped = dict.fromkeys(head.taps, token_ids)
            hidden = run(target, token_ids, tapped=tapped)
            wanted = target.logits(hidden)
        taps = torch.stack([tapped[tap] for tap in head.taps], dim=2) if head.taps else None
        features = pad(head.features(hidden, taps)[:, :-1], (0, 0, 1, 0))  # token 0 reads zeros
        cache, value, figures = SequenceCache(), torch.zeros(()), {}
        for index in range(num_unrolled):
            # Place j now holds token j + index; the last places have run out of text.
            tokens, num_places = token_ids.roll(-index, 1), token_ids.shape[1] - index
            inputs = head.inputs(tokens, features)
            features = run(head, tokens, inputs=inputs, cache=cache, first_position=index)
            own, aim = features[:, :num_places], wanted[:, index:]
            apart, figures[f"agree {index + 1}"] = divergence(head.logits(own), aim, temperature)
            if not head.taps:
                apart = apart + smooth_l1_loss(own, hidden[:, index:])
            value = value + _DECAY**index * apart
        return value, figures

    return loss


def medusa_loss(heads: MedusaHeads, *, temperature: float) -> Loss:
    """Divergence of each head's laws from those that the target has once it gets there."""
    target = heads.target

    def loss(token_ids: Tensor) -> tuple[Tensor, Figures]:
        with torch.no_grad():
            hidden = run(target, token_ids)
            wanted = target.logits(hidden)
        logits = heads.logits(hidden)  # [rows, length, heads, vocab]
        value, figures = torch.zeros(()), {}
        for index in range(heads.num_heads):
            ahead = index + 1
            apart, figures[f"agree {ahead}"] = divergence(logits[:, :-ahead, index], wanted[:, ahead:], temperature)
            value = value + _DECAY**index * apart
        return value, figures

    return loss


def divergence(logits: Tensor, wanted: Tensor, temperature: float) -> tuple[Tensor, float]:
    """(mean divergence of laws from the wanted ones, share of places with the same best token); [..., vocab] each."""
    aim, law = ((scores / temperature).log_softmax(dim=-1) for scores in (wanted, logits))
    apart = (aim.exp() * (aim - law)).sum(dim=-1).mean() * temperature**2
    return apart, float((logits.argmax(dim=-1) == wanted.argmax(dim=-1)).float().mean())
