"""What a person wants to know of a probe pair, as rows ready for printing."""

from __future__ import annotations

from specverify.probe.pair import ProbePair

Rows = list[tuple[str, str]]


def summary(pair: ProbePair) -> dict[str, Rows]:
    """Sections to rows of (label, value): files, laws, sensitivity."""
    manifest = pair.manifest
    laws = manifest["laws"]
    return {
        "files": [(name, f"{entry['bytes']:,} bytes") for name, entry in manifest["files"].items()],
        "laws": [
            ("vocabulary", f"{pair.vocab_size} tokens, end token {pair.eos_token_id}"),
            ("target entropy", f"{laws['target_entropy']:.2f} nats (uniform: 3.47)"),
            ("draft acceptance", f"{laws['draft_acceptance']:.3f}"),
            ("early-exit acceptance", f"{laws['early_exit_acceptance']:.3f}"),
            ("prompt-lookup acceptance", f"{laws['lookup_acceptance']:.3f}"),
        ],
        "sensitivity": [(name, _effect(figures)) for name, figures in manifest["sensitivity"].items()],
    }


def _effect(figures: dict[str, float]) -> str:
    if "acceptance_drop" in figures:
        return (
            f"moves the draft law by {figures['mean_tv']:.3f} on average (at most {figures['max_tv']:.3f}), "
            f"acceptance falls by {figures['acceptance_drop']:.3f}"
        )
    return f"moves the law by {figures['mean_tv']:.3f} on average (at most {figures['max_tv']:.3f})"
