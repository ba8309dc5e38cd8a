"""A small picture for the HTML page, as inline SVG that follows the page's colours.

A bar chart of a dozen rectangles needs no plotting library at run time, and none could follow the reader's dark mode.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_WIDTH, _HEIGHT, _MAX_BARS = 560, 160, 40


def law_plot(details: Mapping[str, Any]) -> str:
    """Observed and wanted law side by side, from the details `observed` and `wanted` where both are laws."""
    observed, wanted = details.get("observed"), details.get("wanted")
    if observed is None or wanted is None or not (_is_law(observed) and _is_law(wanted)):
        return ""
    if len(observed) != len(wanted):
        return ""
    rows = list(zip(observed, wanted, strict=True))[:_MAX_BARS]
    top = max(max(float(o), float(w)) for o, w in rows) or 1.0
    slot = _WIDTH / len(rows)
    bars = "".join(
        _bar(token * slot + slot * 0.1, slot * 0.38, float(w) / top, "wanted", f"{token}: wanted {float(w):.3f}")
        + _bar(token * slot + slot * 0.5, slot * 0.38, float(o) / top, "observed", f"{token}: observed {float(o):.3f}")
        + f'<text x="{(token + 0.5) * slot:.1f}" y="{_HEIGHT + 14}" text-anchor="middle">{token}</text>'
        for token, (o, w) in enumerate(rows)
    )
    bars += '<text x="0" y="-2">grey: wanted, red: observed</text>'
    label = "observed beside wanted probability of each token"
    return f'<svg viewBox="-4 -12 {_WIDTH + 8} {_HEIGHT + 34}" role="img" aria-label="{label}">{bars}</svg>'


def _is_law(value: Any) -> bool:
    """Whether value is a list of at least two numbers; many findings have one number or a word there."""
    return isinstance(value, (list, tuple)) and len(value) > 1 and all(isinstance(x, (int, float)) for x in value)


def _bar(x: float, width: float, share: float, kind: str, title: str) -> str:
    height = max(share * _HEIGHT, 0.5)
    return (
        f'<rect class="{kind}" x="{x:.1f}" y="{_HEIGHT - height:.1f}" width="{width:.1f}" height="{height:.1f}">'
        f"<title>{title}</title></rect>"
    )
