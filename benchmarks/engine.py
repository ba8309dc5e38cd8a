"""Speed of the reference engine beside transformers and beside the memory floor, as ratios of paired runs.

Run: python benchmarks/engine.py [--threads 2] [--rounds 5] [--only probe|tiny|smollm2]; all cores unless said

The two sides of a ratio run in turn in this process, on the same checkpoints, prompts, lengths and draft lengths. Shown
are the medians over rounds of the ratio of times, once by the clock and once by CPU seconds, which a busy machine
disturbs less. Decoding times are those of many tokens less those of one: prompt and setting up are left out.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch

from specverify.adapters.reference import reference_engine
from specverify.adapters.smollm2 import smollm2_paths
from specverify.core.types import Request, SamplingParams
from specverify.families.family import tiny_family
from specverify.reference.model import Model
from specverify.reference.statistics import run_statistics
from specverify.reference.subject import ReferenceSubject

GREEDY = SamplingParams(temperature=0.0)
NUM_DRAFT_TOKENS = 3
LOOKUP_DRAFT_TOKENS = 3
SMALL_TOKENS, SMOLLM2_TOKENS, LOOKUP_TOKENS = 24, 17, 64
MOST_PROMPT_TOKENS = 64
NUM_REQUESTS, NUM_TRANSFORMERS_REQUESTS = 1000, 10
# At batch 1, so many requests one after another: the first finds the caches full of what the other side left there.
NUM_IN_TURN = 4
CODE = """def area_of_rectangle(width, height):
    if width < 0 or height < 0:
        raise ValueError("width and height must not be negative")
    area = width * height
    print("The area of the rectangle is", area)
    return area
"""
EDIT = f"{CODE}\n\n# The same function, without the print:\n{CODE[:80]}"


@dataclass(frozen=True)
class Seconds:
    """What something took, by the clock and by the CPU."""

    wall: float
    cpu: float

    def __sub__(self, other: Seconds) -> Seconds:
        return Seconds(self.wall - other.wall, self.cpu - other.cpu)

    def __mul__(self, factor: float) -> Seconds:
        return Seconds(self.wall * factor, self.cpu * factor)


def timed(function: Callable[[], object]) -> Seconds:
    wall, cpu = time.perf_counter(), time.process_time()
    function()
    return Seconds(time.perf_counter() - wall, time.process_time() - cpu)


def compare(name: str, wanted: float, rounds: int, ours: Callable[[], Seconds], theirs: Callable[[], Seconds]) -> None:
    """Prints how many times as fast ours is as theirs: medians over rounds, each round one run of both."""
    ours(), theirs()
    pairs = [(ours(), theirs()) for _ in range(rounds)]
    wall = float(np.median([their.wall / our.wall for our, their in pairs]))
    cpu = float(np.median([their.cpu / our.cpu for our, their in pairs]))
    own = float(np.median([our.cpu for our, _ in pairs]))
    other = float(np.median([their.cpu for _, their in pairs]))
    print(f"  {name:58} {wall:7.2f} {cpu:7.2f}   {wanted:6.2f}   {own * 1e3:10.2f} {other * 1e3:10.2f}", flush=True)


def decoding(engine: ReferenceSubject, prompt: tuple[int, ...], num_tokens: int, *, speculate: bool) -> Seconds:
    """Of num_tokens greedy tokens behind the first, per token."""
    long, short = (Request(prompt, length, GREEDY) for length in (num_tokens + 1, 1))
    rest = timed(lambda: engine.generate([long], speculate=speculate))
    return (rest - timed(lambda: engine.generate([short], speculate=speculate))) * (1 / num_tokens)


def transformers_decoding(model: Any, prompt: tuple[int, ...], num_tokens: int, **options: Any) -> Seconds:
    """The same with transformers."""

    def generate(length: int) -> object:
        ids = torch.tensor([prompt])
        return model.generate(ids, max_new_tokens=length, do_sample=False, eos_token_id=None, **options)

    return (timed(lambda: generate(num_tokens + 1)) - timed(lambda: generate(1))) * (1 / num_tokens)


def reading(model: Model) -> Seconds:
    """Of all weight matrices, once: what a pass cannot be faster than."""
    layers = model.weights.layers
    matrices = [model.weights.head]
    matrices += [m for one in layers for m in (one.query_key_value, one.attention_out, one.gate_up, one.down)]
    return timed(lambda: [matrix.sum() for matrix in matrices])


def load_transformers(directory: Any, *, is_draft: bool = False) -> Any:
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    if is_draft:
        model.generation_config.num_assistant_tokens = NUM_DRAFT_TOKENS
        model.generation_config.num_assistant_tokens_schedule = "constant"
        model.generation_config.assistant_confidence_threshold = 0.0
    return model


def smollm2(rounds: int) -> None:
    paths = smollm2_paths()
    engine = reference_engine(model="smollm2", num_draft_tokens=NUM_DRAFT_TOKENS)
    lookup = reference_engine(model="smollm2", proposer="n-gram", num_draft_tokens=LOOKUP_DRAFT_TOKENS)
    target, draft = load_transformers(paths.target_dir), load_transformers(paths.draft_dir, is_draft=True)
    assert engine.tokenizers is None
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(paths.target_dir / "tokenizer.json"))
    prompt = tuple(tokenizer.encode("The three most useful things to know about the sea are that").ids)
    edit = tuple(tokenizer.encode(EDIT).ids)
    num = SMOLLM2_TOKENS
    print("SmolLM2-135M, float32, greedy, batch 1; per token")
    compare(
        "plain, against reading the weights once (share of the floor)", 0.8, rounds,
        lambda: decoding(engine, prompt, num, speculate=False), lambda: reading(engine.target),
    )  # fmt: skip
    compare(
        "plain, against transformers", 1.0, rounds,
        lambda: decoding(engine, prompt, num, speculate=False),
        lambda: transformers_decoding(target, prompt, num),
    )  # fmt: skip
    compare(
        f"assisted by the first 12 layers, k {NUM_DRAFT_TOKENS}, against transformers'", 1.3, rounds,
        lambda: decoding(engine, prompt, num, speculate=True),
        lambda: transformers_decoding(target, prompt, num, assistant_model=draft),
    )  # fmt: skip
    seen = run_statistics(lookup.generate([Request(edit, LOOKUP_TOKENS, GREEDY)], speculate=True))
    compare(
        f"lookup, k {LOOKUP_DRAFT_TOKENS}, edit ({seen.acceptance_rate:.0%} accepted), against our plain", 1.8, rounds,
        lambda: decoding(lookup, edit, LOOKUP_TOKENS, speculate=True),
        lambda: decoding(lookup, edit, LOOKUP_TOKENS, speculate=False),
    )  # fmt: skip


def small(rounds: int, name: str) -> None:
    """The probe pair or the tiny family, where overhead rules: sampled, one request, and a thousand at once."""
    options: dict[str, Any] = {"num_draft_tokens": NUM_DRAFT_TOKENS, "dtype": "float32", "num_threads": None}
    engine = reference_engine(model=name, **options).quiet()
    directories = engine.checkpoint if name == "probe" else None
    family = tiny_family()
    target = load_transformers(directories.target_dir if directories else family.target)
    draft = load_transformers(directories.draft_dir if directories else family.draft, is_draft=True)
    prompts = [prompt[:MOST_PROMPT_TOKENS] for prompt in engine.prompts or engine.checkpoint.prompts]
    many = [Request(prompts[i % len(prompts)], SMALL_TOKENS, seed=i) for i in range(NUM_REQUESTS)]

    def ours(batches: list[list[Request]], speculate: bool) -> Seconds:
        made: list[Any] = []
        seconds = timed(
            lambda: made.extend(t for batch in batches for t in engine.generate(batch, speculate=speculate))
        )
        assert all(len(trace.token_ids) == SMALL_TOKENS for trace in made)
        return seconds * (1 / len(made))

    def theirs(num_requests: int, **options: Any) -> Seconds:
        made: list[Any] = []

        def generate() -> None:
            for request in many[:num_requests]:
                torch.manual_seed(request.seed or 0)
                ids = torch.tensor([request.prompt_token_ids])
                limits = {"max_new_tokens": SMALL_TOKENS, "min_new_tokens": SMALL_TOKENS, "eos_token_id": None}
                made.append(target.generate(ids, do_sample=True, top_k=0, **limits, **options)[0, ids.shape[1] :])

        seconds = timed(generate)
        assert all(len(tokens) == SMALL_TOKENS for tokens in made)
        return seconds * (1 / num_requests)

    print(f"{name}, float32, sampled, {SMALL_TOKENS} tokens; per request")
    modes: tuple[tuple[str, bool, dict[str, Any]], ...] = (
        ("plain", False, {}), ("assisted", True, {"assistant_model": draft}),
    )  # fmt: skip
    for mode, speculate, extra in modes:
        compare(
            f"{mode}, batch 1, against transformers", 5.0, 4 * rounds,
            partial(ours, [[request] for request in many[:NUM_IN_TURN]], speculate),
            partial(theirs, NUM_IN_TURN, **extra),
        )  # fmt: skip
    for mode, speculate, extra in modes:
        compare(
            f"{mode}, {NUM_REQUESTS} seeded requests, against one at a time", 50.0, rounds,
            partial(ours, [many], speculate), partial(theirs, NUM_TRANSFORMERS_REQUESTS, **extra),
        )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=("probe", "tiny", "smollm2"))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(f"torch {torch.__version__}, {arguments.threads} threads, medians of {arguments.rounds} rounds")
    print(f"  {'times as fast':58} {'clock':>7} {'CPU':>7}   {'wanted':>6}   {'ours, ms':>10} {'other, ms':>10}")
    for name in ("probe", "tiny"):
        if arguments.only in (None, name):
            small(arguments.rounds, name)
    if arguments.only in (None, "smollm2"):
        smollm2(arguments.rounds)


if __name__ == "__main__":
    main()
