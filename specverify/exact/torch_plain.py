"""Calls that need no watching: compiled functions that draw nothing, given tensors that hold nothing symbolic."""

from __future__ import annotations

from types import BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType
from typing import Any

import torch

_COMPILED = (BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType)
_ORDINARY = (torch.Tensor, torch.nn.Parameter)

# Each of these runs torch operations that draw no random number, whatever its arguments. With their in-place forms.
_NAMES = """
__getitem__ __setitem__ __and__ __or__ __xor__ __invert__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__
add sub mul div true_divide floor_divide remainder neg abs sign pow sqrt rsqrt square reciprocal exp exp2 log log2 log10
log1p expm1 sigmoid tanh relu silu gelu sin cos clamp clamp_min clamp_max minimum maximum floor ceil round
eq ne lt le gt ge logical_and logical_or logical_not bitwise_and bitwise_or bitwise_not isin where masked_fill
sum mean prod cumsum cumprod max min amax amin argmax argmin any all topk sort argsort count_nonzero nonzero norm
matmul mm bmm linear addmm baddbmm softmax log_softmax logsumexp layer_norm rms_norm embedding outer
cat concat stack hstack vstack gather scatter index_select index_fill index_copy index_put take_along_dim masked_select
squeeze unsqueeze view reshape expand expand_as view_as permute transpose t flatten unflatten narrow select split chunk
unbind movedim flip roll repeat repeat_interleave clone contiguous detach to type_as long int float double bool half
bfloat16 copy_ fill_ zero_ tril triu searchsorted bucketize from_numpy arange zeros ones full empty zeros_like ones_like
full_like empty_like new_zeros new_ones new_full new_empty numel dim size stride element_size is_contiguous one_hot
""".split()  # noqa: SIM905


def _functions() -> frozenset[Any]:
    owners = (torch, torch.Tensor, torch._C._nn)
    found = (getattr(owner, spelt, None) for name in _NAMES for spelt in (name, f"{name}_") for owner in owners)
    return frozenset(function for function in found if isinstance(function, _COMPILED))


PLAIN_CALLS = _functions()
"""Functions as a function mode is handed them."""


def is_plain(values: Any, shadows: Any) -> bool:
    """Whether no argument is a tensor whose storage has a mirror, nor of a type with a dispatch of its own."""
    for value in values:
        kind = type(value)
        if kind in _ORDINARY:
            if not value.is_sparse and value.layout is torch.strided and value.untyped_storage()._cdata in shadows:
                return False
        elif kind is tuple or kind is list:
            if not is_plain(value, shadows):
                return False
        elif isinstance(value, torch.Tensor):
            return False
    return True
