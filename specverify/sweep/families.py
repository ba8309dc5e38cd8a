"""What can be swept: a target, what drafts for it, and prompts for each workload."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from specverify.core.errors import UsageError
from specverify.families import workloads
from specverify.reference.model import Model
from specverify.reference.quantize import quantized
from specverify.reference.subject import ReferenceSubject, reference_subject

WRITE, SUMMARISE, EDIT = "write", "summarise", "edit"
WORKLOADS = {WRITE: workloads.WRITING, SUMMARISE: workloads.SUMMARY, EDIT: workloads.EDITING}
Prompts = Sequence[tuple[int, ...]]


@dataclass(frozen=True)
class Effort:
    """How much is measured. All seconds are CPU seconds of this process.

    seconds: for the paired runs of one cell, at least min_pairs of them. num_requests: in the batched run that
    acceptance is counted on; pass_seconds: for the table of pass costs.
    """

    seconds: float
    min_pairs: int
    num_requests: int
    sample_batch: int
    pass_seconds: float


@dataclass(frozen=True, eq=False)
class Family:
    """A target with everything that is measured on it.

    drafts: draft models by name, the smallest first; usual_draft is the one where nothing else is said.
    prompts: (workload, tokens, how many) -> prompts; tokens counts for writing, other tasks have their own length.
    main: the (proposer, workload) pairs whose draft length is swept. full, quick: how much is measured.
    options: further arguments of a proposer.
    """

    name: str
    label: str
    target: Model
    drafts: Mapping[str, Model]
    usual_draft: str
    prompts: Callable[[str, int, int], Prompts]
    proposers: Sequence[str]
    main: Sequence[tuple[str, str]]
    prompt_length: int
    prompt_lengths: Sequence[int]
    output_length: int
    output_lengths: Sequence[int]
    full: Effort
    quick: Effort
    eos_token_ids: tuple[int, ...] = ()
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def subject(
        self, proposer: str, *, num_draft_tokens: int, draft: str = "", int8: str = "", growth: Any = None
    ) -> ReferenceSubject:
        """The reference engine with this proposer, without recording laws and KV rows, on one thread.

        int8: which of the models have int8 weights: "", "target", "draft" or "both".
        """
        target, drafting = self.target, self.drafts[draft or self.usual_draft]
        return reference_subject(
            target=quantized(target) if int8 in ("target", "both") else target,
            draft=quantized(drafting) if int8 in ("draft", "both") else drafting,
            proposer=proposer,
            num_draft_tokens=num_draft_tokens,
            record_probs=False,
            record_kv_rows=False,
            num_threads=1,
            growth=growth,
            **self.options.get(proposer, {}),
        )


def load_family(name: str) -> Family:
    """The family of this name. Raises UsageError for an unknown name, and where its models cannot be had."""
    if name not in _LOADERS:
        raise UsageError(f"family {name!r} is unknown; choose from {', '.join(_LOADERS)}")
    return _LOADERS[name]()


def _tiny() -> Family:
    """The trained family that ships with the package; beside its draft model its own first layers draft, too."""
    from specverify.families.family import END_TOKEN_ID, tiny_family
    from specverify.reference.loading import load_shared

    files = tiny_family()
    tokenizer = files.tokenizer()
    target = load_shared(files.target, "float32", "auto")

    @cache
    def tasks(workload: str, count: int) -> Sequence[workloads.Task]:
        return workloads.tasks(WORKLOADS[workload], count)

    def prompts(workload: str, length: int, count: int) -> Prompts:
        found = tasks(workload, count)
        if workload != WRITE:
            return [tuple(tokenizer.encode(task.prompt).ids) for task in found]
        # Before what is to be continued stands as much other code as the length asks for.
        before = [token for task in found for token in tokenizer.encode(task.prompt + task.answer).ids]
        before = before * (1 + length // len(before))
        return [tuple([*before, *tokenizer.encode(task.prompt).ids][-length:]) for task in found]

    drafts = {f"{n} of 4 layers": target.first_layers(n) for n in (1, 2, 3)}
    heads = {"heads": files.heads}
    return Family(
        name="tiny",
        label="tiny family, float32",
        target=target,
        drafts={"trained draft": load_shared(files.draft, "float32", "auto"), **drafts},
        usual_draft="trained draft",
        prompts=prompts,
        proposers=(
            "draft-model", "tree", "tree-dynamic", "eagle", "eagle-tree", "eagle-dynamic", "medusa", "medusa-tree",
            "layer-skip", "n-gram",
        ),
        main=(("draft-model", WRITE), ("eagle", WRITE), ("n-gram", EDIT)),
        prompt_length=64,
        prompt_lengths=(16, 64, 256, 768),
        output_length=64,
        output_lengths=(8, 32, 64, 128, 256),
        full=Effort(seconds=1.2, min_pairs=3, num_requests=64, sample_batch=64, pass_seconds=6.0),
        quick=Effort(seconds=0.6, min_pairs=2, num_requests=24, sample_batch=24, pass_seconds=2.0),
        eos_token_ids=(END_TOKEN_ID,),
        options=dict.fromkeys(("eagle", "eagle-tree", "eagle-dynamic", "medusa", "medusa-tree"), heads),
    )  # fmt: skip


def _probe() -> Family:
    """Random weights: quick, and of no meaning for real text. The draft is one of the target's layers short."""
    from specverify.probe import default_probe
    from specverify.reference.loading import load_shared

    pair = default_probe()

    def prompts(workload: str, length: int, count: int) -> Prompts:
        texts = pair.prompts if workload == WRITE else pair.lookup_prompts
        joined = [token for text in texts for token in text] * (1 + length // 8)
        if workload != WRITE:
            return [tuple(texts[i % len(texts)]) for i in range(count)]
        return [tuple(joined[7 * i % 60 :][:length]) for i in range(count)]

    return Family(
        name="probe",
        label="probe pair (random weights, 0.2 million)",
        target=load_shared(pair.target_dir, "float32", "auto"),
        drafts={"1 of 2 layers": load_shared(pair.draft_dir, "float32", "auto")},
        usual_draft="1 of 2 layers",
        prompts=prompts,
        proposers=("draft-model", "layer-skip", "n-gram", "tree", "tree-dynamic"),
        main=(("draft-model", WRITE), ("n-gram", EDIT)),
        prompt_length=16,
        prompt_lengths=(8, 32, 128),
        output_length=48,
        output_lengths=(16, 64, 256),
        full=Effort(seconds=3.0, min_pairs=3, num_requests=64, sample_batch=64, pass_seconds=8.0),
        quick=Effort(seconds=0.3, min_pairs=2, num_requests=16, sample_batch=16, pass_seconds=1.0),
    )


def _smollm2() -> Family:
    """SmolLM2-135M-Instruct; its draft models are its own first layers, which never learnt to speak for themselves."""
    from tokenizers import Tokenizer

    from specverify.adapters.smollm2 import DRAFT_LAYERS, EOS_TOKEN_ID, smollm2_paths
    from specverify.reference.loading import load_shared
    from specverify.sweep.texts import chat, passages

    paths = smollm2_paths()
    target = load_shared(paths.gguf_file, "float32", "auto")
    tokenizer = Tokenizer.from_file(str(paths.target_dir / "tokenizer.json"))

    def prompts(workload: str, length: int, count: int) -> Prompts:
        if workload == WRITE:
            text = tokenizer.encode("\n\n".join(passages() * (1 + length // 200))).ids
            starts = [29 * i % 400 for i in range(count)]
            return [tuple(text[start : start + length]) for start in starts]
        texts = chat(workload)
        return [tuple(tokenizer.encode(texts[i % len(texts)]).ids) for i in range(count)]

    layers = (6, DRAFT_LAYERS, 18, 24, 27)
    return Family(
        name="smollm2",
        label="SmolLM2-135M-Instruct, float32",
        target=target,
        drafts={f"{n} of 30 layers": target.first_layers(n) for n in layers},
        usual_draft="24 of 30 layers",
        prompts=prompts,
        proposers=("draft-model", "layer-skip", "n-gram"),
        options={"layer-skip": {"draft_layers": 24}},
        main=(("n-gram", EDIT), ("draft-model", WRITE)),
        prompt_length=64,
        prompt_lengths=(16, 64, 256, 1024),
        output_length=32,
        output_lengths=(8, 32, 96, 192),
        full=Effort(seconds=30.0, min_pairs=3, num_requests=16, sample_batch=16, pass_seconds=60.0),
        quick=Effort(seconds=6.0, min_pairs=2, num_requests=6, sample_batch=6, pass_seconds=15.0),
        eos_token_ids=(EOS_TOKEN_ID,),
    )


_LOADERS: Mapping[str, Callable[[], Family]] = {"tiny": _tiny, "smollm2": _smollm2, "probe": _probe}
