"""The project's own engine as a subject: one more engine under test, with everything there is to see."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from specverify.adapters.smollm2 import DRAFT_LAYERS, smollm2_paths
from specverify.core.errors import UsageError
from specverify.core.scenario import default_scenarios
from specverify.families.family import END_TOKEN_ID, tiny_family
from specverify.families.workloads import EDITING
from specverify.reference.loading import DTYPES, load_shared
from specverify.reference.subject import ReferenceSubject, reference_subject


def reference_engine(
    probe: Any = None,
    *,
    model: str | None = None,
    target: Any = None,
    draft: Any = None,
    eagle: Any = None,
    medusa: Any = None,
    proposer: str = "draft-model",
    num_draft_tokens: int = 3,
    dtype: str | None = None,
    device: str = "auto",
    **options: Any,
) -> ReferenceSubject:
    """The reference engine, ready to be judged.

    probe: a probe pair or its directory; the default pair where nothing is named. model: "probe" (that pair), "tiny"
      (the trained family that ships) or "smollm2", with its own first 12 layers as the draft. target, draft: checkpoint
      directories or .gguf files instead. eagle, medusa: folders of heads that `specverify train` wrote for the target.
    proposer: one of specverify.reference.subject.PROPOSERS.
    dtype: float64 for a probe pair and float32 otherwise, unless given. options: fields of ReferenceSubject;
      quantize="int8", or {"draft": "int8"}, for int8 weights.
    """
    heads = {kind: head for kind, head in (("eagle", eagle), ("medusa", medusa)) if head is not None}
    common = {"proposer": proposer, "num_draft_tokens": num_draft_tokens, "device": device, **options}
    if model is not None and (probe is not None or target is not None):
        other = "a probe pair" if target is None else "a target"
        raise UsageError(f"model {model!r} and {other} were both given; give one of them")
    if model not in (None, "probe"):
        if model not in _MODELS:
            raise UsageError(f"model {model!r} is unknown; choose from probe, {', '.join(_MODELS)}")
        if dtype is not None and dtype not in DTYPES:
            raise UsageError(f"dtype {dtype!r} is unknown; choose from {', '.join(DTYPES)}")
        return _MODELS[model](dtype=dtype or "float32", draft=draft, heads=heads, **common)
    return reference_subject(
        probe,
        target=target,
        draft=draft,
        heads=heads,
        dtype=dtype or ("float64" if target is None else "float32"),
        **common,
    )


def _smollm2(*, dtype: str, device: str, draft: Any, **options: Any) -> ReferenceSubject:
    target = load_shared(smollm2_paths().gguf_file, dtype, device)
    defaults = {
        "name": "reference smollm2",
        "record_probs": False,
        "record_kv_rows": False,
        "max_new_tokens": 16,
        "batch_size": 16,
        "max_batch_size": 16,
    }
    drafting = target.first_layers(DRAFT_LAYERS) if draft is None else load_shared(draft, dtype, device)
    return reference_subject(target=target, draft=drafting, **{**defaults, **options})


def _tiny(*, proposer: str, draft: Any, heads: dict[str, Any], **options: Any) -> ReferenceSubject:
    """Prompts are the editing tasks: in them even a copier finds something to draft."""
    family = tiny_family()
    prompts = family.prompts(EDITING, _NUM_PROMPTS)
    # The end token comes after the whole edit, which is more than a check asks for; a colon comes in the first line.
    ends = (END_TOKEN_ID, family.tokenizer().encode(":").ids[0])
    defaults = {
        "name": f"reference tiny {proposer}",
        "prompts": prompts,
        "own_scenarios": default_scenarios(prompts, ends),
        "num_threads": 1,
    }
    return reference_subject(
        target=family.target,
        draft=draft or family.draft,
        proposer=proposer,
        heads={**family.heads, **heads},
        **{**defaults, **options},
    )


_MODELS: Mapping[str, Callable[..., ReferenceSubject]] = {"tiny": _tiny, "smollm2": _smollm2}
_NUM_PROMPTS = 12
