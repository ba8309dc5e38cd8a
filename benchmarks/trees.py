"""Tree against chain at equal draft cost: expected tokens per target pass in closed form, beside what the engine does.

Run: python benchmarks/trees.py [--requests 4000]

Each request is one prompt of the probe pair; its first token comes from prefill and its next ones from one step, which
is all that is counted. The closed form averages over the first token by the target's own law, so nothing in it is
sampled. Sampling keeps the 6 likeliest tokens: that bounds the closed form's cost, not the engine's.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np

from specverify.core.types import Request, SamplingParams
from specverify.laws.multi import Children, expected_tokens
from specverify.probe import ProbePair, default_probe
from specverify.reference.proposers import FixedTree
from specverify.reference.subject import reference_subject
from specverify.reference.tree import Topology

SAMPLING = SamplingParams(top_k=6)


@dataclass(frozen=True)
class Drafter:
    """One way to draft. passes: of the draft model per step; tokens: drafted per step."""

    name: str
    shape: Topology
    children: Children | None  # None: the chain proposer

    @property
    def passes(self) -> int:
        return self.shape.depth

    @property
    def tokens(self) -> int:
        return self.shape.num_nodes


def chain(length: int) -> Drafter:
    return Drafter(f"chain of {length}", Topology.from_branching((1,) * length), None)


def tree(*branching: int, children: Children) -> Drafter:
    return Drafter(f"tree {'-'.join(map(str, branching))}, {children.name.lower().replace('_', ' ')}",
                   Topology.from_branching(branching), children)  # fmt: skip


DRAFTERS = (
    chain(2),
    tree(2, 2, children=Children.DRAWN),
    tree(2, 2, children=Children.DRAWN_WITH_REPLACEMENT),
    tree(2, 2, children=Children.LIKELIEST),
    chain(3),
    tree(2, 2, 1, children=Children.DRAWN),
    tree(3, 2, 1, children=Children.DRAWN),
    tree(2, 2, 1, children=Children.DRAWN_WITH_REPLACEMENT),
    tree(2, 2, 1, children=Children.LIKELIEST),
    tree(3, 2, 1, children=Children.LIKELIEST),
)


def theory(drafter: Drafter, pair: ProbePair) -> float:
    """Expected tokens of the first step, over the prompts and the first token."""
    values = []
    for prompt in pair.prompts:
        draft = pair.draft_oracle.conditional(prompt, SAMPLING)
        target = pair.target_oracle.conditional(prompt, SAMPLING)
        first = target(())
        children = drafter.children or Children.DRAWN
        values.append(
            sum(
                first[token] * expected_tokens(drafter.shape.parents, draft, target, children, prefix=(int(token),))
                for token in np.flatnonzero(first)
            )
        )
    return float(np.mean(values))


def measured(drafter: Drafter, pair: ProbePair, num_requests: int) -> tuple[float, float]:
    """(tokens per step, standard error) of the first step."""
    depth = drafter.shape.depth
    options: dict[str, object] = {"proposer": "draft-model"}
    if drafter.children is not None:
        growth = FixedTree(
            drafter.shape,
            is_drawn=drafter.children is not Children.LIKELIEST,
            with_replacement=drafter.children is Children.DRAWN_WITH_REPLACEMENT,
        )
        options = {"proposer": "tree", "growth": growth}
    engine = reference_subject(pair, num_draft_tokens=depth, **options).quiet()  # type: ignore[arg-type]
    requests = [
        Request(pair.prompts[index % len(pair.prompts)], depth + 2, SAMPLING, seed=index)
        for index in range(num_requests)
    ]
    counts = [len(trace.steps[0].token_ids) for trace in engine.generate(requests, speculate=True)]
    return float(np.mean(counts)), float(np.std(counts) / np.sqrt(len(counts)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=4000)
    num_requests = parser.parse_args().requests
    pair = default_probe()
    print(f"probe pair, top-k {SAMPLING.top_k}, {num_requests} steps each; tokens per target pass")
    print(f"{'drafter':40} {'draft passes':>12} {'drafted':>8} {'theory':>8} {'measured':>9} {'+-':>6} {'off by':>7}")
    for drafter in DRAFTERS:
        wanted = theory(drafter, pair)
        got, error = measured(drafter, pair, num_requests)
        print(
            f"{drafter.name:40} {drafter.passes:12} {drafter.tokens:8} {wanted:8.3f} {got:9.3f} {error:6.3f} "
            f"{got / wanted - 1:7.1%}",
            flush=True,
        )


if __name__ == "__main__":
    main()
