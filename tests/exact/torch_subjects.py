"""Verify functions as third parties write them in torch: one per style of drawing randomness. All are lossless."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Verify = Callable[[Tensor, Tensor, Tensor, "torch.Generator | None"], Tensor]


def _at_draft(draft: Tensor, probs: Tensor) -> Tensor:
    return probs[: len(draft)].gather(1, draft[:, None]).squeeze(1)


def _residual_row(draft_probs: Tensor, target_probs: Tensor, num_accepted: int) -> Tensor:
    if num_accepted == len(draft_probs):
        return target_probs[num_accepted].clone()
    return (target_probs[num_accepted] - draft_probs[num_accepted]).clamp_(min=0)


def ratio_and_multinomial(draft: Tensor, draft_probs: Tensor, target_probs: Tensor, generator=None) -> Tensor:
    ratio = _at_draft(draft, target_probs) / _at_draft(draft, draft_probs)
    uniforms = torch.rand(len(draft), dtype=target_probs.dtype, generator=generator)
    accepted = uniforms < torch.clamp(ratio, max=1.0)
    n = int(accepted.long().cumprod(0).sum())
    weights = _residual_row(draft_probs, target_probs, n)
    return torch.cat([draft[:n], torch.multinomial(weights / weights.sum(), 1, generator=generator)])


def race_over_all_rows(draft: Tensor, draft_probs: Tensor, target_probs: Tensor, generator=None) -> Tensor:
    noise = torch.empty_like(target_probs)
    noise.exponential_(generator=generator)
    uniforms = torch.rand(len(draft), dtype=torch.float64, generator=generator)
    k = len(draft)
    gain = torch.where(target_probs[:k] > draft_probs, target_probs[:k] - draft_probs, torch.zeros_like(draft_probs))
    recovered = (torch.cat([gain, target_probs[k:]]) / noise).argmax(dim=-1)
    at_draft = _at_draft(draft, draft_probs)
    accepted = (at_draft > 0) & (_at_draft(draft, target_probs) / at_draft >= uniforms)
    n = int(accepted.long().cumprod(0).sum())
    return torch.cat([draft[:n], recovered[n : n + 1]])


def race_in_place(draft: Tensor, draft_probs: Tensor, target_probs: Tensor, generator=None) -> Tensor:
    wanted = _at_draft(draft, target_probs)
    uniforms = torch.empty_like(wanted).uniform_(generator=generator)
    accepted = uniforms * _at_draft(draft, draft_probs) <= wanted
    n = len(draft) if bool(accepted.all()) else int((~accepted).long().argmax())
    weights = _residual_row(draft_probs, target_probs, n)
    noise = torch.empty_like(weights).exponential_(1, generator=generator)
    return torch.cat([draft[:n], weights.div_(noise).argmax(dim=-1, keepdim=True)])


def log_ratio_and_searchsorted(draft: Tensor, draft_probs: Tensor, target_probs: Tensor, generator=None) -> Tensor:
    k = len(draft)
    uniforms = torch.rand(k + 1, dtype=target_probs.dtype, generator=generator)
    log_ratio = torch.log(_at_draft(draft, target_probs)) - torch.log(_at_draft(draft, draft_probs))
    n = int((torch.log(uniforms[:k]) <= log_ratio).long().cumprod(0).sum())
    weights = _residual_row(draft_probs, target_probs, n)
    cdf = (weights / weights.sum()).cumsum(0)
    final = torch.searchsorted(cdf, uniforms[k:], right=True).clamp(max=target_probs.shape[1] - 1)
    return torch.cat([draft[:n], final])


def inverse_cdf_by_argmax(draft: Tensor, draft_probs: Tensor, target_probs: Tensor, generator=None) -> Tensor:
    ratio = _at_draft(draft, target_probs) / _at_draft(draft, draft_probs)
    accepted = torch.rand_like(ratio) <= torch.minimum(ratio, torch.ones_like(ratio))
    n = int((accepted.cumprod(0) == 1).sum())
    cdf = _residual_row(draft_probs, target_probs, n).cumsum(0)
    uniform = torch.rand(1, dtype=cdf.dtype, generator=generator) * cdf[-1]
    return torch.cat([draft[:n], (cdf > uniform).int().argmax(-1, keepdim=True)])


def inverse_cdf_by_sum(draft: Tensor, draft_probs: Tensor, target_probs: Tensor, generator=None) -> Tensor:
    uniforms = torch.rand(len(draft), 2, dtype=torch.float64, generator=generator)
    accepted = uniforms[:, 0] < _at_draft(draft, target_probs) / _at_draft(draft, draft_probs)
    n = int(torch.cat([~accepted, torch.ones(1, dtype=torch.bool)]).float().argmax())
    weights = _residual_row(draft_probs, target_probs, n)
    cdf = weights.cumsum(0) / weights.sum()
    uniform = uniforms[n, 1] if n < len(draft) else torch.rand((), dtype=torch.float64, generator=generator)
    final = (cdf <= uniform).sum().clamp(max=len(cdf) - 1)
    return torch.cat([draft[:n], final.view(1)])


def gumbel_from_guarded_uniforms(draft: Tensor, draft_probs: Tensor, target_probs: Tensor, generator=None) -> Tensor:
    n = 0
    ratios = _at_draft(draft, target_probs) / _at_draft(draft, draft_probs)
    for ratio, uniform in zip(ratios.tolist(), torch.rand(len(draft), generator=generator).tolist(), strict=True):
        if uniform >= ratio:
            break
        n += 1
    weights = _residual_row(draft_probs, target_probs, n)
    uniforms = torch.rand(weights.shape, dtype=weights.dtype, generator=generator).clamp_(min=1e-20)
    gumbel = -torch.log(-torch.log(uniforms))
    return torch.cat([draft[:n], (torch.log(weights) + gumbel).argmax().view(1)])


def gumbel_from_exponentials(draft: Tensor, draft_probs: Tensor, target_probs: Tensor, generator=None) -> Tensor:
    ratio = _at_draft(draft, target_probs).div(_at_draft(draft, draft_probs)).clamp_max(1)
    keep = torch.bernoulli(ratio, generator=generator)
    n = int(keep.cumprod(0).sum().item())
    logits = _residual_row(draft_probs, target_probs, n).log()
    gumbel = -torch.empty_like(logits).exponential_(generator=generator).log()
    return torch.cat([draft[:n], torch.max(logits + gumbel, dim=0, keepdim=True).indices])


def one_draw_at_a_time(draft: Tensor, draft_probs: Tensor, target_probs: Tensor, generator=None) -> Tensor:
    emitted = []
    for i, token in enumerate(draft.tolist()):
        if torch.rand(1, generator=generator).item() < target_probs[i, token] / draft_probs[i, token]:
            emitted.append(token)
            continue
        weights = torch.relu(target_probs[i] - draft_probs[i])
        emitted.append(torch.multinomial(weights, 1, generator=generator).item())
        return torch.tensor(emitted)
    return torch.tensor([*emitted, int(torch.multinomial(target_probs[-1], 1, generator=generator))])


def rejections_counted_by_cumsum(draft: Tensor, draft_probs: Tensor, target_probs: Tensor, generator=None) -> Tensor:
    ratio = _at_draft(draft, target_probs) / _at_draft(draft, draft_probs)
    uniforms = torch.rand(ratio.shape, dtype=ratio.dtype, generator=generator)
    n = ((~(uniforms <= ratio)).cumsum(dim=-1) < 1).sum()
    row = target_probs[n]
    if n < len(draft):
        row = torch.clamp(row - draft_probs[n], min=0)
        row.div_(row.sum())
    final = torch.multinomial(row, num_samples=1, generator=generator)
    return torch.cat((draft[:n], final)) if n > 0 else final


def first_rejection_by_nonzero(draft: Tensor, draft_probs: Tensor, target_probs: Tensor, generator=None) -> Tensor:
    uniforms = torch.rand(len(draft), generator=generator)
    rejected = (~(uniforms < _at_draft(draft, target_probs) / _at_draft(draft, draft_probs))).nonzero()
    n = rejected[0].item() if rejected.numel() > 0 else len(draft)
    weights = _residual_row(draft_probs, target_probs, n)
    return torch.cat([draft[:n], torch.multinomial(weights / weights.sum(), 1, generator=generator)])


def padded_and_gathered(draft: Tensor, draft_probs: Tensor, target_probs: Tensor, generator=None) -> Tensor:
    """Every row drawn, then picked by index; output padded with -1, as batched kernels do."""
    k = len(draft)
    ratio = _at_draft(draft, target_probs) / _at_draft(draft, draft_probs)
    accepted = torch.rand(k, dtype=ratio.dtype, generator=generator) < ratio
    n = accepted.to(torch.int32).cumprod(-1).sum(-1)
    weights = torch.cat([(target_probs[:k] - draft_probs).clamp(min=0), target_probs[k:]])
    weights = torch.where(weights.sum(-1, keepdim=True) > 0, weights, target_probs)
    drawn = torch.multinomial(weights, 1, generator=generator).squeeze(-1)
    positions = torch.arange(k + 1)
    padded = torch.cat([draft, draft.new_full((1,), -1)])
    output = torch.where(positions < n, padded, torch.full_like(padded, -1))
    output.scatter_(0, n.long().view(1), drawn.gather(0, n.long().view(1)))
    return output


def distribution_objects(draft: Tensor, draft_probs: Tensor, target_probs: Tensor, generator=None) -> Tensor:
    del generator  # torch.distributions knows only the global generator
    ratio = _at_draft(draft, target_probs) / _at_draft(draft, draft_probs)
    coins = torch.distributions.Uniform(torch.zeros_like(ratio), torch.ones_like(ratio)).sample()
    n = int((coins < ratio).long().cumprod(0).sum())
    weights = _residual_row(draft_probs, target_probs, n)
    return torch.cat([draft[:n], torch.distributions.Categorical(probs=weights).sample().view(1)])


STYLES: dict[str, Verify] = {
    function.__name__: function
    for function in (
        ratio_and_multinomial,
        race_over_all_rows,
        race_in_place,
        log_ratio_and_searchsorted,
        inverse_cdf_by_argmax,
        inverse_cdf_by_sum,
        gumbel_from_guarded_uniforms,
        gumbel_from_exponentials,
        one_draw_at_a_time,
        rejections_counted_by_cumsum,
        first_rejection_by_nonzero,
        padded_and_gathered,
        distribution_objects,
    )
}


def verify_batch(draft: Tensor, draft_probs: Tensor, target_probs: Tensor, generator=None) -> Tensor:
    """The same rule for a batch: [B, k], [B, k, V] and [B, k + 1, V] give [B, k + 1], padded with -1."""
    batch, k = draft.shape
    rows = torch.arange(batch)
    at_target = target_probs[:, :k].gather(2, draft[..., None]).squeeze(2)
    at_draft = draft_probs.gather(2, draft[..., None]).squeeze(2)
    accepted = torch.rand(batch, k, dtype=at_draft.dtype, generator=generator) * at_draft < at_target
    n = accepted.long().cumprod(1).sum(1)
    padded = torch.cat([draft_probs, draft_probs.new_zeros(batch, 1, draft_probs.shape[-1])], 1)
    weights = (target_probs[rows, n] - padded[rows, n]).clamp_min(0)
    final = torch.multinomial(weights / weights.sum(-1, keepdim=True), 1, generator=generator)[:, 0]
    output = torch.full((batch, k + 1), -1)
    for column in range(k):
        output[:, column] = torch.where(n > column, draft[:, column], -1)
    output[rows, n] = final
    return output
