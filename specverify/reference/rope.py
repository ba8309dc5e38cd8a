"""Rotary position embedding: from token positions to the rotation of queries and keys."""

from __future__ import annotations

import math
import threading

import torch
from torch import Tensor

from specverify.reference.config import RopeConfig

# Positions that a table begins with; whoever goes further reserves more.
FIRST_POSITIONS = 4096
# Engines on several threads share a model, and no table may be replaced by a shorter one.
_growing = threading.Lock()


class Rope:
    """Rotations for one head size, in a table by position. Angles are float64 whatever the model's type is.

    Source: Su et al. 2021, arXiv 2104.09864; the stretched kinds as transformers' modeling_rope_utils has them.
    """

    def __init__(self, config: RopeConfig, head_dim: int, device: torch.device) -> None:
        self.config = config
        self.head_dim = head_dim
        self.frequencies = frequencies(config, head_dim).to(device)
        self.scale = attention_scale(config)
        self._table = torch.empty(2, 0, 1, head_dim)

    def rotation(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """(cos, signed sin), each [rows, new, 1, head_dim], for positions [rows, new].

        Positions must lie within what was reserved, by default within FIRST_POSITIONS.
        """
        if self.config.rope_type == "dynamic":
            # Beyond the trained length the base follows the longest position of the pass, so rows computed in
            # other passes keep another base: see specverify.reference.limits, which refuses that region.
            longest = frequencies(self.config, self.head_dim, int(positions.max()) + 1).to(positions.device)
            cos, sin = self._rotations(positions, longest).to(dtype)
            return cos, sin
        self.reserve(FIRST_POSITIONS, dtype)
        cos, sin = self._table[:, positions].unbind()
        return cos, sin

    def reserve(self, num_positions: int, dtype: torch.dtype) -> None:
        """Makes the table reach that far."""
        if self._table.dtype == dtype and num_positions <= self._table.shape[1]:
            return
        # Not as part of inference: the table may be used in training as well.
        with _growing, torch.inference_mode(False), torch.no_grad():
            if self._table.dtype == dtype and num_positions <= self._table.shape[1]:
                return
            positions = torch.arange(max(num_positions, 2 * self._table.shape[1]), device=self.frequencies.device)
            self._table = self._rotations(positions, self.frequencies).to(dtype)

    def _rotations(self, positions: Tensor, wavenumbers: Tensor) -> Tensor:
        angles = positions[..., None, None].to(torch.float64) * wavenumbers
        cos, sin = angles.cos() * self.scale, angles.sin() * self.scale
        return torch.stack([torch.cat([cos, cos], dim=-1), torch.cat([-sin, sin], dim=-1)])


def rotate(heads: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Queries or keys [rows, new, heads, head_dim], each pair (i, i + head_dim / 2) turned by its angle."""
    cos, signed_sin = rotation
    # Rolling by half swaps the two halves; the minus of the first half sits in signed_sin.
    return torch.addcmul(heads * cos, heads.roll(heads.shape[-1] // 2, -1), signed_sin)


def frequencies(config: RopeConfig, head_dim: int, num_positions: int = 0) -> Tensor:
    """Radians per position, [head_dim / 2], float64. num_positions matters to the dynamic kind only."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim
    theta = config.theta
    if config.rope_type == "dynamic":
        ratio = max(num_positions, config.original_max_positions) / config.original_max_positions
        theta *= (config.factor * ratio - (config.factor - 1)) ** (head_dim / (head_dim - 2))
    plain = theta**-exponents
    if config.rope_type == "linear":
        return plain / config.factor
    if config.rope_type == "llama3":
        return _llama3(plain, config)
    if config.rope_type == "yarn":
        return _yarn(plain, config, head_dim)
    return plain


def attention_scale(config: RopeConfig) -> float:
    """What yarn multiplies cos and sin with; 1 for every other kind. Source: arXiv 2309.00071, section 3.4."""
    if config.rope_type != "yarn":
        return 1.0
    if config.attention_factor is not None:
        return config.attention_factor

    def scale(weight: float) -> float:
        return 1.0 if config.factor <= 1.0 else 0.1 * weight * math.log(config.factor) + 1.0

    if config.mscale and config.mscale_all_dim:
        return scale(config.mscale) / scale(config.mscale_all_dim)
    return scale(1.0)


def _llama3(plain: Tensor, config: RopeConfig) -> Tensor:
    """Long waves are stretched, short ones kept, those between blended. Source: the Llama 3.1 reference code."""
    wavelengths = 2 * math.pi / plain
    turns = config.original_max_positions / wavelengths
    kept = (turns - config.low_freq_factor) / (config.high_freq_factor - config.low_freq_factor)
    kept = kept.clamp(0.0, 1.0)
    return plain * (kept + (1 - kept) / config.factor)


def _yarn(plain: Tensor, config: RopeConfig, head_dim: int) -> Tensor:
    """Interpolation for slow pairs, extrapolation for fast ones, a ramp between. Source: arXiv 2309.00071."""

    def pair_that_turns(num_turns: float) -> float:
        turns = config.original_max_positions / (num_turns * 2 * math.pi)
        return head_dim * math.log(turns) / (2 * math.log(config.theta))

    low, high = pair_that_turns(config.beta_fast), pair_that_turns(config.beta_slow)
    if config.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    if low == high:
        high += 0.001
    stretched = ((torch.arange(head_dim // 2, dtype=torch.float64) - low) / (high - low)).clamp(0.0, 1.0)
    return plain * (1 - stretched) + plain / config.factor * stretched
