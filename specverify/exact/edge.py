"""The ends of the random range, where off-by-one tokens and NaN live.

An enumerated law treats uniforms as a continuum; real generators are discrete, and a float32 uniform is 0 once in
2^24 draws. The probe runs the program on real generators (numpy, torch and Python all use the Mersenne twister) that
were put into states whose next words are at either end, in every pattern over the first draws. Draws of 24 bits or
fewer are then 0 or the largest number below 1; float64 draws come within 2^-26 of the ends and never to them, since
what happens once in 2^53 draws happens to nobody.
"""

from __future__ import annotations

import itertools
import random
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from specverify.exact.output import normalised
from specverify.exact.program import Program, Shape, default_front_ends

if TYPE_CHECKING:
    import torch

_NUM_WORDS = 624
_NUM_PATTERNED = 256
_ALL_ONES = 0xFFFFFFFF
# Words with one bit set, which float64 draws see and narrower ones do not: numpy and Python shift the low bits out
# (float32 by 8, float64 by 5 and 6), torch masks the high ones (float32 keeps 24, float64 21 of the first of two).
_NUMPY_LOWEST = 1 << 5
_TORCH_LOWEST = 1 << 24
# How often a pattern comes before ordinary draws follow.
_REPEATS = 4
# Header of torch's CPU generator state: seed, words left, seeded, next word. Source: CPUGeneratorImplStateLegacy.
_TORCH_HEADER = struct.Struct("<QiiQ")

Judge = Callable[[Any], str]
"""Output of the program -> what is wrong with it, or an empty string."""


@dataclass(frozen=True)
class EdgeFailure:
    """What went wrong where the draws were at the ends of their range.

    pattern: successive draws, each "0", "1-" (the largest below 1; both only nearly so for float64 draws) or "1" (only
    for uniforms given as an argument); repeated as often as needed. output: what the program returned, None where it
    raised.
    """

    pattern: tuple[str, ...]
    reason: str
    output: Any = None


class EdgeSource:
    """Real generators whose next draws are at the ends of the range, in a repeating pattern.

    is_float64: uniforms handed over as an argument are float64 draws, else they have 24 bits.
    """

    def __init__(self, pattern: Sequence[str], *, is_float64: bool = True) -> None:
        self.pattern = tuple(pattern)
        self._ends = {"0": 2.0**-27, "1-": 1.0 - 2.0**-27} if is_float64 else {"0": 0.0, "1-": 1.0 - 2.0**-24}

    def choose(self, law: Sequence[float] | NDArray[np.float64]) -> int:
        """The likeliest: the ends are for the program's own draws."""
        return int(np.argmax(law))

    def numpy_generator(self) -> np.random.Generator:
        bits = np.random.MT19937(0)
        bits.state = {"bit_generator": "MT19937", "state": {"key": self._words(_NUMPY_LOWEST), "pos": 0}}
        return np.random.Generator(bits)

    def python_random(self) -> random.Random:
        generator = random.Random(0)
        generator.setstate((3, (*self._words(_NUMPY_LOWEST).tolist(), 0), None))
        return generator

    def torch_generator(self) -> torch.Generator:
        import torch

        generator = torch.Generator()
        state = bytearray(generator.get_state().numpy().tobytes())
        _TORCH_HEADER.pack_into(state, 0, 0, _NUM_WORDS, 1, 0)
        words = self._words(_TORCH_LOWEST).astype("<u8").tobytes()
        state[_TORCH_HEADER.size : _TORCH_HEADER.size + len(words)] = words
        generator.set_state(torch.frombuffer(state, dtype=torch.uint8))
        return generator

    def uniforms(self, shape: Shape) -> NDArray[np.float64]:
        values = [1.0 if end == "1" else self._ends[end] for end in self.pattern]
        return np.resize(np.array(values), shape)

    def torch_uniforms(self, shape: Shape) -> torch.Tensor:
        import torch

        return torch.from_numpy(self.uniforms(shape))

    def _words(self, lowest: int) -> NDArray[np.uint32]:
        """A block of the Mersenne twister that begins with words at the ends, two for each draw, 128 draws."""
        outputs = [lowest if end == "0" else _ALL_ONES ^ lowest for end in self.pattern for _ in range(2)]
        words = np.random.RandomState(0).randint(0, 2**32, size=_NUM_WORDS, dtype=np.uint32)
        # Ordinary words follow: samplers that try again (Gumbel at u = 0) would never end on ends alone.
        words[:_NUM_PATTERNED] = np.resize([_untempered(word) for word in outputs], _NUM_PATTERNED)
        return words


def probe_edges(
    program: Program, judge: Judge, *, num_draws: int = 4, with_one: bool = False, is_float64: bool = True
) -> tuple[EdgeFailure, ...]:
    """Runs the program on every pattern of 0 and 1- over its first draws, and says where it failed.

    judge: what is wrong with an output; see possible_tokens. with_one: the program takes uniforms as an argument, so
    1 itself can reach it (a float32 uniform cast to bfloat16 is 1 twice in a thousand draws). is_float64: see
    EdgeSource.
    """
    front_ends = default_front_ends()
    failures = []
    for pattern in _patterns(num_draws, with_one):
        try:
            output = normalised(program(EdgeSource(pattern, is_float64=is_float64)), front_ends)
        except Exception as error:
            failures.append(EdgeFailure(pattern, f"it raised {type(error).__name__}: {error}"))
            continue
        reason = judge(output)
        if reason:
            failures.append(EdgeFailure(pattern, reason, output))
    return tuple(failures)


def possible_tokens(target_probs: NDArray[Any]) -> Judge:
    """Judges an emitted tuple: every token lies in the vocabulary and is possible under its target row.

    target_probs: [k + 1, vocab], the rows along the draft, so that row i is the law of emitted token i as long as the
    tokens before it are the draft's.
    """

    def judge(output: Any) -> str:
        if not isinstance(output, tuple) or not output:
            return f"it returned {output!r} where token ids were wanted"
        for position, token in enumerate(output[: len(target_probs)]):
            if not isinstance(token, int) or not 0 <= token < target_probs.shape[1]:
                return f"token {position} is {token!r}; token ids run from 0 to {target_probs.shape[1] - 1}"
            if not target_probs[position, token] > 0.0:
                return f"token {position} is {token}, which the target law calls impossible"
        return ""

    return judge


def _patterns(num_draws: int, with_one: bool) -> Iterator[tuple[str, ...]]:
    ends = ("0", "1-", "1") if with_one else ("0", "1-")
    yield from itertools.product(ends, repeat=num_draws)


def _untempered(output: int) -> int:
    """The state word that the Mersenne twister turns into this output. Source: Matsumoto and Nishimura 1998, 2.3."""
    word = output
    word ^= word >> 18
    word ^= (word << 15) & 0xEFC60000
    partial = word
    for _ in range(4):
        partial = word ^ ((partial << 7) & 0x9D2C5680)
    word = partial
    partial = word
    for _ in range(2):
        partial = word ^ (partial >> 11)
    return partial & _ALL_ONES
