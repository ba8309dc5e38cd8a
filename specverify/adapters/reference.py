"""The project's own engine as a subject: one more engine under test, with everything there is to see."""

from __future__ import annotations

from typing import Any

from specverify.adapters.smollm2 import DRAFT_LAYERS, smollm2_paths
from specverify.core.errors import UsageError
from specverify.reference.loading import DTYPES, load_shared
from specverify.reference.subject import ReferenceSubject, reference_subject


def reference_engine(
    probe: Any = None,
    *,
    model: str | None = None,
    target: Any = None,
    draft: Any = None,
    proposer: str = "draft-model",
    num_draft_tokens: int = 3,
    dtype: str | None = None,
    device: str = "auto",
    **options: Any,
) -> ReferenceSubject:
    """The reference engine, ready to be judged.

    probe: a probe pair or its directory; the default pair where nothing is named. model: "smollm2" instead, with
      its own first 12 layers as the draft. target, draft: checkpoint directories or .gguf files instead.
    proposer: "draft-model", "n-gram", "self", "anti", "alternating" or "sometimes-empty".
    dtype: float64 for a probe pair and float32 otherwise, unless given. options: fields of ReferenceSubject.
    """
    if model is not None:
        if model != "smollm2" or probe is not None or target is not None:
            raise UsageError(f"model {model!r} is unknown or not the only one named; give model='smollm2' by itself")
        return _smollm2(proposer=proposer, num_draft_tokens=num_draft_tokens, dtype=dtype, device=device, **options)
    return reference_subject(
        probe,
        target=target,
        draft=draft,
        proposer=proposer,
        num_draft_tokens=num_draft_tokens,
        dtype=dtype or ("float64" if target is None else "float32"),
        device=device,
        **options,
    )


def _smollm2(*, dtype: str | None, device: str, **options: Any) -> ReferenceSubject:
    if dtype is not None and dtype not in DTYPES:
        raise UsageError(f"dtype {dtype!r} is unknown; choose from {', '.join(DTYPES)}")
    target = load_shared(smollm2_paths().gguf_file, dtype or "float32", device)
    defaults = {
        "name": "reference smollm2",
        "record_probs": False,
        "record_kv_rows": False,
        "max_new_tokens": 16,
        "batch_size": 16,
    }
    return reference_subject(target=target, draft=target.first_layers(DRAFT_LAYERS), **{**defaults, **options})
